"""Queries for the outbox."""

from typing import Any

import msgspec

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.channels.outbox import Button, OutboxFile, OutboxItem, OutboxKind, OutboxState

_COLUMNS = """
    id, channel, conversation_id, kind, text, created_at_ms, thread_id, reply_to, session_id, buttons, files, state,
    attempts, part, not_before_ms, error, message_ids, updated_at_ms, number
"""
_BUTTONS = msgspec.json.Decoder(tuple[Button, ...])
_FILES = msgspec.json.Decoder(tuple[OutboxFile, ...])
_IDS = msgspec.json.Decoder(tuple[str, ...])


class SqliteOutbox:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def item(self, item_id: str) -> OutboxItem | None:
        found = await self._items(f"SELECT {_COLUMNS} FROM outbox WHERE id = ?", item_id)  # noqa: S608 - our names
        return found[0] if found else None

    async def first_open(self, channel: str, conversation_id: str) -> OutboxItem | None:
        sql = f"""
            SELECT {_COLUMNS} FROM outbox
            WHERE state IN ('queued', 'sending') AND channel = ? AND conversation_id = ? ORDER BY number LIMIT 1
        """  # noqa: S608 - our names; every value is bound
        found = await self._items(sql, channel, conversation_id)
        return found[0] if found else None

    async def items(
        self, channel: str | None, states: tuple[OutboxState, ...], after: int, limit: int
    ) -> tuple[OutboxItem, ...]:
        sql = f"""
            SELECT {_COLUMNS} FROM outbox
            WHERE number > ? AND (? = '' OR channel = ?) AND state IN (SELECT value FROM json_each(?))
            ORDER BY number LIMIT ?
        """  # noqa: S608 - our names; every value is bound
        return await self._items(sql, after, channel or "", channel or "", _listed(states), page_limit(limit))

    async def count(self, channel: str, states: tuple[OutboxState, ...]) -> int:
        sql = "SELECT count(*) FROM outbox WHERE channel = ? AND state IN (SELECT value FROM json_each(?))"
        cells = (channel, _listed(states))
        count: int = (await self._reads.ask(lambda connection: fetch(connection, sql, cells)))[0][0]
        return count

    async def _items(self, sql: str, *bindings: str | int) -> tuple[OutboxItem, ...]:
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        return tuple([_read(cells) for cells in found])


def _listed(states: tuple[OutboxState, ...]) -> str:
    return msgspec.json.encode([state.value for state in states]).decode()


def _read(cells: tuple[Any, ...]) -> OutboxItem:
    named = dict(zip((name.strip() for name in _COLUMNS.split(",")), cells, strict=True))
    named["kind"], named["state"] = OutboxKind(named["kind"]), OutboxState(named["state"])
    named["buttons"], named["message_ids"] = _BUTTONS.decode(named["buttons"]), _IDS.decode(named["message_ids"])
    named["files"] = _FILES.decode(named["files"])
    return OutboxItem(**named)
