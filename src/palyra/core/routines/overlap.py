"""What happens to a due time while earlier runs of its routine go on.

Owns: the decision. Does not own: finding those runs, cancelling and starting (engine.routines.fire_handler).
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from palyra.core.ids import RunId
from palyra.core.routines.model import WAITING_RUNS_MAX, Overlap


class StartAfter(msgspec.Struct, frozen=True):
    """Start the run once these have been cancelled."""

    cancelled: tuple[RunId, ...] = ()


class SkipTime(msgspec.Struct, frozen=True):
    reason: str


def made_up_overlap(overlap: Overlap) -> Overlap:
    """Returns the rule for several missed times that are made up for at once.

    They come together, so each would be in the way of the next: `forbid` would skip all but one that were asked for.
    """
    return Overlap.QUEUE if overlap is Overlap.FORBID else overlap


def decide_overlap(overlap: Overlap, active: Sequence[RunId]) -> StartAfter | SkipTime:
    match overlap:
        case Overlap.FORBID:
            return SkipTime("overlap") if active else StartAfter()
        case Overlap.QUEUE:
            # The session runs one at a time, and keeps the others in order.
            return SkipTime("queue_full") if len(active) >= WAITING_RUNS_MAX else StartAfter()
        case Overlap.REPLACE:
            return StartAfter(tuple(active))
        case _:
            assert_never(overlap)
