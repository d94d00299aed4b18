"""Queries for sessions and their retention, behind ports.views.SessionViews. Does not own: changing them."""

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import SESSIONS
from palyra.core.ids import Principal, SessionId
from palyra.core.projections.rows import SessionRow

FAMILY_DEPTH_MAX = 1_000  # Bounds the query over branches of branches, far beyond what a person makes.


class SqliteSessions:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def session(self, session_id: SessionId, principal: Principal | None) -> SessionRow | None:
        sql = "SELECT * FROM sessions WHERE id = :id AND (:principal IS NULL OR owner = :principal)"
        found = await self._reads.ask(lambda connection: _rows(connection, sql, id=session_id, principal=principal))
        return found[0] if found else None

    async def session_by_key(self, key: str, principal: Principal) -> SessionRow | None:
        sql = "SELECT * FROM sessions WHERE owner = :principal AND key = :key"
        found = await self._reads.ask(lambda connection: _rows(connection, sql, principal=principal, key=key))
        return found[0] if found else None

    async def session_by_label(self, label: str, principal: Principal) -> SessionRow | None:
        sql = "SELECT * FROM sessions WHERE owner = :principal AND label = :label ORDER BY id DESC LIMIT 1"
        found = await self._reads.ask(lambda connection: _rows(connection, sql, principal=principal, label=label))
        return found[0] if found else None

    async def sessions(
        self, principal: Principal | None, after: str, limit: int, *, has_delegated: bool = False
    ) -> tuple[SessionRow, ...]:
        whose = "" if principal is None else "owner = :principal AND"
        which = "(purpose IS NULL OR purpose = 'delegation')" if has_delegated else "purpose IS NULL"
        sql = f"SELECT * FROM sessions WHERE {whose} {which} AND id > :after ORDER BY id LIMIT :limit"  # noqa: S608 - ours
        return await self._reads.ask(
            lambda connection: _rows(connection, sql, principal=principal, after=after, limit=page_limit(limit))
        )

    async def dependents(self, session_id: SessionId) -> tuple[SessionRow, ...]:
        sql = "SELECT * FROM sessions WHERE parent_id = :id OR serves = :id ORDER BY id"
        return await self._reads.ask(lambda connection: _rows(connection, sql, id=session_id))

    async def inactive_families(self, before_ms: int, limit: int) -> tuple[tuple[SessionId, ...], ...]:
        """Returns sessions with their branches, none of which was active since `before_ms`.

        They are to be erased together or not at all.
        """
        return await self._reads.ask(lambda connection: _inactive_families(connection, before_ms, limit))


def _inactive_families(connection: apsw.Connection, before_ms: int, limit: int) -> tuple[tuple[SessionId, ...], ...]:
    sql = """
        WITH RECURSIVE members (root, id, depth) AS (
            SELECT id, id, 0 FROM sessions
            WHERE coalesce(parent_id, serves) IS NULL
               OR coalesce(parent_id, serves) NOT IN (SELECT id FROM sessions)
            UNION ALL
            SELECT members.root, sessions.id, members.depth + 1
            FROM members JOIN sessions ON coalesce(sessions.parent_id, sessions.serves) = members.id
            WHERE members.depth < :depth_max
        )
        SELECT json_group_array(sessions.id ORDER BY members.depth, sessions.id)
        FROM members JOIN sessions ON sessions.id = members.id
        GROUP BY members.root
        HAVING max(sessions.updated_at_ms) < :before_ms
           AND min(sessions.is_erased) = 0
           AND max(sessions.id IN (SELECT session_id FROM runs WHERE ended_seq IS NULL)) = 0
        ORDER BY members.root LIMIT :limit
    """
    bindings: dict[str, str | int | None] = {
        "before_ms": before_ms,
        "limit": page_limit(limit),
        "depth_max": FAMILY_DEPTH_MAX,
    }
    families = [msgspec.json.decode(ids, type=tuple[SessionId, ...]) for (ids,) in fetch(connection, sql, bindings)]
    return tuple(families)


def _rows(connection: apsw.Connection, sql: str, **bindings: str | int | None) -> tuple[SessionRow, ...]:
    return SESSIONS.select(connection, sql, bindings)
