"""Queries for the marks projection."""

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import MARKS
from palyra.core.ids import SessionId
from palyra.core.projections.marks import mark_row_id
from palyra.core.projections.rows import MarkKind, MarkRow


class SqliteMarks:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def mark(self, session_id: SessionId, name: str) -> MarkRow | None:
        row_id = mark_row_id(session_id, name)
        found = await self._reads.ask(lambda connection: MARKS.select(connection, MARKS.select_sql, (row_id,)))
        return found[0] if found else None

    async def made(self, session_id: SessionId, kind: MarkKind, after_seq: int, limit: int) -> tuple[MarkRow, ...]:
        sql = """
            SELECT * FROM marks WHERE session_id = ? AND kind = ? AND made_seq > ? ORDER BY made_seq LIMIT ?
        """
        bindings = (session_id, kind.value, after_seq, page_limit(limit))
        return await self._reads.ask(lambda connection: MARKS.select(connection, sql, bindings))

    async def count_made(self, session_id: SessionId, kind: MarkKind) -> int:
        sql = "SELECT count(*) FROM marks WHERE session_id = ? AND kind = ? AND made_seq > 0"
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (session_id, kind.value)))
        count: int = found[0][0]
        return count

    async def pins_at(self, session_id: SessionId, seq: int) -> tuple[MarkRow, ...]:
        sql = """
            SELECT * FROM marks WHERE session_id = :session AND kind = 'pin' AND made_seq <= :seq
                AND iif(made_seq = 0, removed_seq <= :seq, coalesce(removed_seq > :seq, 1))
            ORDER BY made_seq, id
        """
        bindings: dict[str, str | int | None] = {"session": session_id, "seq": seq}
        return await self._reads.ask(lambda connection: MARKS.select(connection, sql, bindings))
