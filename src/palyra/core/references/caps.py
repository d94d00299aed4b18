"""Cuts the content of references to their limits, so that a reader sees that it was cut.

Does not own: the limits themselves (model).
Invariants: nothing is longer than its limit, the note about the cut included. A cut never falls into a marker of a
secret.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from palyra.core.redaction.markers import MARKER
from palyra.core.references.model import TOTAL_CHARS_MAX, ResolvedReference, refused

NO_ROOM = "no_room"
ROOM_MIN = 200  # A shorter beginning of a text tells nothing.
_MARKER_LENGTH_MAX = 64
_NOTE = "\n[Cut here: there is more than the {count} characters shown.]"


def cut_text(text: str, chars_max: int, *, has_more: bool = False) -> tuple[str, bool]:
    """Returns at most so many characters, and whether something is left out. `has_more` says that something was."""
    if len(text) <= chars_max and not has_more:
        return text, False
    room = max(0, chars_max - len(_NOTE.format(count=chars_max)))
    kept = text[: _outside_marker(text, min(room, len(text)))]
    return f"{kept}{_NOTE.format(count=len(kept))}"[:chars_max], True


def fit_total(resolved: Iterable[ResolvedReference], total_max: int = TOTAL_CHARS_MAX) -> tuple[ResolvedReference, ...]:
    """Cuts what no longer fits into the limit of one message. What comes first stays whole."""
    left = total_max
    fitted: list[ResolvedReference] = []
    for each in resolved:
        one = each if each.chars <= left else _fitted(each, left)
        left -= one.chars
        fitted.append(one)
    return tuple(fitted)


def _fitted(resolved: ResolvedReference, left: int) -> ResolvedReference:
    if left < ROOM_MIN:
        warning = f"there is no room left: the references of one message have at most {TOTAL_CHARS_MAX} characters"
        return refused(resolved.reference, NO_ROOM, warning)
    text, _ = cut_text(resolved.text, left)
    return replace(resolved, text=text, is_cut=True)


def _outside_marker(text: str, at: int) -> int:
    """Returns the place itself, or the start of the marker around it."""
    first = max(0, at - _MARKER_LENGTH_MAX)
    for found in MARKER.finditer(text, first, min(len(text), at + _MARKER_LENGTH_MAX)):
        if found.start() < at < found.end():
            return found.start()
    return at
