"""Queries for the incidents projection."""

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import INCIDENTS
from palyra.core.healing.model import IncidentStatus
from palyra.core.ids import IncidentId
from palyra.core.projections.rows import IncidentRow


class SqliteIncidents:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def incident(self, incident_id: IncidentId) -> IncidentRow | None:
        sql = INCIDENTS.select_sql
        found = await self._reads.ask(lambda connection: INCIDENTS.select(connection, sql, (incident_id,)))
        return found[0] if found else None

    async def list_incidents(self, status: IncidentStatus | None, after: str, limit: int) -> tuple[IncidentRow, ...]:
        sql = """
            SELECT * FROM incidents WHERE (:status IS NULL OR status = :status) AND (:after = '' OR id < :after)
            ORDER BY id DESC LIMIT :limit
        """
        bindings: dict[str, str | int | None] = {
            "status": status.value if status is not None else None,
            "after": after,
            "limit": page_limit(limit),
        }
        return await self._reads.ask(lambda connection: INCIDENTS.select(connection, sql, bindings))

    async def current_incidents(self, since_ms: int, limit: int) -> tuple[IncidentRow, ...]:
        sql = """
            SELECT * FROM (SELECT * FROM incidents WHERE status = 'open' ORDER BY id LIMIT :limit)
            UNION ALL
            SELECT * FROM (
                SELECT * FROM incidents WHERE status = 'resolved' AND resolved_at_ms >= :since
                ORDER BY resolved_at_ms DESC LIMIT :limit
            )
            LIMIT :limit
        """
        bindings: dict[str, str | int | None] = {"since": since_ms, "limit": page_limit(limit)}
        return await self._reads.ask(lambda connection: INCIDENTS.select(connection, sql, bindings))

    async def count_open(self) -> int:
        sql = "SELECT count(*) FROM incidents WHERE status = 'open'"
        found = await self._reads.ask(lambda connection: fetch(connection, sql))
        count: int = found[0][0]
        return count
