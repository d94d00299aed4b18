"""JSON Schema: errors in short words that name the place and not the value; nothing is fetched, nothing is raised."""

import time

import pytest

from palyra.adapters.schema import ERRORS_MAX, MESSAGE_LENGTH_MAX, SCHEMA_BYTES_MAX, VALIDATORS_MAX, JsonSchemaCheck
from palyra.core.events.base import JsonObject

CHECK = JsonSchemaCheck()
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "files": {"type": "array", "items": {"type": "object", "properties": {"size": {"type": "integer"}}}}
    },
    "required": ["files"],
    "additionalProperties": False,
}


def nested(depth: int) -> object:
    value: object = []
    for _ in range(depth):
        value = [value]
    return value


def test_fitting_value_has_no_errors() -> None:
    assert CHECK.errors(SCHEMA, {"files": [{"size": 1}]}) == ()


def test_error_names_its_place_and_never_the_value() -> None:
    (error,) = CHECK.errors(SCHEMA, {"files": [{"size": 1}, {"size": "my password"}]})
    assert error.startswith("/files/1/size: ")
    assert "integer" in error
    assert "password" not in error


def test_errors_are_bounded_in_number_and_length() -> None:
    many = CHECK.errors(SCHEMA, {"files": [{"size": ""} for _ in range(100)]})
    assert len(many) == ERRORS_MAX
    (long,) = CHECK.errors(SCHEMA, {"files": [], **{f"name{number}": 1 for number in range(500)}})
    assert len(long) == MESSAGE_LENGTH_MAX


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"type": 5},
        {"pattern": "("},
        {"$schema": "https://nobody.example/schema"},
        {"$ref": "http://127.0.0.1:1/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/absent"},
        {"description": "x" * SCHEMA_BYTES_MAX},
        {"const": b"\xff" * 3, "x": object()},
        {"not": nested(2000)},
    ],
)
def test_broken_schema_is_an_error_and_never_an_exception(schema: JsonObject) -> None:
    assert len(CHECK.errors(schema, "x")) == 1
    assert len(CHECK.schema_errors(schema)) == 1
    assert "schema" in CHECK.schema_errors(schema)[0]


@pytest.mark.parametrize("value", [object(), "\ud800", nested(5000)])
def test_value_that_cannot_be_checked_is_an_error(value: object) -> None:
    assert len(CHECK.errors({"type": "array", "items": {"type": "string"}}, value)) == 1


def test_pattern_that_explodes_ends_soon() -> None:
    started = time.monotonic()
    CHECK.errors({"pattern": r"^(a|a|aa)+(?!b)$"}, "a" * 60 + "!")
    assert time.monotonic() - started < 2


def test_text_has_to_be_json_before_it_can_fit() -> None:
    assert CHECK.text_errors({"type": "integer"}, "5") == ()
    assert CHECK.text_errors({"type": "integer"}, '"5"') == ('the value is not of type "integer"',)
    for text in ("", "five", "```json\n5\n```", "[" * 100_000, "\ud800"):
        (error,) = CHECK.text_errors({"type": "integer"}, text)
        assert "not JSON" in error


def test_validators_are_kept_but_not_without_end() -> None:
    check = JsonSchemaCheck()
    for number in range(VALIDATORS_MAX + 10):
        assert check.errors({"const": number}, number) == ()
    assert check._compile.cache_info().currsize == VALIDATORS_MAX
