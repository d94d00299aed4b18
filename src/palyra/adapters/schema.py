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
from palyra.core.schema_cost import COST_MAX, places_of, schema_cost

VALIDATORS_MAX = 256  # Tools of a large catalog plus the answer schemas in use; compiling again costs under 1 ms.
SCHEMA_BYTES_MAX = 64 * 1024
ERRORS_MAX = 10  # Enough to correct everything at once; more is noise.
MESSAGE_LENGTH_MAX = 200
# A comparison takes 10 to 100 ns. The checker finds all errors before it gives the first, which costs far more.
WORK_MAX = 400_000
ALL_ERRORS_WORK_MAX = 4_000
BACKTRACK_STEPS_MAX = 100_000  # A hostile pattern ends after about 10 ms.


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
    """A compiled schema, and what comparing one place of a value with it costs."""

    validator: jsonschema_rs.Validator
    cost: int

    def errors(self, value: object) -> tuple[str, ...]:
        work = self.cost * places_of(msgspec.json.encode(value))
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
    cost = schema_cost(schema)
    if cost >= COST_MAX:
        return "the schema has too many alternatives to be checked"
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_STEPS_MAX)
    try:
        validator = jsonschema_rs.validator_for(schema, mask="the value", offline=True, pattern_options=options)
        return _CheckedSchema(validator, cost)
    except jsonschema_rs.ValidationError as broken:
        return f"the schema is not valid: {_worded(broken)}"
    except (ValueError, TypeError, RecursionError) as cause:
        return f"the schema is not valid ({type(cause).__name__})"


def _worded(error: jsonschema_rs.ValidationError) -> str:
    place = "".join(f"/{part}" for part in error.instance_path)
    text = f"{place}: {error.message}" if place else error.message
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"
