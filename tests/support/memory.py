"""Remembered items for tests: one item in a word, and an engine's memory in short calls."""

from msgspec.structs import replace

from palyra.adapters.tools.memory_retain import MemoryRetain
from palyra.adapters.tools.memory_search import MemorySearchTool
from palyra.app.tools import LateMemory
from palyra.core.ids import MemoryId, Principal, make_ulid
from palyra.core.memory.model import MemoryItem, MemoryKind, MemoryScope, MemorySource
from palyra.core.memory.text import content_hash
from palyra.core.memory.wish import MemoryAdded, MemoryOrigin, NewMemory
from palyra.core.trust import Trust
from palyra.engine.engine import Engine
from tests.support.engines import OWNER, Workshop

AT_MS = 1_750_000_000_000


def item_of(content: str, number: int = 1, owner: Principal = OWNER, **fields: object) -> MemoryItem:
    item = MemoryItem(
        id=MemoryId(make_ulid(AT_MS, number.to_bytes(10, "big"))),
        owner=owner,
        scope=MemoryScope.PRINCIPAL,
        scope_id=owner,
        kind=MemoryKind.FACT,
        content=content,
        content_hash=content_hash(content, MemorySource()),
        trust=Trust.LOCAL,
        created_at_ms=AT_MS,
        updated_at_ms=AT_MS,
    )
    return replace(item, **fields)


def with_memory(shop: Workshop) -> LateMemory:
    """Gives a workshop both tools; the keeper is to be bound to the engine's memory once it is open."""
    keeper = LateMemory()
    shop.journal_tools = lambda journal, artifacts: [
        MemorySearchTool(journal.memory_search),
        MemoryRetain(keeper),
    ]
    return keeper


async def give(engine: Engine, *contents: str, owner: Principal = OWNER, **fields: object) -> list[MemoryAdded]:
    wishes = [NewMemory(content=content, **fields) for content in contents]  # type: ignore[arg-type]
    return list(await engine.memory.add(owner, wishes, MemoryOrigin(name="api", actor=owner)))


async def give_one(engine: Engine, content: str, owner: Principal = OWNER, **fields: object) -> MemoryId:
    (added,) = await give(engine, content, owner=owner, **fields)
    assert added.id is not None
    return added.id
