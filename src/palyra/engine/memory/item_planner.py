"""Plans what stores or removes one item, for a caller that commits it together with something of its own.

Owns: duplicates, contradictions and secrets of such an item, and bringing back what it had superseded.
Does not own: the commit, junk and review, which learning has decided already; erasing tapes (eraser).
Nothing is stored by a call. Between the plan and its commit another item may be stored; the commit is a Conflict then.
"""

import asyncio
from dataclasses import dataclass
from typing import cast

import msgspec

from palyra.core.events import Data
from palyra.core.events.memory import MemoryForgotten, MemoryStored, MemorySuperseded
from palyra.core.ids import MemoryId, Principal
from palyra.core.memory.contradiction import find_contradicted
from palyra.core.memory.judge import SECRET
from palyra.core.memory.model import MemoryItem, MemoryQuery, MemoryStatus, ScopeFilter
from palyra.core.memory.text import is_near
from palyra.core.redaction import Redactor, find_markers
from palyra.core.redaction.markers import Json
from palyra.core.writes import EnqueueJob, ForgetMemory, PutMemory, RestoreMemory, SupersedeMemory, Write
from palyra.engine.memory.eraser import erasure_job
from palyra.engine.new_ids import IdSource
from palyra.ports.clock import Clock
from palyra.ports.memory import MemoryStores
from palyra.ports.memory_writer import MemoryChange

ALIKE_MAX = 20
ORIGIN = "learning"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlanner:
    stores: MemoryStores
    redactor: Redactor
    ids: IdSource
    clock: Clock

    async def put(self, item: MemoryItem) -> MemoryChange:
        """Returns what stores the item, and makes what it contradicts history."""
        if await asyncio.to_thread(holds_secret, self.redactor, item):
            return MemoryChange(memory_id=item.id, refusal=SECRET)
        scope = ScopeFilter(item.scope, item.scope_id)
        query = MemoryQuery(
            text=item.content, owner=item.owner, scopes=(scope,), limit=ALIKE_MAX, at_ms=self.clock.now_ms()
        )
        alike = [hit.item for hit in await self.stores.search.search_memory(query)]
        exact = await self.stores.views.memory_by_hash(item.content_hash, item.owner, scope)
        same = exact or next((other for other in alike if is_near(item.content, other.content)), None)
        if same is not None:
            return MemoryChange(memory_id=same.id)
        facts: list[Data] = [MemoryStored(owner=item.owner, memory_ids=(item.id,), origin=ORIGIN)]
        writes: list[Write] = []
        earlier = find_contradicted(item.content, item.kind, alike)
        if earlier is not None:
            named = {"memory_id": earlier.id, "superseded_by": item.id}
            facts.append(MemorySuperseded(owner=item.owner, reason="contradiction", **named))
            writes.append(SupersedeMemory(at_ms=item.created_at_ms, **named))
        return MemoryChange(memory_id=item.id, facts=tuple(facts), writes=(*writes, PutMemory((item,))))

    async def forget(self, owner: Principal, memory_id: MemoryId) -> MemoryChange:
        """Returns what removes the item and brings back what it had superseded. An unknown item needs no writes."""
        if await self.item(owner, memory_id) is None:
            return MemoryChange(memory_id=memory_id)
        fact = MemoryForgotten(owner=owner, memory_ids=(memory_id,), reason="undone")
        forgotten: list[Write] = [ForgetMemory((memory_id,))]
        if await self.stores.upkeep.mentions((memory_id,)):
            forgotten.append(EnqueueJob(erasure_job(self.ids, self.clock)))
        restored = [
            RestoreMemory(earlier.id, self.clock.now_ms()) for earlier in await self._superseded_by(owner, memory_id)
        ]
        return MemoryChange(memory_id=memory_id, facts=(fact,), writes=(*forgotten, *restored))

    async def item(self, owner: Principal, memory_id: MemoryId) -> MemoryItem | None:
        return await self.stores.views.memory(memory_id, owner)

    async def _superseded_by(self, owner: Principal, memory_id: MemoryId) -> list[MemoryItem]:
        """Returns the items that may be active again. One whose content is active elsewhere stays history."""
        found = [await self.item(owner, earlier) for earlier in await self.stores.upkeep.history(memory_id)]
        direct = [item for item in found if item is not None and item.superseded_by == memory_id]
        return [item for item in direct if not await self._is_active_elsewhere(item)]

    async def _is_active_elsewhere(self, item: MemoryItem) -> bool:
        scope = ScopeFilter(item.scope, item.scope_id)
        active = await self.stores.views.memory_by_hash(item.content_hash, item.owner, scope)
        return active is not None and active.status is MemoryStatus.ACTIVE


def holds_secret(redactor: Redactor, item: MemoryItem) -> bool:
    """Markers of secrets count too: they stand for nothing outside the run that had them."""
    if redactor.text(item.content).secrets or find_markers(item.content):
        return True
    beside = cast(Json, {"source": msgspec.to_builtins(item.source), "metadata": item.metadata})
    return bool(redactor.value(beside).secrets)
