"""JSON Schema by jsonschema-rs. Owns: compiled validators, and errors in short words. Not: what is done about an error.

Invariants: a schema never makes us fetch anything; patterns match in bounded time; a message names the place and the
rule, never the value, which may be a person's text; every failure inside is an error in words, never an exception.
"""

from functools import lru_cache
from itertools import islice

import jsonschema_rs
import msgspec

from palyra.core.events.base import JsonObject

VALIDATORS_MAX = 256  # Tools of a large catalog plus the answer schemas in use; compiling again costs under 1 ms.
SCHEMA_BYTES_MAX = 64 * 1024
ERRORS_MAX = 10  # Enough to correct everything at once; more is noise.
MESSAGE_LENGTH_MAX = 200
BACKTRACK_STEPS_MAX = 100_000  # A hostile pattern ends after about 10 ms.


class JsonSchemaCheck:
    def __init__(self) -> None:
        self._compile = lru_cache(maxsize=VALIDATORS_MAX)(_compile)

    def errors(self, schema: JsonObject, value: object) -> tuple[str, ...]:
        validator = self._validator(schema)
        if isinstance(validator, str):
            return (validator,)
        try:
            return tuple(_worded(error) for error in islice(validator.iter_errors(value), ERRORS_MAX))
        except (ValueError, TypeError, RecursionError) as cause:
            return (f"the value could not be checked ({type(cause).__name__})",)

    def text_errors(self, schema: JsonObject, text: str) -> tuple[str, ...]:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return ("the text is not JSON: answer with the JSON value alone, without words or fences around it",)
        return self.errors(schema, value)

    def schema_errors(self, schema: JsonObject) -> tuple[str, ...]:
        validator = self._validator(schema)
        return (validator,) if isinstance(validator, str) else ()

    def _validator(self, schema: JsonObject) -> "jsonschema_rs.Validator | str":
        try:
            encoded = msgspec.json.encode(schema, order="sorted")
        except (TypeError, ValueError, RecursionError) as cause:
            return f"the schema is not JSON ({type(cause).__name__})"
        if len(encoded) > SCHEMA_BYTES_MAX:
            return f"the schema has {len(encoded)} bytes, at most {SCHEMA_BYTES_MAX}"
        return self._compile(encoded)


def _compile(encoded: bytes) -> jsonschema_rs.Validator | str:
    """A broken schema is kept as what is wrong with it, so that it too is looked at once."""
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_STEPS_MAX)
    try:
        return jsonschema_rs.validator_for(
            msgspec.json.decode(encoded), mask="the value", offline=True, pattern_options=options
        )
    except jsonschema_rs.ValidationError as broken:
        return f"the schema is not valid: {_worded(broken)}"
    except (ValueError, TypeError, RecursionError) as cause:
        return f"the schema is not valid ({type(cause).__name__})"


def _worded(error: jsonschema_rs.ValidationError) -> str:
    place = "".join(f"/{part}" for part in error.instance_path)
    text = f"{place}: {error.message}" if place else error.message
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"
