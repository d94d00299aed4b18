"""Applies a patch: what a unified diff makes of a text.

Does not own: reading the diff (patch_parser), files.
A hunk applies where its context and removed lines stand exactly: at the line it names, else at the only place where
they stand. There is no fuzz.
A text that already holds the patch's result counts as patched, and nothing changes. It holds the result if taking the
hunks out gives a text that the patch turns into it.
Among equal lines a text can look both patched and unpatched. Then the reading wins in which the hunks stand exactly
where they say. If neither or both do, the patch is applied, unless it could be applied a second time to its result.
"""

from collections.abc import Iterator
from enum import Enum
from itertools import accumulate, islice, product

import msgspec

from palyra.core.errors import Conflict
from palyra.core.plurals import counted

_UNDONE_MAX = 16  # Limits the ways of taking a patch out of a text that are tried.
_QUOTED_LENGTH_MAX = 120


class PatchKind(Enum):
    CHANGE = "change"
    CREATE = "create"
    DELETE = "delete"


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """`before` and `after` are whole lines. `line` and `line_after` say where they begin, from 1; 0 means unknown.

    A side without context is open: the text ends there, or a model left the context out.
    """

    number: int
    line: int
    line_after: int
    before: str
    after: str
    has_end_mark: bool = False
    is_open_before: bool = False
    is_open_after: bool = False
    is_removal: bool = False


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a patch does to one file. `source` differs from `path` where the file is renamed."""

    kind: PatchKind
    path: str
    source: str
    hunks: tuple[Hunk, ...] = ()
    is_executable: bool = False


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The resulting text.

    `moved` lists hunks that were not where they said: number and the line where each was found.
    """

    text: str
    is_new: bool
    moved: tuple[tuple[int, int], ...] = ()


def apply(patch: FilePatch, text: str) -> Applied:
    """Applies the patch; raises Conflict that names the hunk and the text found in its place."""
    refusal: Conflict | None = None
    for variant in _variants(patch.hunks, text):
        try:
            outcome = _perform(variant.hunks, variant.text, patch.path)
        except Conflict as cause:
            refusal, outcome = refusal or cause, None
        if _is_applied(variant, outcome):
            return Applied(text=text, is_new=False)
        if outcome is not None:
            after = outcome.text.removesuffix(variant.ending)
            return Applied(text=after, is_new=after != text, moved=outcome.moved)
    assert refusal is not None
    raise refusal


class _Outcome(msgspec.Struct, frozen=True):
    """The result of hunks. It is strict if each stood exactly where it said, and is open only where the text ends."""

    text: str
    moved: tuple[tuple[int, int], ...]
    is_strict: bool


def _is_applied(variant: "_Variant", outcome: _Outcome | None) -> bool:
    if outcome is not None and outcome.is_strict:
        return False
    origin = _origin(variant.hunks, variant.text)
    if origin is None or outcome is None or origin.is_strict:
        return origin is not None
    return _attempt(variant.hunks, outcome.text) is not None


class _Variant(msgspec.Struct, frozen=True):
    """Hunks and a text made comparable, and the line end that was added to the text for that."""

    hunks: tuple[Hunk, ...]
    text: str
    ending: str = ""


def _variants(hunks: tuple[Hunk, ...], text: str) -> Iterator[_Variant]:
    """Yields hunks and text as they are, then as if the patch had been written with the file's own line ends."""
    yield _Variant(hunks, text)
    ending = "\n"
    if _has_only_crlf(text) and not any("\r" in hunk.before + hunk.after for hunk in hunks):
        ending = "\r\n"
        hunks = tuple(_with_crlf(hunk) for hunk in hunks)
        yield _Variant(hunks, text)
    if text and not text.endswith("\n") and not any(hunk.has_end_mark for hunk in hunks):
        yield _Variant(hunks, text + ending, ending)


def _has_only_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def _with_crlf(hunk: Hunk) -> Hunk:
    before, after = (each.replace("\n", "\r\n") for each in (hunk.before, hunk.after))
    return msgspec.structs.replace(hunk, before=before, after=after)


def _perform(hunks: tuple[Hunk, ...], text: str, path: str) -> _Outcome:
    starts = _line_starts(text)
    placed = [(_place(hunk, text, starts, path), hunk) for hunk in hunks]
    after = _replaced(text, [(at, hunk.before, hunk.after) for at, hunk in placed])
    if after is None:
        raise Conflict("hunks_overlap", f"{path}: two hunks change the same lines; make one hunk of them")
    lines = {hunk.number: text.count("\n", 0, at) + 1 for at, hunk in placed}
    moved = tuple((hunk.number, lines[hunk.number]) for hunk in hunks if hunk.line not in (0, lines[hunk.number]))
    is_strict = all(
        hunk.line == lines[hunk.number] and _is_closed(hunk, text, at, at + len(hunk.before)) for at, hunk in placed
    )
    return _Outcome(after, moved, is_strict)


