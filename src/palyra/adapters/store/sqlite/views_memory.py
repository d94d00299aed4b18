"""Queries for remembered items, behind ports.memory.

Does not own: finding items by what they say (memory_index).
Every query for content takes its owner (L11).
"""

from collections.abc import Sequence
from typing import Any

import apsw

from palyra.adapters.store.sqlite.connection import Bindings, fetch, json_text, page_limit
from palyra.adapters.store.sqlite.empty_table import EmptyTable
from palyra.adapters.store.sqlite.memory_rows import COLUMNS, read_item
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.ids import MemoryId, Principal, StreamId
from palyra.core.memory.model import MemoryCounters, MemoryItem, MemoryScope, ScopeFilter
from palyra.ports.memory import MemoryMention, MemoryPage

SCOPES_MAX = 1_000
HISTORY_MAX = 1_000
_NEXT_SCOPE = """
    SELECT scope, scope_id FROM memory_items INDEXED BY memory_active
    WHERE status = 'active' AND owner = ? AND (scope, scope_id) > (?, ?) ORDER BY scope, scope_id LIMIT 1
"""
_HISTORY = f"""
    WITH RECURSIVE earlier (id) AS (
        SELECT id FROM memory_items WHERE superseded_by = :id
        UNION SELECT items.id FROM memory_items AS items JOIN earlier ON items.superseded_by = earlier.id
    )
    SELECT id FROM earlier ORDER BY id DESC LIMIT {HISTORY_MAX}
"""  # noqa: S608 - our number
_MENTIONS = """
    SELECT mentions.stream, events.seq FROM memory_mentions AS mentions
    LEFT JOIN tapes ON tapes.stream = mentions.stream
    LEFT JOIN events ON events.tape_id = tapes.id AND events.salt IS NOT NULL
        AND events.type IN ('memory.recalled', 'tool.finished', 'reference.resolved')
        AND instr(CAST(events.data AS TEXT), mentions.memory_id)
    WHERE mentions.memory_id IN (SELECT value FROM json_each(?)) ORDER BY mentions.stream, events.seq
"""


