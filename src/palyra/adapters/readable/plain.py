"""Reads plain text and JSON. Does not own: finding the charset (core.charsets)."""

import msgspec

from palyra.adapters.readable.cut import cut_at_line
from palyra.core.plurals import counted
from palyra.core.spelling import strip_unseen
from palyra.ports.readable import ReadableText

FORMAT_CHARS_MAX = 4 * 1024 * 1024  # Longer JSON is shown as it is: indenting can make it many times as long.
_DEPTH_MAX = 200  # Deeper JSON is shown as it is: each level is indented, so its text would grow with the square.


def read_plain(text: str, charset: str, chars_max: int) -> ReadableText:
    seen = strip_unseen(text)
    shown = cut_at_line(seen, chars_max)
    lines_count = seen.count("\n") + (not seen.endswith("\n")) if seen else 0
    detail = counted(lines_count, "line")
    if not charset.startswith("utf-8"):
        detail += f", {charset}"
    return ReadableText(text=shown, is_cut=len(shown) < len(seen), detail=detail)


def read_json(text: str, charset: str, chars_max: int) -> ReadableText:
    """Indents the JSON, one value a line, so that a cut comes between values. Invalid JSON is read as plain text."""
    pretty = _indented(text)
    if pretty is None:
        plain = read_plain(text, charset, chars_max)
        return msgspec.structs.replace(plain, detail=f"{plain.detail}, not valid JSON")
    value, formatted = pretty
    seen = strip_unseen(formatted)
    shown = cut_at_line(seen, chars_max)
    return ReadableText(text=shown, is_cut=len(shown) < len(seen), detail=_described(value))


def _indented(text: str) -> tuple[object, str] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if len(text) > FORMAT_CHARS_MAX or _depth_bound(text) > _DEPTH_MAX:
        return value, text
    return value, msgspec.json.format(text, indent=2)


def _depth_bound(text: str) -> int:
    """Returns the most levels there can be: brackets in strings count too, which only errs upwards."""
    deepest = depth = 0
    for letter in text:
        if letter in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "]}":
            depth -= 1
    return deepest


def _described(value: object) -> str:
    match value:
        case dict():
            return f"a JSON object with {counted(len(value), 'member')}"
        case list():
            return f"a JSON array of {counted(len(value), 'item')}"
        case _:
            return "a single JSON value"
