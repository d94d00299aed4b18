"""Finds references in a text that a person wrote.

Does not own: what a reference means (calls), nor reading it.
A reference begins where a word begins: at the start, after white space, or after an opening bracket or quote. So an
e-mail address is none. Text between backticks and in fenced blocks of code is left alone. `@@` stands for the sign
itself. Punctuation behind a target belongs to the sentence, unless the target is in quotes.
Invariant: finding takes time in proportion to the text.
"""

import re
from bisect import bisect_right

from palyra.core.references.model import (
    LISTED_MAX,
    QUOTE_OPEN,
    REFERENCES_MAX,
    TARGET_LENGTH_MAX,
    TOO_LONG,
    TOO_MANY,
    WITHOUT_TARGET,
    Reference,
    ReferenceKind,
)

_KINDS = "|".join(kind.value for kind in ReferenceKind)
_BEGIN = re.compile(rf"(?<![^\s(\[{{<\"'\u201c\u2018«*,;|])@({_KINDS})(?!\w)")
_QUOTED = {'"': re.compile(r'"((?:[^"\\\n]|\\.){0,8192})"'), "'": re.compile(r"'((?:[^'\\\n]|\\.){0,8192})'")}
_WORD = re.compile(r"\S+")
_ESCAPE = re.compile(r"\\([\"'\\])")
# A reference without a target ends where its word ends. `@diff(x)` and `@diff/x` are something else.
_ENDED = re.compile(r"(?=$|\s|[.,;:!?)\]}>\"'\u201d\u2019»*|\u2026]+(?:$|\s|[@)\]}>\"'\u201d\u2019»*]))")
_FENCE = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_TICKS = re.compile(r"`+")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_PUNCTUATION = frozenset(".,;:!?\"'\u201d\u2019»*|\u2026\u3002\uff0c\u3001\uff01\uff1f\uff1b\uff1a")
_CLOSING = {")": "(", "]": "[", "}": "{", ">": "<"}

Span = tuple[int, int]


def parse_references(text: str) -> tuple[Reference, ...]:
    """Returns the references in order. Those beyond the limit have the problem `too_many`."""
    if "@" not in text:
        return ()
    code = _code_spans(text)
    starts = [start for start, _ in code]
    found: list[Reference] = []
    at = 0
    while len(found) < LISTED_MAX and (begun := _BEGIN.search(text, at)) is not None:
        at = begun.end()
        if _is_inside(begun.start(), code, starts):
            continue
        reference = _read(text, begun.start(), begun.end(), ReferenceKind(begun[1]))
        if reference is not None:
            at = reference.end
            found.append(reference if len(found) < REFERENCES_MAX else _with_problem(reference, TOO_MANY))
    return tuple(found)


def open_fence(text: str) -> str:
    """Returns the marks of the fenced block that a text leaves open; nothing if there is none."""
    _, opened = _fenced_blocks(text)
    return opened[1] if opened is not None else ""


def _read(text: str, start: int, end: int, kind: ReferenceKind) -> Reference | None:
    """Reads one reference whose kind ends at `end`; None if it is something else after all."""
    if text.startswith(":", end) and (target := _target(text, end + 1)) is not None:
        value, stop, problem = target
        if len(value) > TARGET_LENGTH_MAX:
            problem = TOO_LONG
        return Reference(raw=text[start:stop], kind=kind, target=value, start=start, end=stop, problem=problem)
    if kind in WITHOUT_TARGET and _ENDED.match(text, end):
        return Reference(raw=text[start:end], kind=kind, target=None, start=start, end=end)
    return None


