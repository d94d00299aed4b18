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
        # Each of these held the event loop for seconds while it was compiled.
        {"pattern": "|".join([r"\w{50}"] * 8_000)},
        {"pattern": r"\w" * 2_000},
        {"allOf": [{"pattern": f"(a{{{900 + number}}}){{20}}"} for number in range(900)]},
        {"patternProperties": {rf"^\p{{L}}{{{100 + number}}}$": {} for number in range(900)}},
        {"$defs": {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(2_000)}, "$ref": "#/$defs/a0"},
    ],
)
def test_broken_schema_is_an_error_and_never_an_exception(schema: JsonObject) -> None:
    assert len(CHECK.errors(schema, "x")) == 1
    assert len(CHECK.schema_errors(schema)) == 1
    assert "schema" in CHECK.schema_errors(schema)[0]


@pytest.mark.parametrize("value", [object(), "\ud800", nested(5000)])
def test_value_that_cannot_be_checked_is_an_error(value: object) -> None:
    assert len(CHECK.errors({"type": "array", "items": {"type": "string"}}, value)) == 1


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        pytest.param(r"(?=a)(\w+\s?)*$x", "a " * 100_000, id="backtracks"),
        pytest.param(r"[ab]*a[ab]{1000}c", "ab" * 100_000, id="many-states"),
        pytest.param(r"^\d+$", "1" * 1_000_000, id="long"),
        pytest.param(r"(?=a)(\w+\s?)*$x", ["a " * 30] * 3_000, id="many-places"),
    ],
)
def test_text_that_a_pattern_would_take_long_for_is_not_checked(pattern: str, value: object) -> None:
    schema: JsonObject = {"pattern": pattern, "items": {"pattern": pattern}}
    (error,) = CHECK.errors(schema, value)
    assert "too long" in error


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        (r"^[a-z0-9][a-z0-9-]{0,62}$", "one-2"),
        (r"^\w{1,64}$", "name_1"),
        (r"^[^!]{1,250}$", "näme"),
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "01234567-89ab-cdef-0123-456789abcdef"),
        (r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$", "ann@example.org"),
        (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "Passw0rdPassw0rd"),
    ],
)
def test_usual_pattern_is_checked_in_a_long_value(pattern: str, fitting: str) -> None:
    schema: JsonObject = {"properties": {"name": {"pattern": pattern}, "content": {"type": "string"}}}
    content = "x" * 15_000
    assert CHECK.errors(schema, {"name": fitting, "content": content}) == ()
    assert len(CHECK.errors(schema, {"name": "!", "content": content})) == 1


def test_pattern_that_explodes_ends_soon() -> None:
    began_s = time.process_time()
    CHECK.errors({"pattern": r"^(a|a|aa)+(?!b)$"}, "a" * 60 + "!")
    assert time.process_time() - began_s < 2


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
