"""The audit of a surviving journal. Owns: comparing what is there with what was acknowledged. Not: making it survive.

Laws held here: an acknowledged commit is there whole, with the same hashes and positions; any other is whole or absent,
and absent for good if it was refused; state tables hold exactly what the present commits wrote; the verifier finds
nothing; and the journal goes on.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from palyra.core.events import Event
from palyra.core.events.base import ErasedData
from palyra.core.events.system import Erased
from palyra.core.ids import StreamId, is_system_stream
from tests.crash.ledger import EPOCH_MS, Attempt, Ledger, Outcome, facts_of
from tests.crash.state import Tables, fold, key_of


class Wrong(Enum):
    LOST = "lost"  # An acknowledged commit is not there as it was acknowledged.
    TORN = "torn"  # Part of a commit is there.
    GHOST = "ghost"  # A refused commit is there.
    STATE = "state"  # A state table holds something else than the present commits wrote.
    ORDER = "order"  # Seqs have gaps or positions go back.
    VERIFY = "verify"  # The verifier found damage.
    STUCK = "stuck"  # The journal does not open, or does not go on.
    LIVE = "live"  # The running process saw something it must not see.


@dataclass(frozen=True, slots=True)
class Problem:
    wrong: Wrong
    what: str

    def __str__(self) -> str:
        return f"{self.wrong.value}: {self.what}"


@dataclass(frozen=True, slots=True)
class Survivors:
    """What was found in the journal."""

    events: Sequence[Event]
    tables: Tables


class Audit:
    """One comparison. `has_died`: the process ended while the disk was dead or failing, so that nobody could take back
    what had failed just before; it may have survived."""

    def __init__(self, survivors: Survivors, ledger: Ledger, *, has_died: bool) -> None:
        self._survivors = survivors
        self._ledger = ledger
        self._has_died = has_died
        self._by_position = {event.position: event for event in survivors.events}
        self._by_attempt: dict[int, list[Event]] = defaultdict(list)
        for event in survivors.events:
            if not is_system_stream(event.stream) or isinstance(event.data, Erased):
                self._by_attempt[event.at_ms - EPOCH_MS].append(event)

    def problems(self) -> list[Problem]:
        """All that is wrong. Afterwards no attempt of the ledger is unknown."""
        found = [*self._order(), *self._strangers()]
        present: list[tuple[int, Attempt]] = []
        for attempt in self._ledger.attempts():
            problems = list(self._attempt(attempt))
            found.extend(problems)
            if not problems and self._is_present(attempt):
                present.append((self._place(attempt), attempt))
        if any(problem.wrong in (Wrong.TORN, Wrong.LOST, Wrong.GHOST) for problem in found):
            return found  # What the tables should hold is no longer known.
        attempts = [attempt for _, attempt in sorted(present, key=lambda pair: pair[0])]
        found.extend(self._state(attempts))
        found.extend(self._erasures(attempts))
        self._settle()
        return found

    def _order(self) -> Iterator[Problem]:
        seqs: dict[StreamId, int] = defaultdict(int)
        last_position = 0
        for event in self._survivors.events:
            if event.position <= last_position:
                yield Problem(Wrong.ORDER, f"position {event.position} follows {last_position}")
            if event.seq != seqs[event.stream] + 1:
                yield Problem(Wrong.ORDER, f"tape {event.stream} goes from seq {seqs[event.stream]} to {event.seq}")
            last_position = event.position
            seqs[event.stream] = event.seq

    def _strangers(self) -> Iterator[Problem]:
        known = {attempt.number for attempt in self._ledger.attempts()}
        for number in sorted(set(self._by_attempt) - known):
            yield Problem(Wrong.GHOST, f"events of attempt {number}, which nobody made")

    def _attempt(self, attempt: Attempt) -> Iterator[Problem]:
        name = f"attempt {attempt.number} ({attempt.outcome.value})"
        if not self._is_whole(attempt) and not self._is_absent(attempt):
            yield Problem(Wrong.TORN, f"{name} is there in part: {self._counts(attempt)} of {attempt.event_counts}")
        elif attempt.outcome is Outcome.ACKNOWLEDGED:
            yield from self._acknowledged(attempt, name)
        elif self._must_be_absent(attempt) and not self._is_absent(attempt):
            yield Problem(Wrong.GHOST, f"{name} is there")

    def _acknowledged(self, attempt: Attempt, name: str) -> Iterator[Problem]:
        if self._is_absent(attempt) and (attempt.event_counts or attempt.writes):
            yield Problem(Wrong.LOST, f"{name} is gone")
            return
        for fact in attempt.facts:
            event = self._by_position.get(fact.position)
            if event is None:
                yield Problem(Wrong.LOST, f"{name} lacks position {fact.position}")
            elif facts_of([event]) != (fact,):
                yield Problem(Wrong.LOST, f"{name} has another event at position {fact.position}")

    def _state(self, present: Sequence[Attempt]) -> Iterator[Problem]:
        expected = fold(present)
        for table, rows in self._survivors.tables.items():
            wanted = expected[table]
            for key in sorted(rows.keys() | wanted.keys(), key=str):
                if rows.get(key) != wanted.get(key):
                    yield Problem(Wrong.STATE, f"{table} {key}: {_shape(rows.get(key))}, not {_shape(wanted.get(key))}")

    def _erasures(self, present: Sequence[Attempt]) -> Iterator[Problem]:
        """An erasure covers exactly what it named."""
        covered = {
            (attempt.erasing.stream, seq) for attempt in present if attempt.erasing for seq in attempt.erasing.seqs
        }
        for event in self._survivors.events:
            if isinstance(event.data, ErasedData) is not ((event.stream, event.seq) in covered):
                yield Problem(
                    Wrong.STATE, f"tape {event.stream} seq {event.seq}: erased is {isinstance(event.data, ErasedData)}"
                )

    def _settle(self) -> None:
        for attempt in self._ledger.attempts():
            if attempt.outcome in (Outcome.UNKNOWN, Outcome.FAILED):
                outcome = Outcome.ACKNOWLEDGED if self._is_present(attempt) else Outcome.REFUSED
                self._ledger.settle(attempt.number, outcome, facts_of(self._by_attempt[attempt.number]))

    def _must_be_absent(self, attempt: Attempt) -> bool:
        match attempt.outcome:
            case Outcome.REFUSED:
                return True
            case Outcome.FAILED:
                return attempt.is_overtaken or not self._has_died
            case _:
                return False

    def _is_present(self, attempt: Attempt) -> bool:
        return self._is_whole(attempt) and not self._is_absent(attempt)

    def _is_whole(self, attempt: Attempt) -> bool:
        if attempt.erasing is not None:
            return len(self._by_attempt[attempt.number]) == 1
        if attempt.event_counts:
            return self._counts(attempt) == attempt.event_counts
        return all(self._has_row(attempt))

    def _is_absent(self, attempt: Attempt) -> bool:
        if attempt.erasing is not None or attempt.event_counts:
            return not self._by_attempt[attempt.number]
        return not any(self._has_row(attempt))

    def _has_row(self, attempt: Attempt) -> list[bool]:
        """For a commit without events: which of its rows are there. Nobody else touches them."""
        keys = [key_of(write) for write in attempt.writes]
        return [key in self._survivors.tables[table] for table, key in keys]

    def _counts(self, attempt: Attempt) -> dict[StreamId, int]:
        counts: dict[StreamId, int] = defaultdict(int)
        for event in self._by_attempt[attempt.number]:
            counts[event.stream] += 1
        return dict(counts)

    def _place(self, attempt: Attempt) -> int:
        """Where it stands among the others; one without events stands anywhere."""
        return min((event.position for event in self._by_attempt[attempt.number]), default=0)


def _shape(row: tuple[object, ...] | None) -> str:
    """A row without long bytes."""
    if row is None:
        return "no row"
    return str(tuple(f"{len(value)} bytes" if isinstance(value, bytes) else value for value in row))
