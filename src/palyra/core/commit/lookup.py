"""What a plan must know of a store, and how to learn it.

Owns: the look-ups a plan makes, the set of them that commits can need, and answering them from loaded values.
Does not own: the queries (each store), nor what follows from the answers (plan).

A store with a synchronous database answers each look-up when it is made. A store that must await its database calls
`needed_by`, loads everything with one query a kind, and plans over `LoadedState`.
Invariant: a plan never looks up what `needed_by` does not name.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from palyra.core.chain import GENESIS, recorded
from palyra.core.commit.model import NO_HEAD, Commit, LastNumbers, TapeHead, UniqueKey, parent_of, unique_key_of
from palyra.core.events import Event
from palyra.core.ids import StreamId
from palyra.core.projections.project import PROJECTED_TYPES, RowKey, keys_of
from palyra.core.projections.rows import Row, SessionRow
from palyra.core.writes import fence_of


class StoreLookup(Protocol):
    """The store as the last commit left it. An error raised here refuses only the commit that asked."""

    def numbers(self) -> LastNumbers: ...

    def head(self, stream: StreamId) -> TapeHead: ...

    def row(self, key: RowKey) -> Row | None: ...

    def lease_token(self, name: str) -> int:
        """The token last given out; 0 if the lease was never taken."""
        ...

    def is_taken(self, key: UniqueKey) -> bool: ...


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    streams: frozenset[StreamId]
    rows: frozenset[RowKey]
    leases: frozenset[str]
    unique_keys: frozenset[UniqueKey]


class LoadedState(msgspec.Struct, frozen=True, kw_only=True):
    """A StoreLookup over what was loaded. A tape, row, lease or key that is absent from it does not exist."""

    last: LastNumbers = LastNumbers(0, 0)
    heads: Mapping[StreamId, TapeHead] = {}
    rows: Mapping[RowKey, Row] = {}
    leases: Mapping[str, int] = {}
    taken: frozenset[UniqueKey] = frozenset()

    def numbers(self) -> LastNumbers:
        return self.last

    def head(self, stream: StreamId) -> TapeHead:
        return self.heads.get(stream, NO_HEAD)

    def row(self, key: RowKey) -> Row | None:
        return self.rows.get(key)

    def lease_token(self, name: str) -> int:
        return self.leases.get(name, 0)

    def is_taken(self, key: UniqueKey) -> bool:
        return key in self.taken


def needed_by(commits: Iterable[Commit]) -> Needed:
    """Everything that planning these commits may look up, whichever of them are refused."""
    commits = tuple(commits)
    appends = [append for commit in commits for append in commit.appends]
    # Which rows an event touches depends neither on its place nor on its hash, so both are left blank.
    events = [
        recorded(event, 0, GENESIS)
        for append in appends
        for event in append.events
        if event.header.type in PROJECTED_TYPES
    ]
    return Needed(
        streams=frozenset(append.stream for append in appends),
        rows=frozenset(key for event in events for key in _row_keys(event)),
        leases=frozenset(name for commit in commits for name in _lease_names(commit)),
        unique_keys=frozenset(key for event in events if (key := unique_key_of(event)) is not None),
    )


def _row_keys(event: Event) -> tuple[RowKey, ...]:
    parent = parent_of(event)
    return keys_of(event) if parent is None else (*keys_of(event), RowKey(SessionRow, parent))


def _lease_names(commit: Commit) -> list[str]:
    fences = [commit.fence, *map(fence_of, commit.writes)]
    return [fence.lease for fence in fences if fence is not None]
