"""Reads remembered items for `@memory:` references (L11).

Does not own: judging the reference (reference_judge), ranking (ports.memory).
What follows the colon is the id of an item, or words to look for.
"""

from dataclasses import dataclass

from palyra.core.errors import Invalid, NotFound
from palyra.core.ids import MemoryId, Principal, parse_memory_id
from palyra.core.memory.model import QUERY_LENGTH_MAX, MemoryItem, MemoryQuery, MemoryStatus
from palyra.core.memory.reach import channel_of, scopes_of_run
from palyra.core.taint import label
from palyra.core.trust import is_tainting, lowest
from palyra.engine.session.reference_judge import ReferenceSender
from palyra.ports.clock import Clock
from palyra.ports.memory import MemoryStores
from palyra.ports.references import ReferenceText, TextPart

HITS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReader:
    stores: MemoryStores
    clock: Clock

    async def read_memory(self, target: str, sender: ReferenceSender) -> ReferenceText:
        principal = sender.principal
        memory_id = _id_in(target)
        item = None if memory_id is None else await self._item(memory_id, principal)
        if item is not None:
            return _text_of((item,))
        query = MemoryQuery(
            text=target[:QUERY_LENGTH_MAX],
            owner=principal,
            scopes=scopes_of_run(principal, sender.session_id, sender.agent.name, channel_of(sender.channel)),
            limit=HITS_MAX,
            at_ms=self.clock.now_ms(),
        )
        found = tuple(hit.item for hit in await self.stores.search.search_memory(query))
        if not found:
            raise NotFound("memory_unknown", "nothing is remembered about this")
        return _text_of(found)

    async def _item(self, memory_id: MemoryId, principal: Principal) -> MemoryItem | None:
        item = await self.stores.views.memory(memory_id, principal)
        if item is None or item.status is not MemoryStatus.ACTIVE:
            return None
        is_over = item.expires_at_ms is not None and item.expires_at_ms <= self.clock.now_ms()
        return None if is_over else item


def _id_in(target: str) -> MemoryId | None:
    try:
        return parse_memory_id(target)
    except Invalid:
        return None


def _text_of(items: tuple[MemoryItem, ...]) -> ReferenceText:
    sources = dict.fromkeys(
        source for item in items if is_tainting(item.trust) for source in item.taint or (label("memory", item.id),)
    )
    return ReferenceText(
        parts=tuple(TextPart(text=item.content, title=f"{item.kind.value} {item.id}") for item in items),
        trust=lowest(item.trust for item in items),
        source=next(iter(sources), None),
        sources=tuple(sources) if len(sources) > 1 else (),
        memory_ids=tuple(item.id for item in items),
    )
