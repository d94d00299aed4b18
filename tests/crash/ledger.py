"""What a load tried and what came of it. Owns: attempts, their outcomes, their form on a pipe. Not: judging a journal (audit).

An attempt has a number that no other has; all its events carry it as their time, so that an event found later names
the attempt it belongs to.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from palyra.core import writes as core_writes
from palyra.core.events import Event
from palyra.core.ids import StreamId
from palyra.core.writes import Write

EPOCH_MS = 1_760_000_000_000


class Outcome(Enum):
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # A conflict: no part of it may ever be seen.
    FAILED = "failed"  # Refused for an error of the disk while the journal lived on: no part may be seen by it.
    UNKNOWN = "unknown"  # In flight when the disk or the process died: whole or absent.


class Fact(msgspec.Struct, frozen=True):
    """What an acknowledgement said of one event. The hash covers its bytes."""

    stream: StreamId
    seq: int
    position: int
    hash: str


class Erasing(msgspec.Struct, frozen=True):
    """Seqs of one tape. Erasing all of it takes the tape's artifact links with it."""

    stream: StreamId
    seqs: tuple[int, ...]
    is_whole: bool


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One call of commit, erase or checkpoint. A checkpoint's events are only known once it is acknowledged.

    A failed attempt is overtaken once a later one was acknowledged: from then on not even a crash may bring it back.
    """

    number: int
    event_counts: dict[StreamId, int]
    writes: tuple[Write, ...] = ()
    erasing: Erasing | None = None
    outcome: Outcome = Outcome.UNKNOWN
    facts: tuple[Fact, ...] = ()
    is_overtaken: bool = False

    @property
    def at_ms(self) -> int:
        return EPOCH_MS + self.number


class Ledger:
    """Attempts by number. An attempt is entered before it is made, so that a death in between leaves it unknown."""

    def __init__(self, attempts: Sequence[Attempt] = ()) -> None:
        self._attempts = {attempt.number: attempt for attempt in attempts}
        self._failed: list[int] = []

    def enter(self, attempt: Attempt) -> None:
        self._attempts[attempt.number] = attempt

    def settle(self, number: int, outcome: Outcome, facts: tuple[Fact, ...] = ()) -> None:
        self._attempts[number] = replace(self._attempts[number], outcome=outcome, facts=facts)
        if outcome is Outcome.FAILED:
            self._failed.append(number)
        if outcome is Outcome.ACKNOWLEDGED:
            while self._failed:
                overtaken = self._failed.pop()
                self._attempts[overtaken] = replace(self._attempts[overtaken], is_overtaken=True)

    def remove(self, number: int) -> None:
        del self._attempts[number]

    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(self._attempts.values())

    def count(self, outcome: Outcome) -> int:
        return sum(attempt.outcome is outcome for attempt in self._attempts.values())


class PipeLedger(Ledger):
    """A child's ledger: each line is on the pipe before the call goes on, so that a killed child has told all it knew."""

    def enter(self, attempt: Attempt) -> None:
        super().enter(attempt)
        print(encode_attempt(attempt), flush=True)

    def settle(self, number: int, outcome: Outcome, facts: tuple[Fact, ...] = ()) -> None:
        super().settle(number, outcome, facts)
        print(msgspec.json.encode(_Settled(number, outcome, facts)).decode(), flush=True)


def facts_of(events: Sequence[Event]) -> tuple[Fact, ...]:
    return tuple(Fact(event.stream, event.seq, event.position, event.hash) for event in events)


def encode_attempt(attempt: Attempt) -> str:
    writes = [(type(write).__name__, msgspec.to_builtins(write)) for write in attempt.writes]
    line = _Entered(attempt.number, attempt.event_counts, writes, attempt.erasing)
    return msgspec.json.encode(line).decode()


def read_line(line: str, ledger: Ledger) -> None:
    """Enters what one line of a PipeLedger says."""
    told = msgspec.json.decode(line, type=_Entered | _Settled)
    if isinstance(told, _Settled):
        ledger.settle(told.number, told.outcome, told.facts)
        return
    writes = tuple(msgspec.convert(members, getattr(core_writes, name)) for name, members in told.writes)
    ledger.enter(
        Attempt(number=told.number, event_counts=told.event_counts, writes=writes, erasing=told.erasing),
    )


class _Entered(msgspec.Struct, frozen=True, tag="entered"):
    number: int
    event_counts: dict[StreamId, int]
    writes: list[tuple[str, dict[str, object]]]
    erasing: Erasing | None


class _Settled(msgspec.Struct, frozen=True, tag="settled"):
    number: int
    outcome: Outcome
    facts: tuple[Fact, ...]
