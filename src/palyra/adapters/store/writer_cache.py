"""Caches what the one writer of a journal knows between its groups.

Owns: bounded caches of heads, rows and leases, and the last numbers given out.
Does not own: the queries behind them (a store's own StoreLookup).
Invariants: everything here is as the last successful COMMIT left it, because a plan is settled only after COMMIT
returned. A value that is not here is looked up in the store. Opening looks up no more than the last numbers, however
long the journal is.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from palyra.core.commit.lookup import StoreLookup
from palyra.core.commit.model import LastNumbers, TapeHead, UniqueKey
from palyra.core.commit.plan import CommitPlan
from palyra.core.ids import StreamId
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import Row

# Each limit is more than the runs that one node works on at a time. Larger ones were measured no faster on a journal of
# 30,000 sessions that were written to at random. Twice as many entries may be held (`Recent`).
HEADS_MAX = 10_000  # About 300 bytes each, so at most 6 MB.
ROWS_MAX = 10_000  # About 950 bytes each, so at most 19 MB: the rows of sessions, runs and their usage.
LEASES_MAX = 10_000  # About 100 bytes each, so at most 2 MB.

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The values put most recently: at least the last `limit` keys and at most twice as many.

    It has two generations instead of an order. A whole group of changes goes in with one call, and dropping costs
    nothing.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._new: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        value = self._new.get(key)
        return self._old.get(key) if value is None else value

    def update(self, values: Mapping[Key, Value]) -> None:
        if len(self._new) + len(values) > self._limit:
            self._old = self._new
            self._new = {}
        self._new.update(values)

    def clear(self) -> None:
        self._new = {}
        self._old = {}


class WriterCache:
    """A StoreLookup in front of another."""

    def __init__(self, stored: StoreLookup) -> None:
        self._stored = stored
        self._heads: Recent[StreamId, TapeHead] = Recent(HEADS_MAX)
        self._rows: Recent[RowKey, Row] = Recent(ROWS_MAX)
        self._leases: Recent[str, int] = Recent(LEASES_MAX)
        self._numbers: LastNumbers | None = stored.numbers()

    def settle(self, plan: CommitPlan) -> None:
        """Takes over a plan after its COMMIT."""
        self._numbers = plan.numbers()
        self._heads.update(plan.heads)
        self._rows.update({key: row for key, row in plan.rows.items() if row is not None})
        self._leases.update(plan.leases)

    def forget(self, stored: StoreLookup) -> None:
        """Starts over from the store: after a failure, an erasure, or a row that should not have been there.

        It looks nothing up yet, so that it cannot fail: the next look-up fails if the disk does.
        """
        self._stored = stored
        self._heads.clear()
        self._rows.clear()
        self._leases.clear()
        self._numbers = None

    def numbers(self) -> LastNumbers:
        if self._numbers is None:
            self._numbers = self._stored.numbers()
        return self._numbers

    def head(self, stream: StreamId) -> TapeHead:
        head = self._heads.get(stream)
        if head is None:
            head = self._stored.head(stream)
            self._heads.update({stream: head})
        return head

    def row(self, key: RowKey) -> Row | None:
        row = self._rows.get(key)
        if row is None:
            row = self._stored.row(key)
            if row is not None:
                self._rows.update({key: row})
        return row

    def lease_token(self, name: str) -> int:
        token = self._leases.get(name)
        if token is None:
            token = self._stored.lease_token(name)
            self._leases.update({name: token})
        return token

    def is_taken(self, key: UniqueKey) -> bool:
        """Always asks the store: most keys are new, so there is nothing to cache."""
        return self._stored.is_taken(key)
