"""JSON Schema by jsonschema-rs. Owns: compiled validators, and errors in short words. Not: what is done about an error.

Invariants: a schema never makes us fetch anything; patterns match in bounded time; a message names the place and the
rule, never the value, which may be a person's text; every failure inside is an error in words, never an exception.
"""

from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import jsonschema_rs
import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.schema_cost import (
    COST_MAX,
    PATTERN_COST,
    PATTERNS_COST_MAX,
    patterns_cost,
    places_of,
    schema_cost,
)

VALIDATORS_MAX = 256  # Tools of a large catalog plus the answer schemas in use; compiling again costs under 1 ms.
SCHEMA_BYTES_MAX = 64 * 1024
ERRORS_MAX = 10  # Enough to correct everything at once; more is noise.
MESSAGE_LENGTH_MAX = 200
# A comparison takes 10 to 100 ns. The checker finds all errors before it gives the first, which costs far more.
WORK_MAX = 400_000
ALL_ERRORS_WORK_MAX = 4_000
# A pattern is first compiled by the linear engine within few states, where a hostile one takes 0.5 microseconds for a
# byte of text. One that does not fit is given more states, and backtracking: 7 microseconds, mostly far less.
SMALL_PATTERN_BYTES = 20_000
LARGE_PATTERN_BYTES = 400_000
LARGE_PATTERN_WORK = 20
BACKTRACK_STEPS_MAX = 10_000


class JsonSchemaCheck:
    def __init__(self) -> None:
        self._compile = lru_cache(maxsize=VALIDATORS_MAX)(_compile)

    def errors(self, schema: JsonObject, value: object) -> tuple[str, ...]:
        checked = self._checked(schema)
        if isinstance(checked, str):
            return (checked,)
        try:
            return checked.errors(value)
        except (ValueError, TypeError, RecursionError) as cause:
            return (f"the value could not be checked ({type(cause).__name__})",)

    def text_errors(self, schema: JsonObject, text: str) -> tuple[str, ...]:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return ("the text is not JSON: answer with the JSON value alone, without words or fences around it",)
        return self.errors(schema, value)

    def schema_errors(self, schema: JsonObject) -> tuple[str, ...]:
        checked = self._checked(schema)
        return (checked,) if isinstance(checked, str) else ()

    def _checked(self, schema: JsonObject) -> "_CheckedSchema | str":
        try:
            encoded = msgspec.json.encode(schema, order="sorted")
        except (TypeError, ValueError, RecursionError) as cause:
            return f"the schema is not JSON ({type(cause).__name__})"
        if len(encoded) > SCHEMA_BYTES_MAX:
            return f"the schema has {len(encoded)} bytes, at most {SCHEMA_BYTES_MAX}"
        return self._compile(encoded)


class _CheckedSchema(NamedTuple):
    """A compiled schema, and what comparing one place of a value with it costs, and one byte with its patterns."""

    validator: jsonschema_rs.Validator
    cost: int
    byte_cost: int

    def errors(self, value: object) -> tuple[str, ...]:
        encoded = msgspec.json.encode(value)
        if self.byte_cost * len(encoded) > WORK_MAX:
            most = WORK_MAX // self.byte_cost
            return (f"the value is too long to be checked against this schema's patterns; send at most {most} bytes",)
        work = self.cost * places_of(encoded)
        if work > WORK_MAX:
            return (f"the value has too many parts to be checked against this schema; send fewer ({work} steps)",)
        if self.validator.is_valid(value):
            return ()
        if work <= ALL_ERRORS_WORK_MAX:
            return tuple(_worded(error) for error in islice(self.validator.iter_errors(value), ERRORS_MAX))
        try:
            self.validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return (_worded(error),)
        return ()


def _compile(encoded: bytes) -> _CheckedSchema | str:
    """A broken schema is kept as what is wrong with it, so that it too is looked at once."""
    schema = msgspec.json.decode(encoded)
    try:
        cost, patterns = schema_cost(schema), patterns_cost(schema)
        if cost >= COST_MAX:
            return "the schema has too many alternatives to be checked"
        if patterns > PATTERNS_COST_MAX:
            return "the schema's patterns are too many or too long to be checked"
        count = patterns // PATTERN_COST  # At least as many as there are: long ones count more.
        return _compile_small(schema, cost, count) or _compile_large(schema, cost, count)
    except jsonschema_rs.ValidationError as broken:
        return f"the schema is not valid: {_worded(broken)}"
    except (ValueError, TypeError, RecursionError) as cause:
        return f"the schema is not valid ({type(cause).__name__})"


def _compile_small(schema: JsonObject, cost: int, patterns_count: int) -> _CheckedSchema | None:
    """Returns None if a pattern needs more than the linear engine has within few states, or the schema is broken."""
    options = jsonschema_rs.RegexOptions(size_limit=SMALL_PATTERN_BYTES)
    try:
        validator = jsonschema_rs.validator_for(schema, mask="the value", offline=True, pattern_options=options)
    except jsonschema_rs.ValidationError:
        return None
    return _CheckedSchema(validator, cost, patterns_count)


def _compile_large(schema: JsonObject, cost: int, patterns_count: int) -> _CheckedSchema:
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_STEPS_MAX, size_limit=LARGE_PATTERN_BYTES)
    validator = jsonschema_rs.validator_for(schema, mask="the value", offline=True, pattern_options=options)
    return _CheckedSchema(validator, cost, patterns_count * LARGE_PATTERN_WORK)


def _worded(error: jsonschema_rs.ValidationError) -> str:
    place = "".join(f"/{part}" for part in error.instance_path)
    text = f"{place}: {error.message}" if place else error.message
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"
