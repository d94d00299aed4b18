"""The MemoryWriter port: turns items into writes that are committed together with the candidate they came from.

Does not own: committing them (engine.learning), how items are stored and indexed.
Nothing is stored by a call of this port. What it returns is, in the commit of the caller, or not at all.
"""

from typing import Protocol

import msgspec

from palyra.core.events import Data
from palyra.core.ids import MemoryId, Principal
from palyra.core.memory.model import MemoryItem
from palyra.core.writes import Write


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """What stores or forgets an item: facts for the system tape, and writes.

    `memory_id` is the item that holds the content then: an equal one that was there already, or the new one.
    `refusal` says why the item cannot be stored; there are no writes then.
    """

    memory_id: MemoryId
    facts: tuple[Data, ...] = ()
    writes: tuple[Write, ...] = ()
    refusal: str = ""


class MemoryWriter(Protocol):
    async def put(self, item: MemoryItem) -> MemoryChange:
        """Returns what stores the item. Secrets, contradictions and duplicates are for the writer to judge."""
        ...

    async def forget(self, owner: Principal, memory_id: MemoryId) -> MemoryChange:
        """Returns what removes the item, and brings back what it had superseded. An unknown item needs no writes."""
        ...

    async def item(self, owner: Principal, memory_id: MemoryId) -> MemoryItem | None: ...
