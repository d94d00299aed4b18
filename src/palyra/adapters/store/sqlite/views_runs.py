"""Queries for runs and their spend, behind ports.views.RunViews.

Does not own: changing them.
A run is shown to the principal it was accepted for and to the owner of its session (L11).
"""

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.adapters.store.sqlite.rows import RUNS, USAGE
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.projections.rows import RunRow, UsageRow
from palyra.core.run.states import TERMINAL, RunState
from palyra.ports.views import RunFilter


class SqliteRuns:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def run(self, run_id: RunId, principal: Principal | None) -> RunRow | None:
        sql = """
            SELECT runs.* FROM runs JOIN sessions ON sessions.id = runs.session_id
            WHERE runs.id = :id AND (:principal IS NULL OR :principal IN (runs.principal, sessions.owner))
        """
        found = await self._reads.ask(lambda connection: _rows(connection, sql, id=run_id, principal=principal))
        return found[0] if found else None

    async def run_by_idempotency_key(self, key: str, principal: Principal) -> RunRow | None:
        sql = "SELECT * FROM runs WHERE principal = :principal AND idempotency_key = :key"
        found = await self._reads.ask(lambda connection: _rows(connection, sql, principal=principal, key=key))
        return found[0] if found else None

    async def runs(self, session_id: SessionId, after: str, limit: int) -> tuple[RunRow, ...]:
        sql = "SELECT * FROM runs WHERE session_id = :session_id AND id > :after ORDER BY id LIMIT :limit"
        return await self._reads.ask(
            lambda connection: _rows(connection, sql, session_id=session_id, after=after, limit=page_limit(limit))
        )

    async def unfinished(self, session_id: SessionId) -> tuple[RunRow, ...]:
        # Without the hint SQLite would walk all runs the session ever had. Unfinished ones are few in the whole
        # journal.
        sql = """
            SELECT * FROM runs INDEXED BY runs_unfinished
            WHERE ended_seq IS NULL AND session_id = :session_id ORDER BY accepted_seq
        """
        return await self._reads.ask(lambda connection: _rows(connection, sql, session_id=session_id))

    async def list_runs(self, principal: Principal | None, query: RunFilter) -> tuple[RunRow, ...]:
        sql = """
            SELECT runs.* FROM runs JOIN sessions ON sessions.id = runs.session_id
            WHERE (:principal IS NULL OR :principal IN (runs.principal, sessions.owner)) AND runs.id > :after
              AND (:has_services OR :session_id IS NOT NULL OR runs.origin <> 'service')
              AND (:has_delegated OR :session_id IS NOT NULL OR runs.parent_run_id IS NULL)
              AND (:session_id IS NULL OR runs.session_id = :session_id) AND (:state IS NULL OR runs.state = :state)
            ORDER BY runs.id LIMIT :limit
        """
        bindings: dict[str, str | int | None] = {
            "principal": principal,
            "session_id": query.session_id,
            "has_services": int(query.has_services),
            "has_delegated": int(query.has_delegated),
            "state": query.state.value if query.state is not None else None,
            "after": query.after,
            "limit": page_limit(query.limit),
        }
        return await self._reads.ask(lambda connection: _rows(connection, sql, **bindings))

    async def runs_in(self, states: frozenset[RunState], after: str, limit: int) -> tuple[RunRow, ...]:
        ended_too = """
            SELECT * FROM runs WHERE state IN (SELECT value FROM json_each(:states)) AND id > :after
            ORDER BY id LIMIT :limit
        """
        unfinished = """
            SELECT * FROM runs
            WHERE ended_seq IS NULL AND state IN (SELECT value FROM json_each(:states)) AND id > :after
            ORDER BY id LIMIT :limit
        """
        sql = ended_too if states & TERMINAL else unfinished
        names = msgspec.json.encode([state.value for state in states]).decode()
        return await self._reads.ask(
            lambda connection: _rows(connection, sql, states=names, after=after, limit=page_limit(limit))
        )

    async def children(self, run_id: RunId, principal: Principal | None) -> tuple[RunRow, ...]:
        sql = """
            SELECT * FROM runs WHERE parent_run_id = :id AND (:principal IS NULL OR principal = :principal)
            ORDER BY created_at_ms, id
        """
        return await self._reads.ask(lambda connection: _rows(connection, sql, id=run_id, principal=principal))

    async def usage(self, run_id: RunId) -> tuple[UsageRow, ...]:
        sql = "SELECT * FROM usage WHERE run_id = ? ORDER BY id"
        return await self._reads.ask(lambda connection: USAGE.select(connection, sql, (run_id,)))


def _rows(connection: apsw.Connection, sql: str, **bindings: str | int | None) -> tuple[RunRow, ...]:
    return RUNS.select(connection, sql, bindings)
