"""The Journal port (JournalStore): what a store of tapes promises.

Does not own: how the promise is kept (adapters.store), queries of projections (views).
A commit is one transaction: all of its appends and writes, or none. It is acknowledged (the call returns) only when
it is durable (L3). If it fails, other commits that share its fsync are not affected.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from palyra.core.events import Draft, Event
from palyra.core.events.system import Head
from palyra.core.ids import Principal, StreamId
from palyra.core.writes import Fence, Write


class Append(msgspec.Struct, frozen=True):
    """Events to append after seq `expected_seq` of a tape. If the tape's head is another, the commit is a Conflict."""

    stream: StreamId
    expected_seq: int
    drafts: tuple[Draft, ...]


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What to erase: these seqs of one tape, or all of it.

    With `idle_before_ms`, only if the session has not been used since then: whoever looked may have looked too early.
    With `covers_branches`, seqs that branches share are erased although the branches stay: they lose the text too.
    """

    stream: StreamId
    seqs: tuple[int, ...] | None
    reason: str
    actor: Principal
    at_ms: int
    idle_before_ms: int | None = None
    covers_branches: bool = False


class Journal(Protocol):
    @property
    def is_open(self) -> bool:
        """False once nothing can be recorded any more: it was closed, or its writer ended."""
        ...

    async def commit(
        self, appends: Sequence[Append], writes: Sequence[Write] = (), fence: Fence | None = None
    ) -> tuple[Event, ...]:
        """Returns the recorded events in the order given.

        Raises Conflict if a head, a fence or a unique key differs from what was expected; nothing is written then.
        """
        ...

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        """Returns events of one tape with seq > after_seq, in order."""
        ...

    async def read_last(self, stream: StreamId, limit: int) -> tuple[Event, ...]:
        """Returns the last `limit` events of one tape, in order."""
        ...

    async def read_all(self, after_position: int, limit: int) -> tuple[Event, ...]:
        """Returns events of all tapes with position > after_position, in order of position; none is ever skipped."""
        ...

    async def head(self, stream: StreamId) -> Head | None: ...

    async def erase(self, erasures: Sequence[Erasure]) -> tuple[Event, ...]:
        """Erases, and records it on the system tape, in one transaction.

        Raises Conflict if a run is active, or if branches are left out.
        """
        ...

    async def checkpoint(self) -> tuple[Event, ...]:
        """Signs the heads changed since the last checkpoint; returns nothing when nothing changed."""
        ...

    async def close(self) -> None:
        """Finishes what was accepted, signs a last checkpoint, and closes."""
        ...
