"""The write path of memory: what becomes of a text that somebody wants remembered.

Owns: the order of the rules, and the outcome. Does not own: finding earlier items (ports.memory), storing (core.writes).
Invariants: a secret is never stored. Nothing from a tainted run is stored without a person (L8). What a person adds is
stored as given; only secrets and exact duplicates are left out.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from palyra.core.memory.contradiction import find_contradicted
from palyra.core.memory.injection import looks_injected
from palyra.core.memory.junk import find_junk
from palyra.core.memory.model import MemoryItem
from palyra.core.memory.text import is_near, normalise
from palyra.core.trust import Trust, is_tainting, lowest


class MemoryOutcome(Enum):
    STORED = "stored"
    DUPLICATE = "duplicate"
    REVIEW = "review"
    REFUSED = "refused"


class MemoryVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`same` is the item that says the same already. `superseded` is the one whose place the new item takes."""

    outcome: MemoryOutcome
    reason: str = ""
    same: MemoryItem | None = None
    superseded: MemoryItem | None = None


STORED = MemoryVerdict(outcome=MemoryOutcome.STORED)
SECRET = "secret"  # noqa: S105 - a code, not a secret
EMPTY = "empty"


def judge_given(item: MemoryItem, same: MemoryItem | None, *, has_secret: bool) -> MemoryVerdict:
    """Judges an item that a person adds. `same` is the active item of exactly this content."""
    refusal = _refused(item, has_secret)
    return refusal or _same(same) or STORED


def judge_found(
    item: MemoryItem, same: MemoryItem | None, alike: Sequence[MemoryItem], *, has_secret: bool
) -> MemoryVerdict:
    """Judges an item that a model or a rule wants kept. `alike` are active items of its scope, best match first."""
    refusal = _refused(item, has_secret)
    if refusal is not None:
        return refusal
    junk = find_junk(item.content)
    if junk is not None:
        return MemoryVerdict(outcome=MemoryOutcome.REFUSED, reason=junk.value)
    near = same or next((other for other in alike if is_near(item.content, other.content)), None)
    duplicate = _same(near)
    if duplicate is not None:
        return duplicate
    if item.taint or is_tainting(item.trust):
        return MemoryVerdict(outcome=MemoryOutcome.REVIEW, reason="tainted")
    if looks_injected(item.content):
        return MemoryVerdict(outcome=MemoryOutcome.REVIEW, reason="injection")
    earlier = find_contradicted(item.content, item.kind, alike)
    if earlier is not None and _is_below(item.trust, earlier.trust):
        return MemoryVerdict(outcome=MemoryOutcome.REVIEW, reason="contradicts_trusted", superseded=earlier)
    return MemoryVerdict(outcome=MemoryOutcome.STORED, superseded=earlier)


def _refused(item: MemoryItem, has_secret: bool) -> MemoryVerdict | None:
    if has_secret:
        return MemoryVerdict(outcome=MemoryOutcome.REFUSED, reason=SECRET)
    if not normalise(item.content):
        return MemoryVerdict(outcome=MemoryOutcome.REFUSED, reason=EMPTY)
    return None


def _same(same: MemoryItem | None) -> MemoryVerdict | None:
    return None if same is None else MemoryVerdict(outcome=MemoryOutcome.DUPLICATE, reason="known", same=same)


def _is_below(trust: Trust, other: Trust) -> bool:
    return trust is not other and lowest((trust, other)) is trust
