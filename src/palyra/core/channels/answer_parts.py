"""Splits a long answer into parts that a platform accepts, and takes the sting out of broadcasts.

Invariant: the parts hold every character of the text in order. A fenced code block that must be cut is closed at the
end of a part and opened again in the next, so that each part shows it as code.
"""

import re

FENCE = "```"
PARTS_MAX = 20  # Beyond this an answer floods a conversation; its end says how much is missing.
_FENCE_LINE = re.compile(r"^ {0,3}(```+)([^`]*)$")
# The zero-width space breaks the platform's mark and leaves the words readable.
_BROADCASTS = re.compile(r"@(?=(?:everyone|here|channel|all|room)\b)|<!(?=(?:everyone|here|channel|subteam))", re.I)


def split_answer(text: str, length_max: int) -> tuple[str, ...]:
    """Returns the parts, each of at most `length_max` characters. An empty text has none."""
    parts: list[str] = []
    rest, opened = text, ""
    while rest:
        prefix = f"{opened}\n" if opened else ""
        if len(prefix) + len(rest) <= length_max:
            parts.append(prefix + rest)
            break
        if len(parts) == PARTS_MAX - 1:
            parts.append(_ended(prefix, rest, length_max))
            break
        room = length_max - len(prefix) - len(FENCE) - 1
        cut = _cut_at(rest, room)
        head, rest = rest[:cut], rest[cut:]
        opened = _open_fence(prefix + head)
        closing = (FENCE if head.endswith("\n") else f"\n{FENCE}") if opened else ""
        parts.append(f"{prefix}{head}{closing}" if opened else (prefix + head))
    return tuple(part for part in (each.strip("\n") for each in parts) if part.strip())


def without_broadcast(text: str) -> str:
    """Returns the text with no mark that would call everyone of a conversation."""
    return _BROADCASTS.sub(lambda found: f"{found[0]}\u200b", text)


def _cut_at(text: str, room: int) -> int:
    """Cuts before a code block that would fit whole into the next part, else at a paragraph, a line, a word."""
    window = text[:room]
    fence = _last_open_fence_start(window)
    if fence is not None and fence >= room // 4 and not window[fence:].isspace():
        return fence
    for mark in ("\n\n", "\n", " "):
        found = window.rfind(mark, room // 2)
        if found > 0:
            return found + len(mark)
    return max(1, room)


def _last_open_fence_start(text: str) -> int | None:
    """Returns where the block begins that is open at the end of the text."""
    start, offset = None, 0
    for line in text.splitlines(keepends=True):
        if _FENCE_LINE.match(line.rstrip("\n")):
            start = offset if start is None else None
        offset += len(line)
    return start


def _open_fence(text: str) -> str:
    """Returns the line that opened the block which is open at the end of the text; empty if none is."""
    opened = ""
    for line in text.splitlines():
        if _FENCE_LINE.match(line):
            opened = "" if opened else line.strip()[:40]
    return opened


def _ended(prefix: str, rest: str, length_max: int) -> str:
    note = f"\n{FENCE}\n… {len(rest)} more characters are in the session." if prefix else ""
    note = note or f"\n… {len(rest)} more characters are in the session."
    return f"{prefix}{rest[: max(0, length_max - len(prefix) - len(note))]}{note}"
