"""Replay: folds a recorded run again and compares every decision.

Does not own: reading the tape.
Where a decision is due, the next event must be that decision; where none is due, it must be a fact. The first event
that differs shows that this release decides otherwise than the recording one, or that the tape was altered.
"""

from collections.abc import Iterable

import msgspec

from palyra.core.errors import Corrupt, Invalid
from palyra.core.events import Draft, Event
from palyra.core.events.tool import ToolFinished, ToolUncertain
from palyra.core.run.due import next_record
from palyra.core.run.fold import accept, fact_of, fold
from palyra.core.run.state import Run


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """`expected` is null where the tape records something that this release would not have recorded."""

    seq: int
    recorded: str
    expected: str | None
    what: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    run: Run | None
    events_count: int
    decisions_count: int
    difference: Difference | None


def replay(events: Iterable[Event]) -> Replayed:
    """Replays the events of one run, in order."""
    run: Run | None = None
    events_count = decisions_count = 0
    for event in events:
        fact = fact_of(event)
        expected = next_record(run, event.at_ms) if run is not None else None
        difference = _compare(event, expected)
        if difference is None:
            try:
                run = accept(fact) if run is None else fold(run, fact)
            except Invalid as cause:
                difference = _differs(event, expected, cause.message)
        if difference is not None:
            return _replayed(run, events_count, decisions_count, difference)
        events_count += 1
        decisions_count += expected is not None
    return _replayed(run, events_count, decisions_count, _unfinished(run))


def _compare(event: Event, expected: Draft | None) -> Difference | None:
    if expected is None or (expected.data == _unsigned(event) and expected.trust == event.trust):
        return None
    what = "another event is due here" if event.type != expected.data.TYPE else "the same event with other data is due"
    return _differs(event, expected, what)


def _unsigned(event: Event) -> object:
    """Returns the data as it was decided: the node signs a decided outcome after the decision."""
    if isinstance(event.data, ToolFinished | ToolUncertain):
        return msgspec.structs.replace(event.data, attestation=None)
    return event.data


def _differs(event: Event, expected: Draft | None, what: str) -> Difference:
    return Difference(seq=event.seq, recorded=event.type, expected=expected.data.TYPE if expected else None, what=what)


def _unfinished(run: Run | None) -> Difference | None:
    """Every commit includes its due decisions, so a tape that stops before one was cut."""
    if run is None:
        raise Corrupt("run_empty", "there is no event of this run to fold")
    expected = next_record(run, run.last_at_ms)
    if expected is None:
        return None
    return Difference(seq=0, recorded="", expected=expected.data.TYPE, what="the tape ends where a decision is due")


def _replayed(run: Run | None, events_count: int, decisions_count: int, difference: Difference | None) -> Replayed:
    return Replayed(run=run, events_count=events_count, decisions_count=decisions_count, difference=difference)