class SqliteMemory:
    def __init__(self, reads: Reads, items: EmptyTable) -> None:
        self._reads = reads
        self._known_items = items

    async def memory(self, memory_id: MemoryId, owner: Principal) -> MemoryItem | None:
        sql = f"SELECT {COLUMNS} FROM memory_items AS items WHERE id = ? AND owner = ?"  # noqa: S608 - our names
        found = await self._items(sql, (memory_id, owner))
        return found[0] if found else None

    async def memories(self, owner: Principal, page: MemoryPage) -> tuple[MemoryItem, ...]:
        if await self._known_items.is_empty():
            return ()
        sql = f"""
            SELECT {COLUMNS} FROM memory_items AS items WHERE items.owner = :owner AND items.id > :after
                AND (items.expires_at_ms IS NULL OR items.expires_at_ms > :at_ms)
                AND (:has_superseded OR items.status = 'active')
                AND (:kinds = '[]' OR items.kind IN (SELECT value FROM json_each(:kinds)))
                AND (:scopes = '[]' OR (items.scope, items.scope_id) IN (
                    SELECT json_extract(value, '$.scope'), json_extract(value, '$.scope_id') FROM json_each(:scopes)
                ))
            ORDER BY items.id LIMIT :limit
        """  # noqa: S608 - our names; every value is bound
        bindings: dict[str, str | int | None] = {
            "owner": owner,
            "after": page.after,
            "has_superseded": int(page.has_superseded),
            "kinds": json_text(page.kinds),
            "scopes": json_text(page.scopes),
            "limit": page_limit(page.limit),
            "at_ms": page.at_ms,
        }
        return await self._items(sql, bindings)

    async def memory_by_hash(self, content_hash: str, owner: Principal, scope: ScopeFilter) -> MemoryItem | None:
        sql = f"""
            SELECT {COLUMNS} FROM memory_items AS items
            WHERE status = 'active' AND owner = ? AND scope = ? AND scope_id = ? AND content_hash = ?
        """  # noqa: S608 - our names; every value is bound
        found = await self._items(sql, (owner, scope.scope.value, scope.scope_id, content_hash))
        return found[0] if found else None

    async def memories_by_hash(self, content_hashes: Sequence[str], owner: Principal) -> tuple[MemoryItem, ...]:
        sql = f"""
            SELECT {COLUMNS} FROM json_each(:hashes) AS wanted
            CROSS JOIN memory_items AS items INDEXED BY memory_by_hash
            WHERE items.status = 'active' AND items.owner = :owner AND items.content_hash = wanted.value
        """  # noqa: S608 - our names; every value is bound
        return await self._items(sql, {"hashes": json_text(content_hashes), "owner": owner})

    async def counters(self, memory_id: MemoryId, owner: Principal) -> MemoryCounters | None:
        sql = "SELECT uses_count, used_at_ms FROM memory_items WHERE id = ? AND owner = ?"
        found = await self._fetch(sql, (memory_id, owner))
        return MemoryCounters(**dict(zip(MemoryCounters.__struct_fields__, found[0], strict=True))) if found else None

    async def count_items(self, owner: Principal) -> int:
        count: int = (await self._fetch("SELECT count(*) FROM memory_items WHERE owner = ?", (owner,)))[0][0]
        return count

    async def scopes(self, owner: Principal) -> tuple[ScopeFilter, ...]:
        return await self._reads.ask(lambda connection: _scopes(connection, owner))

    async def history(self, memory_id: MemoryId) -> tuple[MemoryId, ...]:
        return tuple([MemoryId(found) for (found,) in await self._fetch(_HISTORY, {"id": memory_id})])

    async def expired(self, now_ms: int, limit: int) -> tuple[tuple[Principal, MemoryId], ...]:
        sql = """
            SELECT owner, id FROM memory_items WHERE expires_at_ms IS NOT NULL AND expires_at_ms <= ?
            ORDER BY expires_at_ms LIMIT ?
        """
        found = await self._fetch(sql, (now_ms, page_limit(limit)))
        return tuple([(Principal(owner), MemoryId(memory_id)) for owner, memory_id in found])

    async def stray_mentions(self, limit: int) -> tuple[MemoryId, ...]:
        sql = """
            SELECT DISTINCT memory_id FROM memory_mentions
            WHERE memory_id NOT IN (SELECT id FROM memory_items) ORDER BY memory_id LIMIT ?
        """
        return tuple([MemoryId(found) for (found,) in await self._fetch(sql, (page_limit(limit),))])

    async def mentions(self, memory_ids: Sequence[MemoryId]) -> tuple[MemoryMention, ...]:
        streams: dict[str, set[int]] = {}
        for stream, seq in await self._fetch(_MENTIONS, (json_text(memory_ids),)):
            streams.setdefault(stream, set()).update(() if seq is None else (seq,))
        return tuple(MemoryMention(StreamId(stream), tuple(sorted(seqs))) for stream, seqs in streams.items())

    async def _items(self, sql: str, bindings: Bindings) -> tuple[MemoryItem, ...]:
        return tuple([read_item(cells) for cells in await self._fetch(sql, bindings)])

    async def _fetch(self, sql: str, bindings: Bindings) -> list[tuple[Any, ...]]:
        return await self._reads.ask(lambda connection: fetch(connection, sql, bindings))


def _scopes(connection: apsw.Connection, owner: Principal) -> tuple[ScopeFilter, ...]:
    """Jumps from one scope to the next, so that the number of items does not matter."""
    found: list[ScopeFilter] = []
    last = ("", "")
    while len(found) < SCOPES_MAX:
        rows = fetch(connection, _NEXT_SCOPE, (owner, *last))
        if not rows:
            break
        last = rows[0]
        found.append(ScopeFilter(MemoryScope(last[0]), last[1]))
    return tuple(found)