def _target(text: str, at: int) -> tuple[str, int, str | None] | None:
    """Returns the target, where it ends, and its problem; None if there is none."""
    if text[at : at + 1] in _QUOTED:
        quoted = _QUOTED[text[at]].match(text, at)
        if quoted is not None:
            return (_ESCAPE.sub(r"\1", quoted[1]), quoted.end(), None) if quoted[1] else None
        word = _WORD.match(text, at)
        return (word[0][1:], word.end(), QUOTE_OPEN) if word is not None and len(word[0]) > 1 else None
    word = _WORD.match(text, at)
    value = _without_punctuation(word[0]) if word is not None else ""
    return (value, at + len(value), None) if value else None


def _without_punctuation(word: str) -> str:
    """Cuts what belongs to the sentence around it. A closing bracket stays if its opening one is in the word."""
    open_counts = {opening: word.count(opening) - word.count(closing) for closing, opening in _CLOSING.items()}
    end = len(word)
    while end:
        last = word[end - 1]
        opening = _CLOSING.get(last)
        if opening is not None and open_counts[opening] < 0:
            open_counts[opening] += 1
        elif last not in _PUNCTUATION or (last == "." and _is_dots(word, end)):
            break
        end -= 1
    return word[:end]


def _is_dots(word: str, end: int) -> bool:
    """Tells whether the last part of a path is `.` or `..`, which are folders and no full stop."""
    part_length = next((length for length in range(1, 4) if word[end - length - 1 : end - length] in ("", "/")), 4)
    return part_length <= 2 and set(word[end - part_length : end]) == {"."}


def _with_problem(reference: Reference, problem: str) -> Reference:
    return Reference(
        raw=reference.raw,
        kind=reference.kind,
        target=reference.target,
        start=reference.start,
        end=reference.end,
        problem=problem,
    )


def _is_inside(at: int, spans: list[Span], starts: list[int]) -> bool:
    index = bisect_right(starts, at) - 1
    return index >= 0 and at < spans[index][1]


def _code_spans(text: str) -> list[Span]:
    """Returns what is code, as Markdown has it: fenced blocks, and spans between equally long runs of backticks."""
    if "`" not in text and "~~~" not in text:
        return []
    blocks, opened = _fenced_blocks(text)
    if opened is not None:
        blocks.append((opened[0], len(text)))
    spans: list[Span] = []
    at = 0
    for start, end in [*blocks, (len(text), len(text))]:
        spans += _inline_spans(text, at, start)
        if end > start:
            spans.append((start, end))
        at = end
    return spans


def _fenced_blocks(text: str) -> tuple[list[Span], tuple[int, str] | None]:
    """Returns the closed blocks, and where an open one begins with its marks."""
    blocks: list[Span] = []
    opened: tuple[int, str] | None = None
    for line in _FENCE.finditer(text):
        marks, rest = line[1], line[2]
        if opened is None:
            if marks[0] == "~" or "`" not in rest:
                opened = (line.start(), marks)
        elif marks[0] == opened[1][0] and len(marks) >= len(opened[1]) and not rest.strip():
            blocks.append((opened[0], line.end()))
            opened = None
    return blocks, opened


def _inline_spans(text: str, start: int, end: int) -> list[Span]:
    spans: list[Span] = []
    for first, last in _paragraphs(text, start, end):
        runs = [(run.start(), run.end()) for run in _TICKS.finditer(text, first, last)]
        spans += _paired(runs)
    return spans


def _paragraphs(text: str, start: int, end: int) -> list[Span]:
    found: list[Span] = []
    at = start
    for gap in _PARAGRAPH_END.finditer(text, start, end):
        found.append((at, gap.start()))
        at = gap.end()
    return [*found, (at, end)]


def _paired(runs: list[Span]) -> list[Span]:
    """Pairs each run of backticks with the next one of the same length."""
    later: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[index][1] - runs[index][0], []).append(index)
    spans: list[Span] = []
    index = 0
    while index < len(runs):
        begin, end = runs[index]
        same = later[end - begin]
        while same and same[-1] <= index:
            same.pop()
        if same:
            spans.append((begin, runs[same[-1]][1]))
            index = same[-1]
        index += 1
    return spans
