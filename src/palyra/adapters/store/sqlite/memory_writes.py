"""Writes to the tables of remembered items: the SQL of each member of core.writes.MemoryWrite.

Does not own: what an index holds of an item (memory_index), queries (views_memory).
Invariant: an item and its index entries change in one transaction. Entries leave before their item does.
"""

from collections.abc import Sequence
from typing import assert_never

import apsw

from palyra.adapters.store.sqlite.connection import fetch, json_text
from palyra.adapters.store.sqlite.memory_index import drop_items, index_items
from palyra.adapters.store.sqlite.memory_rows import COLUMNS, read_item
from palyra.core.ids import MemoryId, StreamId
from palyra.core.memory.model import MemoryItem, MemoryStatus
from palyra.core.writes import (
    ForgetMemory,
    MemoryWrite,
    MentionMemory,
    PutMemory,
    RestoreMemory,
    SupersedeMemory,
    TouchMemory,
    UnmentionMemory,
)


def apply_memory_write(connection: apsw.Connection, write: MemoryWrite) -> None:
    match write:
        case PutMemory(items=items):
            _put(connection, items)
        case SupersedeMemory():
            _supersede(connection, write)
        case RestoreMemory(memory_id=memory_id, at_ms=at_ms):
            _restore(connection, memory_id, at_ms)
        case ForgetMemory(memory_ids=memory_ids):
            _forget(connection, memory_ids)
        case TouchMemory():
            _touch(connection, write)
        case MentionMemory(memory_ids=memory_ids, stream=stream):
            sql = "INSERT OR IGNORE INTO memory_mentions (memory_id, stream) VALUES (?, ?)"
            connection.executemany(sql, [(memory_id, stream) for memory_id in memory_ids])
        case UnmentionMemory(memory_ids=memory_ids, stream=stream):
            sql = "DELETE FROM memory_mentions WHERE memory_id = ? AND stream = ?"
            connection.executemany(sql, [(memory_id, stream) for memory_id in memory_ids])
        case _:
            assert_never(write)


def _put(connection: apsw.Connection, items: Sequence[MemoryItem]) -> None:
    sql = """
        INSERT INTO memory_items (
            id, owner, scope, scope_id, kind, content, content_hash, trust, taint, confidence_bps, source, metadata,
            created_at_ms, updated_at_ms, expires_at_ms, status, superseded_by, candidate_id
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    """
    connection.executemany(sql, [_cells(item) for item in items])
    index_items(connection, items)


def _cells(item: MemoryItem) -> tuple[str | int | None, ...]:
    where = (item.id, item.owner, item.scope.value, item.scope_id, item.kind.value)
    what = (item.content, item.content_hash, item.trust.value, json_text(item.taint), item.confidence_bps)
    times = (item.created_at_ms, item.updated_at_ms, item.expires_at_ms)
    state = (item.status.value, item.superseded_by, item.candidate_id)
    return (*where, *what, json_text(item.source), json_text(item.metadata), *times, *state)


def _supersede(connection: apsw.Connection, write: SupersedeMemory) -> None:
    drop_items(connection, (write.memory_id,))
    sql = "UPDATE memory_items SET status = 'superseded', superseded_by = ?, updated_at_ms = ? WHERE id = ?"
    connection.execute(sql, (write.superseded_by, write.at_ms, write.memory_id))


def _restore(connection: apsw.Connection, memory_id: MemoryId, at_ms: int) -> None:
    sql = (
        "UPDATE memory_items SET status = 'active', superseded_by = NULL, updated_at_ms = ? WHERE id = ? AND status = ?"
    )
    connection.execute(sql, (at_ms, memory_id, MemoryStatus.SUPERSEDED.value))
    if connection.changes():
        found = fetch(connection, f"SELECT {COLUMNS} FROM memory_items AS items WHERE id = ?", (memory_id,))  # noqa: S608
        index_items(connection, [read_item(cells) for cells in found])


def _forget(connection: apsw.Connection, memory_ids: Sequence[MemoryId]) -> None:
    """Overwrites the texts first: secure_delete clears pages that are freed, and this clears cells that are moved."""
    drop_items(connection, memory_ids)
    keys = [(memory_id,) for memory_id in memory_ids]
    blank = """
        UPDATE memory_items SET content = replace(hex(zeroblob(length(CAST(content AS BLOB)))), '00', '-'),
            source = replace(hex(zeroblob(length(CAST(source AS BLOB)))), '00', '-'),
            metadata = replace(hex(zeroblob(length(CAST(metadata AS BLOB)))), '00', '-'), status = 'superseded'
        WHERE id = ?
    """
    connection.executemany(blank, keys)
    connection.executemany("DELETE FROM memory_items WHERE id = ?", keys)


def forget_session(connection: apsw.Connection, stream: StreamId) -> None:
    """Deletes the items of a session that is erased whole."""
    sql = "SELECT id FROM memory_items WHERE scope = 'session' AND scope_id = ?"
    _forget(connection, [MemoryId(memory_id) for (memory_id,) in fetch(connection, sql, (stream,))])


def _touch(connection: apsw.Connection, write: TouchMemory) -> None:
    sql = "UPDATE memory_items SET uses_count = uses_count + 1, used_at_ms = ? WHERE id = ?"
    connection.executemany(sql, [(write.at_ms, memory_id) for memory_id in write.memory_ids])
