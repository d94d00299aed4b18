"""Turns raw tables into records, value by value, so that all problems are found. Does not own: files (config.load)."""

import enum
import math
import types
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from palyra.config.forms import Parsed, ParsedEach
from palyra.config.lines import Path
from palyra.config.problems import ConfigProblems, suggestion, unknown_key
from palyra.config.records import Section
from palyra.core.errors import Invalid


class Unreadable(enum.Enum):
    """Stands for a value that was reported; no setting can have it."""

    VALUE = "unreadable"


UNREADABLE: Final = Unreadable.VALUE
Say = Callable[[Path, str], None]
Record = TypeVar("Record", bound=Section)


def read_table(section: type[Record], table: Mapping[str, object], path: Path, report: ConfigProblems) -> Record | None:
    known = {field.name: field for field in fields(section)}
    values: dict[str, Any] = {}
    for key, raw in table.items():
        if key in known:
            values[key] = read_value(known[key], raw, (*path, key), report.add)
        else:
            report.add((*path, key), unknown_key(key, known))
    missing = [field.name for field in known.values() if field.required and field.name not in values]
    for name in missing:
        report.add(path, f"needs the key {name}")
    has_problem = bool(missing) or len(values) < len(table) or UNREADABLE in values.values()
    return None if has_problem else section(**values)


def read_value(field: FieldInfo, raw: object, path: Path, say: Say) -> Any:
    """Returns a value of the field's type, or UNREADABLE after telling `say` why."""
    kind, marks = _opened(field.type)
    parsed = next((mark for mark in marks if isinstance(mark, Parsed | ParsedEach)), None)
    if isinstance(raw, datetime | date | time):
        raw = raw.isoformat()
    if isinstance(raw, float) and not math.isfinite(raw):
        say(path, "must be a finite number")
        return UNREADABLE
    if isinstance(parsed, Parsed):
        return _parse(parsed.parse, raw, path, say)
    if isinstance(parsed, ParsedEach):
        return _parse_each(parsed.parse, _bounded_list(field.type, raw, path, say), path, say)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _choose(kind, raw, path, say)
    if get_origin(kind) is dict and issubclass(get_args(kind)[0], enum.Enum):
        return _choose_each(kind, raw, path, say)
    return _convert(field.type, raw, path, say)


def scalar_kind(field: FieldInfo) -> object:
    """Returns what a text from outside must become before it can be read: bool, int, float, tuple or str."""
    kind, marks = _opened(field.type)
    if any(isinstance(mark, ParsedEach) for mark in marks) or get_origin(kind) is tuple:
        return tuple
    if any(isinstance(mark, Parsed) for mark in marks):
        return str
    return kind if kind in (bool, int, float) else str


def _opened(hint: object) -> tuple[object, tuple[object, ...]]:
    """Returns the type under Annotated and Optional, and the annotations."""
    marks: list[object] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *rest = get_args(hint)
            marks += rest
        elif get_origin(hint) in (Union, types.UnionType):
            hint = next(each for each in get_args(hint) if each is not type(None))
        else:
            return hint, tuple(marks)


def _parse(parse: Callable[[str], object], raw: object, path: Path, say: Say) -> object:
    if not isinstance(raw, str):
        say(path, "must be text")
        return UNREADABLE
    try:
        return parse(raw)
    except Invalid as cause:
        say(path, cause.message)
        return UNREADABLE


def _bounded_list(hint: object, raw: object, path: Path, say: Say) -> list[object] | None:
    if not isinstance(raw, list):
        say(path, "must be a list")
        return None
    bounds = [mark for mark in _opened(hint)[1] if isinstance(mark, msgspec.Meta)]
    if any(mark.min_length is not None and len(raw) < mark.min_length for mark in bounds):
        say(path, "must not be empty")
        return None
    return raw


def _parse_each(parse: Callable[[str], object], raw: list[object] | None, path: Path, say: Say) -> object:
    if raw is None:
        return UNREADABLE
    values = tuple(_parse(parse, each, (*path, index), say) for index, each in enumerate(raw))
    return UNREADABLE if UNREADABLE in values else values


def _choose(kind: type[enum.Enum], raw: object, path: Path, say: Say) -> object:
    words = [member.value for member in kind]
    if isinstance(raw, str) and raw in words:
        return kind(raw)
    near = suggestion(raw, words) if isinstance(raw, str) else ""
    say(path, f"must be one of {', '.join(words)}{near}")
    return UNREADABLE


def _choose_each(hint: object, raw: object, path: Path, say: Say) -> object:
    """Reads a table in which both keys and values are words of closed sets."""
    key_kind, value_kind = get_args(hint)
    if not isinstance(raw, dict):
        say(path, "must be a table, which only the file can hold")
        return UNREADABLE
    words = [member.value for member in key_kind]
    chosen: dict[object, object] = {}
    for key, value in raw.items():
        if key not in words:
            say((*path, key), unknown_key(key, words))
            chosen[key] = UNREADABLE
        else:
            chosen[key_kind(key)] = _choose(value_kind, value, (*path, key), say)
    return UNREADABLE if UNREADABLE in chosen.values() else chosen


def _convert(hint: object, raw: object, path: Path, say: Say) -> object:
    try:
        return msgspec.convert(raw, hint)
    except msgspec.ValidationError as cause:
        what = str(cause).partition(" - at ")[0]
        say(path, f"{what[:1].lower()}{what[1:]}")
        return UNREADABLE
