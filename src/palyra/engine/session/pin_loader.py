"""Finds the pins of a session at one of its events.

Owns: reading them through the marks projection, those that a branch inherited included.
Does not own: the projection (core.projections.marks), pins in a window (core.context.pins).
Invariant: the amount read is bounded by the pins there are, never by the length of the tape (L10).
"""

from collections.abc import Sequence
from typing import NamedTuple

from palyra.core.context.pins import Pin, add_pin
from palyra.core.events import Event
from palyra.core.events.session import PinAdded
from palyra.core.ids import SessionId
from palyra.core.projections.marks import mark_name
from palyra.ports.journal import Journal
from palyra.ports.marks import MarkViews


class Tape(NamedTuple):
    """A tape that a window is made of: up to `last_seq`, after `base` events of its ancestors."""

    session_id: SessionId
    base: int
    last_seq: int


async def find_pins(journal: Journal, marks: MarkViews, tapes: Sequence[Tape]) -> tuple[Event, ...]:
    """Returns the `pin.added` events that the tapes leave, the oldest first. The youngest tape comes first."""
    removed: set[str] = set()
    found: list[Event] = []
    for tape in tapes:
        rows = await marks.pins_at(tape.session_id, tape.last_seq) if tape.last_seq else ()
        kept = [row for row in rows if row.made_seq and mark_name(row) not in removed]
        removed |= {mark_name(row) for row in rows if not row.made_seq}
        events = [event for row in kept for event in await journal.read(tape.session_id, row.made_seq - 1, 1)]
        found[:0] = [event for event in events if isinstance(event.data, PinAdded)]
    return tuple(found)


def pins_in(events: Sequence[Event]) -> tuple[Pin, ...]:
    pins: tuple[Pin, ...] = ()
    for event in events:
        if isinstance(event.data, PinAdded):
            pins = add_pin(pins, event.data, event.trust)
    return pins