def _is_closed(hunk: Hunk, text: str, at: int, end: int) -> bool:
    return not (hunk.is_open_before and at) and not (hunk.is_open_after and end < len(text))


def _attempt(hunks: tuple[Hunk, ...], text: str) -> _Outcome | None:
    try:
        return _perform(hunks, text, "")
    except Conflict:
        return None


def _origin(hunks: tuple[Hunk, ...], text: str) -> _Outcome | None:
    """Returns how the patch made this text from another one, strictly if possible; None if it did not."""
    starts = _line_starts(text)
    places = [_places_after(hunk, text, starts) for hunk in hunks]
    found: _Outcome | None = None
    for chosen in islice(product(*places), _UNDONE_MAX):
        undone = [(at, hunk.after, hunk.before) for at, hunk in zip(chosen, hunks, strict=True)]
        before = _replaced(text, undone)
        outcome = _attempt(hunks, before) if before is not None else None
        if outcome is not None and outcome.text == text and (found is None or outcome.is_strict):
            found = outcome
            if found.is_strict:
                break
    return found


def _places_after(hunk: Hunk, text: str, starts: list[int]) -> list[int]:
    stated = starts[max(min(hunk.line_after, len(starts)) - 1, 0)]
    found = islice(_occurrences(text, hunk.after, hunk), _UNDONE_MAX) if hunk.after else iter([stated])
    # Context alone does not prove that lines next to it were removed, unless the text has no room for them.
    fitting = [at for at in found if not hunk.is_removal or _is_closed(hunk, text, at, at + len(hunk.after))]
    return sorted(fitting, key=lambda at: abs(at - stated))


def _replaced(text: str, changes: list[tuple[int, str, str]]) -> str | None:
    """Replaces pieces of the text at these places; returns None if two of them overlap."""
    pieces: list[str] = []
    done = 0
    for at, old, new in sorted(changes):
        if at < done:
            return None
        pieces += [text[done:at], new]
        done = at + len(old)
    return "".join([*pieces, text[done:]])


def _line_starts(text: str) -> list[int]:
    return list(accumulate((len(line) + 1 for line in text.split("\n")[:-1]), initial=0))


def _place(hunk: Hunk, text: str, starts: list[int], path: str) -> int:
    if not hunk.before:
        if not text:
            return 0
        raise Conflict("hunk_without_context", f"{path}: hunk {hunk.number} has no context; give the lines around it")
    if 0 < hunk.line <= len(starts) and _stands_at(text, hunk.before, starts[hunk.line - 1], hunk):
        return starts[hunk.line - 1]
    found = list(islice(_occurrences(text, hunk.before, hunk), 2))
    if len(found) == 1:
        return found[0]
    if found:
        said = f"at line {hunk.line} its lines do not stand, and" if hunk.line else "it names no line, and"
        message = (
            f"{path}: hunk {hunk.number} fits more than one place: {said} they stand in several; give more context"
        )
        raise Conflict("hunk_ambiguous", message)
    raise Conflict("hunk_mismatch", f"{path}: hunk {hunk.number} does not match: {_difference(hunk, text, starts)}")


def _stands_at(text: str, block: str, at: int, hunk: Hunk) -> bool:
    """Tells whether the block stands at this place. A hunk with an end mark must stand at the end of the text."""
    return text.startswith(block, at) and not (hunk.has_end_mark and at + len(block) < len(text))


def _occurrences(text: str, block: str, hunk: Hunk) -> Iterator[int]:
    """Yields the places where these lines stand, whole lines only."""
    lined, wanted = "\n" + text, "\n" + block
    at = lined.find(wanted)
    while at >= 0:
        if _stands_at(text, block, at, hunk):
            yield at
        at = lined.find(wanted, at + 1)


def _difference(hunk: Hunk, text: str, starts: list[int]) -> str:
    """Shows the text found instead: where the hunk says it is, else where its first line that is not empty stands."""
    wanted = hunk.before.split("\n")
    there = text.split("\n")
    first = next((at for at, line in enumerate(wanted) if line.strip()), 0)
    line = hunk.line if hunk.line <= len(starts) else 0
    if wanted[first] not in there[max(line - 1, 0) + first :][:1] or not line:
        line = there.index(wanted[first]) + 1 - first if wanted[first] in there else line
    if line < 1:
        return f"{_quoted(wanted[first])} does not stand in the file"
    for number, expected in enumerate(wanted[: hunk.before.count("\n") or 1], line):
        actual = there[number - 1] if number <= len(there) else None
        if actual is None or (number == len(there) and not actual):
            return f"line {number} should be {_quoted(expected)}, but the file has {counted(len(starts) - 1, 'line')}"
        if actual != expected:
            return f"line {number} should be {_quoted(expected)} and is {_quoted(actual)}"
    return f"the file does not end as the hunk says, at line {line + hunk.before.count(chr(10))}"


def _quoted(line: str) -> str:
    cut = line if len(line) <= _QUOTED_LENGTH_MAX else line[:_QUOTED_LENGTH_MAX] + "…"
    return repr(cut)
