"""The records that redaction rules exchange, and how overlapping matches become one.

Does not own: the rules (scan and the modules it calls).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from palyra.core.redaction.markers import MARKER


class Span(NamedTuple):
    """A secret's place in a text."""

    start: int
    end: int
    kind: str


class Reading(NamedTuple):
    """The result of a rule at one place: the secret found, if any, as if the window were all, and where to continue.

    An open reading could change if the window were wider. The window may grow to at most `window_chars_max`, and over
    at most `line_breaks_max` line breaks at a time. Where that is not possible, the reading stands as it is.
    """

    resume_at: int
    span: Span | None = None
    is_open: bool = False
    line_breaks_max: int = 0
    window_chars_max: int = 4096


def merge_spans(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Yields the matches in order and without overlap or markers.

    Overlapping matches become one, named after the clearer.
    """
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            merged[-1] = _join(merged[-1], span)
        else:
            merged.append(span)
    for span in merged:
        yield from _cut_markers(text, span)


# A named value is often also a key of a known format, and then the format says more.
_VAGUE_KINDS = frozenset(
    "generic token secret api_key credential authorization password prefixed_token random_token query_token".split()
)


def _join(left: Span, right: Span) -> Span:
    kind = right.kind if left.kind in _VAGUE_KINDS and right.kind not in _VAGUE_KINDS else left.kind
    return Span(left.start, max(left.end, right.end), kind)


def _cut_markers(text: str, span: Span) -> Iterator[Span]:
    start = span.start
    if "‹" in text[span.start : span.end]:
        for marker in MARKER.finditer(text, span.start, span.end):
            if text[start : marker.start()].strip():
                yield Span(start, marker.start(), span.kind)
            start = marker.end()
    if text[start : span.end].strip():
        yield Span(start, span.end, span.kind)
