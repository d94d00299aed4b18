"""Queries for routines and the times that came."""

from typing import Any

import msgspec

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.ids import Principal, RoutineId, RunId
from palyra.core.routines.model import Routine, RoutineDefinition, RoutineFire, RoutineFireView

_COLUMNS = """
    id, principal, definition, is_configured, is_paused, is_removed, next_at_ms, last_due_ms, fired_count,
    skipped_count, revision, created_at_ms, updated_at_ms
"""
_FIRE_COLUMNS = """
    fires.routine_id, fires.principal, fires.due_at_ms, fires.reason, fires.count, fires.is_manual, fires.job_id,
    fires.at_ms
"""
# A run is found by its idempotency key, so that it is found however its job ended.
_RUN_OF_FIRE = """
    runs.principal = fires.principal
    AND runs.idempotency_key = 'routine:' || fires.routine_id || ':' || fires.due_at_ms
"""
_DEFINITION = msgspec.json.Decoder(RoutineDefinition)


class SqliteRoutines:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def routine(self, routine_id: RoutineId) -> Routine | None:
        sql = f"SELECT {_COLUMNS} FROM routines WHERE id = ?"  # noqa: S608 - our names; every value is bound
        found = await self._routines(sql, routine_id)
        return found[0] if found else None

    async def list_routines(
        self, principal: Principal | None, after: str, limit: int, *, is_removed: bool = False
    ) -> tuple[Routine, ...]:
        sql = f"""
            SELECT {_COLUMNS} FROM routines WHERE is_removed = ? AND id > ? AND (? = '' OR principal = ?)
            ORDER BY id LIMIT ?
        """  # noqa: S608 - our names; every value is bound
        owner = principal or ""
        return await self._routines(sql, int(is_removed), after, owner, owner, page_limit(limit))

    async def count_routines(self, principal: Principal) -> int:
        sql = "SELECT count(*) FROM routines WHERE principal = ? AND is_removed = 0"
        count: int = (await self._reads.ask(lambda connection: fetch(connection, sql, (principal,))))[0][0]
        return count

    async def due_routines(self, now_ms: int, limit: int) -> tuple[Routine, ...]:
        sql = f"""
            SELECT {_COLUMNS} FROM routines
            WHERE next_at_ms IS NOT NULL AND is_paused = 0 AND is_removed = 0 AND next_at_ms <= ?
            ORDER BY next_at_ms LIMIT ?
        """  # noqa: S608 - our names; every value is bound
        return await self._routines(sql, now_ms, page_limit(limit))

    async def next_due_ms(self) -> int | None:
        sql = """
            SELECT min(next_at_ms) FROM routines
            WHERE next_at_ms IS NOT NULL AND is_paused = 0 AND is_removed = 0
        """
        next_ms: int | None = (await self._reads.ask(lambda connection: fetch(connection, sql, ())))[0][0]
        return next_ms

    async def active_runs(self, routine_id: RoutineId, principal: Principal) -> tuple[RunId, ...]:
        """Asks the runs themselves, because a history is bounded and a run may go on for longer than it reaches."""
        sql = """
            SELECT id FROM runs INDEXED BY runs_unfinished
            WHERE ended_seq IS NULL AND principal = ? AND idempotency_key >= ? AND idempotency_key < ? ORDER BY id
        """
        # A semicolon follows a colon, so these are the keys that begin with the routine's name.
        cells = (principal, f"routine:{routine_id}:", f"routine:{routine_id};")
        found = await self._reads.ask(lambda connection: fetch(connection, sql, cells))
        return tuple([RunId(cells[0]) for cells in found])

    async def fire(self, routine_id: RoutineId, due_at_ms: int) -> RoutineFire | None:
        sql = f"""
            SELECT {_FIRE_COLUMNS} FROM routine_fires AS fires WHERE routine_id = ? AND due_at_ms = ?
        """  # noqa: S608 - our names; every value is bound
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (routine_id, due_at_ms)))
        return _read_fire(found[0]) if found else None

    async def history(
        self, routine_id: RoutineId, principal: Principal, before_ms: int | None, limit: int
    ) -> tuple[RoutineFireView, ...]:
        sql = f"""
            SELECT {_FIRE_COLUMNS}, runs.id, runs.state, jobs.state, jobs.error FROM routine_fires AS fires
            LEFT JOIN runs ON {_RUN_OF_FIRE} LEFT JOIN jobs ON jobs.id = fires.job_id
            WHERE fires.routine_id = :id AND fires.principal = :principal AND (:before IS NULL OR fires.due_at_ms < :before)
            ORDER BY fires.due_at_ms DESC LIMIT :limit
        """  # noqa: S608 - our names; every value is bound
        cells: dict[str, str | int | None] = {
            "id": routine_id,
            "principal": principal,
            "before": before_ms,
            "limit": page_limit(limit),
        }
        found = await self._reads.ask(lambda connection: fetch(connection, sql, cells))
        return tuple([_read_view(row) for row in found])

    async def _routines(self, sql: str, *bindings: str | int) -> tuple[Routine, ...]:
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        return tuple([_read(cells) for cells in found])


def _read(cells: tuple[Any, ...]) -> Routine:
    named = dict(zip(Routine.__struct_fields__, cells, strict=True))
    named["definition"] = _DEFINITION.decode(named["definition"])
    for flag in ("is_configured", "is_paused", "is_removed"):
        named[flag] = bool(named[flag])
    return Routine(**named)


def _read_fire(cells: tuple[Any, ...]) -> RoutineFire:
    named = dict(zip(RoutineFire.__struct_fields__, cells, strict=True))
    return RoutineFire(**{**named, "is_manual": bool(named["is_manual"])})


def _read_view(cells: tuple[Any, ...]) -> RoutineFireView:
    count = len(RoutineFire.__struct_fields__)
    run_id, run_state, job_state, job_error = cells[count:]
    return RoutineFireView(
        fire=_read_fire(cells[:count]), run_id=run_id, run_state=run_state, job_state=job_state, job_error=job_error
    )
