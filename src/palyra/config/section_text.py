"""Changes the text of palyra.toml: adds a repeated section at its end, or cuts one out.

Does not own: the file (app), what a section means (records).
Invariant: a change touches its own section alone. Whatever cannot be cut out exactly is refused, never guessed.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence

from palyra.core.errors import Invalid

Value = str | float | bool | Sequence[str] | Mapping[str, str]

_HEADER = re.compile(r"\s*\[")


def with_section(text: str, table: str, values: Mapping[str, Value]) -> str:
    """Returns the text with one more `[[table]]` at its end."""
    lines = [f"{name} = {_literal(value)}" for name, value in values.items()]
    before = text if not text or text.endswith("\n") else f"{text}\n"
    between = "\n" if before else ""
    return "\n".join([f"{before}{between}[[{table}]]", *lines, ""])


def without_section(text: str, table: str, name: str) -> str:
    """Returns the text without the `[[table]]` of that name. Raises Invalid if it cannot be cut out exactly."""
    whole = tomllib.loads(text)
    wanted = {**whole, table: [each for each in whole.get(table, ()) if each.get("name") != name]}
    lines = text.splitlines(keepends=True)
    for start, end in _sections(lines, table):
        shorter = "".join(lines[:start] + lines[end:])
        if _parsed(shorter, table) == wanted:
            return shorter
    raise Invalid("section_not_cut", f"[[{table}]] {name} cannot be cut out of palyra.toml; remove it by hand")


def _parsed(text: str, table: str) -> dict[str, object] | None:
    try:
        return {table: [], **tomllib.loads(text)}
    except tomllib.TOMLDecodeError:
        return None


def _sections(lines: list[str], table: str) -> list[tuple[int, int]]:
    """Returns the lines from each header of the table up to the next header that is not of its own sub-tables."""
    header = re.compile(rf"\s*\[\[\s*{re.escape(table)}\s*\]\]")
    own = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\.")
    found: list[tuple[int, int]] = []
    for start, line in enumerate(lines):
        if header.match(line):
            later = range(start + 1, len(lines))
            ends = (at for at in later if _HEADER.match(lines[at]) and not own.match(lines[at]))
            found.append((start, next(ends, len(lines))))
    return found


def _quoted(text: str) -> str:
    """A basic string of TOML is one of JSON, but for the letter DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _literal(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case Mapping():
            return "{ " + ", ".join(f"{_quoted(key)} = {_literal(each)}" for key, each in value.items()) + " }"
        case Sequence():
            return "[" + ", ".join(map(_literal, value)) + "]"
        case _:
            return str(value)
