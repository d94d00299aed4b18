"""The ports to remembered items: finding them, looking them up, and keeping one for a tool.

Does not own: changing them, which only commits do (core.writes).
Every question takes the principal it is asked for (L11).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from palyra.core.ids import MemoryId, Principal, StreamId
from palyra.core.memory.model import MemoryCounters, MemoryHit, MemoryItem, MemoryKind, MemoryQuery, ScopeFilter
from palyra.core.memory.wish import MemoryAdded, MemoryOrigin, NewMemory


class MemoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Which items are listed. No scope or kind means every one. Items that expired by `at_ms` are left out."""

    scopes: tuple[ScopeFilter, ...] = ()
    kinds: tuple[MemoryKind, ...] = ()
    has_superseded: bool = False
    after: str = ""
    limit: int = 100
    at_ms: int = 0


class MemoryKeeper(Protocol):
    """What a tool that retains items needs."""

    async def keep(self, owner: Principal, wish: NewMemory, origin: MemoryOrigin) -> MemoryAdded:
        """Judges an item, and stores it or hands it on for review. The same item twice is stored once."""
        ...


class MemorySearch(Protocol):
    async def search_memory(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        """Returns the best items first. Works by words alone while vectors are missing."""
        ...


class NoMemorySearch:
    """Used where there is no memory to search."""

    async def search_memory(self, query: MemoryQuery) -> tuple[MemoryHit, ...]:
        return ()


class MemoryViews(Protocol):
    async def memory(self, memory_id: MemoryId, owner: Principal) -> MemoryItem | None: ...

    async def memories(self, owner: Principal, page: MemoryPage) -> tuple[MemoryItem, ...]:
        """Returns items in the order of their ids, which is the order of creation."""
        ...

    async def memory_by_hash(self, content_hash: str, owner: Principal, scope: ScopeFilter) -> MemoryItem | None:
        """Returns the active item of exactly that normalised content."""
        ...

    async def memories_by_hash(self, content_hashes: Sequence[str], owner: Principal) -> tuple[MemoryItem, ...]:
        """Returns the active items of exactly these contents, in any scope of the owner."""
        ...

    async def counters(self, memory_id: MemoryId, owner: Principal) -> MemoryCounters | None: ...


class MemoryUpkeepViews(Protocol):
    """What keeping the store in order asks for. Nothing here shows content."""

    async def count_items(self, owner: Principal) -> int: ...

    async def scopes(self, owner: Principal) -> tuple[ScopeFilter, ...]:
        """Returns the scopes in which the owner has active items."""
        ...

    async def history(self, memory_id: MemoryId) -> tuple[MemoryId, ...]:
        """Returns the items that this one superseded, directly or through others, newest first."""
        ...

    async def expired(self, now_ms: int, limit: int) -> tuple[tuple[Principal, MemoryId], ...]: ...

    async def stray_mentions(self, limit: int) -> tuple[MemoryId, ...]:
        """Returns items that are forgotten, but whose content may still be on a tape."""
        ...

    async def mentions(self, memory_ids: Sequence[MemoryId]) -> "tuple[MemoryMention, ...]":
        """Returns the tapes that hold content of these items, each with the events that do."""
        ...


class MemoryMention(msgspec.Struct, frozen=True):
    """`seqs` may be empty: what a tape held was erased meanwhile."""

    stream: StreamId
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStores:
    """Everything by which a daemon reads remembered items."""

    views: MemoryViews
    upkeep: MemoryUpkeepViews
    search: MemorySearch


class MemoryReview(Protocol):
    """Takes items that a person has to look at before they are stored."""

    async def propose(self, item: MemoryItem, reason: str) -> None: ...


class NoReview:
    """Used while nobody reviews: such an item is not kept."""

    async def propose(self, item: MemoryItem, reason: str) -> None:
        """Drops the item."""
