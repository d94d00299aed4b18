"""Commits without a database: preparing them, and a store of dictionaries that a plan is made over."""

import msgspec

from palyra.core.chain import SALT_BYTES, prepare
from palyra.core.commit.lookup import LoadedState, Needed, needed_by
from palyra.core.commit.model import Commit, LastNumbers, PreparedAppend, TapeHead, UniqueKey
from palyra.core.commit.plan import CommitOutcome, CommitPlan
from palyra.core.errors import PalyraError
from palyra.core.events import Draft
from palyra.core.ids import StreamId
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import Row, RunRow, SessionRow
from palyra.core.writes import Fence, Write


def append(stream: StreamId, expected_seq: int, *drafts: Draft) -> PreparedAppend:
    seqs = range(expected_seq + 1, expected_seq + 1 + len(drafts))
    events = [prepare(stream, seq, draft, bytes(SALT_BYTES)) for seq, draft in zip(seqs, drafts, strict=True)]
    return PreparedAppend(stream, expected_seq, tuple(events))


def commit(*appends: PreparedAppend, writes: tuple[Write, ...] = (), fence: Fence | None = None) -> Commit:
    return Commit(appends, writes, fence)


class DictionaryStore:
    """Works as a store with an awaited database does: loads what a group needs, plans over that alone, stores it."""

    def __init__(self) -> None:
        self.last = LastNumbers(0, 0)
        self.heads: dict[StreamId, TapeHead] = {}
        self.rows: dict[RowKey, Row] = {}
        self.leases: dict[str, int] = {}

    def commit(self, *commits: Commit) -> list[CommitOutcome]:
        plan, outcomes = self.plan(*commits)
        self.last = plan.numbers()
        self.heads.update(plan.heads)
        self.rows.update({key: row for key, row in plan.rows.items() if row is not None})
        self.leases.update(plan.leases)
        return outcomes

    def plan(self, *commits: Commit) -> tuple[CommitPlan, list[CommitOutcome]]:
        plan = CommitPlan(self.loaded(needed_by(commits)))
        return plan, plan.add_all(commits)

    def refusal(self, *commits: Commit) -> str | None:
        """Returns the code of the last commit's refusal; the ones before it must pass."""
        *before, last = self.plan(*commits)[1]
        assert not any(isinstance(outcome, PalyraError) for outcome in before), before
        return last.code if isinstance(last, PalyraError) else None

    def loaded(self, needed: Needed) -> LoadedState:
        return LoadedState(
            last=self.last,
            heads={stream: head for stream, head in self.heads.items() if stream in needed.streams},
            rows={key: row for key, row in self.rows.items() if key in needed.rows},
            leases={name: token for name, token in self.leases.items() if name in needed.leases},
            taken=needed.unique_keys & self._taken(),
        )

    def everything(self) -> LoadedState:
        return LoadedState(
            last=self.last, heads=self.heads, rows=self.rows, leases=self.leases, taken=frozenset(self._taken())
        )

    def mark_erased(self, session: StreamId) -> None:
        key = RowKey(SessionRow, session)
        row = self.rows[key]
        assert isinstance(row, SessionRow)
        self.rows[key] = msgspec.structs.replace(row, is_erased=True)

    def _taken(self) -> set[UniqueKey]:
        taken = set()
        for row in self.rows.values():
            match row:
                case RunRow(principal=owner, idempotency_key=str(key)):
                    taken.add(UniqueKey(RunRow, owner, key))
                case SessionRow(owner=owner, key=str(key)):
                    taken.add(UniqueKey(SessionRow, owner, key))
        return taken
