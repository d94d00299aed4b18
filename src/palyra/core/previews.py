"""Previews of long results: what is shown in place of a result that was spilled to an artifact.

Does not own: keeping the whole result (engine).
A preview holds whole lines of the beginning and of the end, and between them the lines that look like errors. Anyone
who has to act on a long log looks for those. A line in brackets says what is left out, and how to read it.
Invariants: the preview is never longer than asked. A line may be cut, but never inside a character or a marker of a
secret.
"""

import re

from palyra.core.ids import ArtifactId
from palyra.core.redaction.markers import MARKER

PREVIEW_BYTES_MAX = 4 * 1024  # A thousand tokens: enough to decide whether to read on.
NOTES_BYTES = 400  # Room for the two lines in brackets.
ERROR_LINES_MAX = 12
ERROR_LINE_BYTES_MAX = 160
LINE_CHARS_SEARCHED = 1024  # A longer line is data; an error says so in its beginning.

_MARKER_LENGTH_MAX = 64  # In characters; a marker is shorter.
_CUT = "…"
_CUT_BYTES = len(_CUT.encode())
_LOOKS_LIKE_ERROR = re.compile(
    r"error|exception|fatal|panic|traceback|critical|denied|segfault|\bfail(?:ed|ure|s)?\b|\bnot found\b", re.IGNORECASE
)


def preview_spilled(text: str, artifact_id: ArtifactId, limit_bytes: int = PREVIEW_BYTES_MAX) -> str:
    """Returns at most `limit_bytes` of UTF-8; the text itself where it fits."""
    clean = text.encode("utf-8", "replace").decode()
    lines = clean.split("\n")
    sizes = [len(line.encode()) + 1 for line in lines]
    whole_bytes = sum(sizes) - 1
    if whole_bytes <= limit_bytes:
        return clean
    room_bytes = limit_bytes - NOTES_BYTES
    errors_bytes = room_bytes // 5 if any(map(_looks_like_error, lines)) else 0
    head, head_count, next_offset = _head(lines, sizes, (room_bytes - errors_bytes) // 2)
    tail, tail_count, tail_bytes = _tail(lines, sizes, (room_bytes - errors_bytes) // 2)
    between = lines[head_count : len(lines) - tail_count]
    errors = _error_lines(between, head_count + 1, errors_bytes)
    left_out = f"{_counted(len(between), 'line')}, {whole_bytes - next_offset - tail_bytes} bytes left out"
    read_on = f"artifact.read with id {artifact_id} and offset {next_offset} reads on"
    notes = [f"[{left_out}; {read_on}.{' Lines there that look like errors:' if errors else ''}]", *errors]
    return "\n".join([head, *notes, *(["[The end:]"] if errors else []), tail])


def cut_after(text: str, room_bytes: int) -> str:
    """Returns the longest beginning that fits and ends inside no character and no marker."""
    start = text[:room_bytes].encode("utf-8", "replace")[:room_bytes].decode("utf-8", "ignore")
    return start[: _outside(text, len(start), len(start))[0]]


def cut_before(text: str, room_bytes: int) -> str:
    """Returns the longest end that fits."""
    if room_bytes <= 0:
        return ""
    end = text[-room_bytes:].encode("utf-8", "replace")[-room_bytes:].decode("utf-8", "ignore")
    at = len(text) - len(end)
    return text[_outside(text, at, at)[1] :]


def _outside(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the place itself, or the start and end of the marker around it."""
    first = max(0, start - _MARKER_LENGTH_MAX)
    for found in MARKER.finditer(text, first, min(len(text), end + _MARKER_LENGTH_MAX)):
        if found.start() < start < found.end():
            return found.start(), found.end()
    return start, end


def _head(lines: list[str], sizes: list[int], room_bytes: int) -> tuple[str, int, int]:
    """Returns the text, its number of whole lines, and the byte where the rest begins."""
    count, used_bytes = _fitting(sizes, room_bytes)
    if count:
        return "\n".join(lines[:count]), count, used_bytes
    start = cut_after(lines[0], room_bytes - _CUT_BYTES)
    return start + _CUT, 0, len(start.encode())


def _tail(lines: list[str], sizes: list[int], room_bytes: int) -> tuple[str, int, int]:
    """Returns the text, its number of whole lines, and its size in bytes of the whole."""
    count, used_bytes = _fitting(sizes[::-1], room_bytes)
    if count and any(lines[len(lines) - count :]):
        return "\n".join(lines[len(lines) - count :]), count, used_bytes - 1
    whole = "\n".join(lines[-count - 1 :])
    end = cut_before(whole, room_bytes - _CUT_BYTES)
    return _CUT + end, 0, len(end.encode())


def _fitting(sizes: list[int], room_bytes: int) -> tuple[int, int]:
    count, used_bytes = 0, 0
    while count < len(sizes) and used_bytes + sizes[count] <= room_bytes:
        used_bytes += sizes[count]
        count += 1
    return count, used_bytes


def _error_lines(lines: list[str], first_number: int, room_bytes: int) -> list[str]:
    """Returns error lines with their numbers, shortened, as many as fit, and a count of the others."""
    shown: list[str] = []
    others_count = 0
    for number, line in enumerate(lines, first_number):
        if not _looks_like_error(line):
            continue
        cut = cut_after(line, ERROR_LINE_BYTES_MAX)
        told = f"{number}: {cut}{_CUT if len(cut) < len(line) else ''}"
        room_bytes -= len(told.encode()) + 1
        if room_bytes < 0 or len(shown) == ERROR_LINES_MAX:
            others_count += 1
        else:
            shown.append(told)
    return [*shown, f"[and {others_count} more]"] if shown and others_count else shown


def _looks_like_error(line: str) -> bool:
    return _LOOKS_LIKE_ERROR.search(line, 0, LINE_CHARS_SEARCHED) is not None


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
