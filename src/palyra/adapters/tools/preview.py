"""The preview of a write or a patch: what a person is shown before answering.

Does not own: reading the file (fs_write, fs_patch_plan).
Invariants: a preview is bounded in size and in time. What is left out is counted. Characters that could hide or reorder
text on a screen are spelled out.
"""

from collections.abc import Sequence
from difflib import unified_diff

from palyra.core.plurals import counted
from palyra.core.spelling import spell_out

PREVIEW_LENGTH_MAX = 4 * 1024
DIFFED_BYTES_MAX = 64 * 1024
DIFFED_LINES_MAX = 300  # Counts from the first to the last changed line. Comparing costs up to the square of this.
_CONTEXT_LINES = 3
_HEAD_LINES = 2  # A diff begins with these lines, the names.
_NOTE_LENGTH = 80  # Leaves room for the line that says what was left out.


def preview_write(path: str, old: bytes | None, new: str) -> str:
    """Returns a unified diff if that helps, else a sentence and the beginning of the new content."""
    after = _lines(new)
    added = [f"+{line}" for line in after]
    if old is None:
        return _capped([f"new file, {len(after)} line{'' if len(after) == 1 else 's'}", *added])
    if old == new.encode("utf-8", "replace"):
        return "no change: the file already has this content"
    before = _text_lines(old)
    diff = _diff(path, before, after) if before is not None and len(new) <= DIFFED_BYTES_MAX else None
    return _capped(diff if diff is not None else [_sentence(old, new), *added])


def preview_changes(changes: Sequence[tuple[str, str, str]]) -> str:
    """Previews several files in one: for each the kind of change, and its text before and after."""
    lines: list[str] = []
    for headline, old, new in changes:
        before, after = _lines(old), _lines(new)
        is_small = max(len(old), len(new)) <= DIFFED_BYTES_MAX
        diff = _diff(headline, before, after) if old != new and is_small else None
        sizes = (
            [f"{counted(len(before), 'line')} become{'s' if len(before) == 1 else ''} {len(after)}"]
            if old != new
            else []
        )
        lines += [headline, *(sizes if diff is None else diff[_HEAD_LINES:] or diff)]
    return _capped(lines)


def _lines(text: str) -> list[str]:
    """Splits at the characters that end lines in files. Others that would break a line on a screen are spelled out."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _text_lines(old: bytes) -> list[str] | None:
    if len(old) > DIFFED_BYTES_MAX or b"\x00" in old:
        return None
    try:
        return _lines(old.decode())
    except UnicodeDecodeError:
        return None


def _diff(path: str, before: list[str], after: list[str]) -> list[str] | None:
    """Compares only what lies between the first and the last change; None if that is too much."""
    shorter = min(len(before), len(after))
    first = next((index for index in range(shorter) if before[index] != after[index]), shorter)
    tail_max = shorter - first
    tail = next((count for count in range(tail_max) if before[-1 - count] != after[-1 - count]), tail_max)
    if max(len(before), len(after)) - first - tail > DIFFED_LINES_MAX:
        return None
    start, kept = max(first - _CONTEXT_LINES, 0), max(tail - _CONTEXT_LINES, 0)
    compared = before[start : len(before) - kept], after[start : len(after) - kept]
    place = f"{path}, from line {start + 1}" if start else path
    lines = list(unified_diff(*compared, f"{place} (now)", f"{place} (new)", lineterm=""))
    return lines or ["only line endings change"]


def _sentence(old: bytes, new: str) -> str:
    size = f"more than {DIFFED_BYTES_MAX}" if len(old) > DIFFED_BYTES_MAX else str(len(old))
    return f"replaces the whole file: {size} bytes become {len(new.encode('utf-8', 'replace'))}"


def _capped(lines: list[str]) -> str:
    shown: list[str] = []
    left = PREVIEW_LENGTH_MAX - _NOTE_LENGTH
    for line in lines:
        spelled = spelled_out(line[:left])
        if len(spelled) >= left:
            shown.append(spelled[: left - 1] + "…")
            break
        left -= len(spelled) + 1
        shown.append(spelled)
    rest = len(lines) - len(shown)
    return "\n".join([*shown, f"[{rest} more lines are not shown]"] if rest else shown)


def spelled_out(line: str) -> str:
    return spell_out(line, kept="\t")
