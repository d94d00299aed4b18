"""Queries for the background queue."""

from collections.abc import Mapping
from typing import Any

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import fetch, page_limit
from palyra.adapters.store.sqlite.reads import Reads
from palyra.core.ids import JobId, Principal
from palyra.core.jobs.model import Job, JobState
from palyra.ports.jobs import JobCount, JobFilter

PRINCIPALS_MAX = 64  # Of these, each has its first jobs looked at; the others wait for the next look.
PRINCIPALS_SEEN_MAX = 10_000  # A kind has no more jobs than that, and so no more principals.


_EVER_MS = 2**63 - 1


class SqliteJobs:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def job(self, job_id: JobId) -> Job | None:
        found = await self._jobs("SELECT * FROM jobs WHERE id = ?", job_id)
        return found[0] if found else None

    async def list_jobs(self, principal: Principal | None, wanted: JobFilter) -> tuple[Job, ...]:
        # One principal's, dead and ended jobs are few among many, so their indexes are used: the conditions are spelled
        # as theirs are.
        is_own = ":principal IS NULL" if principal is None else "principal = :principal"
        is_in_state = "state = 'dead'" if wanted.state is JobState.DEAD else "(:state IS NULL OR state = :state)"
        order = "id DESC"
        if wanted.ended_before_ms is not None:
            is_in_state = f"{is_in_state} AND state NOT IN ('queued', 'running') AND updated_at_ms < :ended"
            order = "updated_at_ms"
        sql = f"""
            SELECT * FROM jobs
            WHERE {is_own} AND (:kind IS NULL OR kind = :kind)
                AND {is_in_state} AND (:after = '' OR id < :after)
            ORDER BY {order} LIMIT :limit
        """  # noqa: S608 - our words; every value is bound
        named = {
            "principal": principal,
            "kind": wanted.kind,
            "state": wanted.state.value if wanted.state is not None else None,
            "after": wanted.after,
            "limit": page_limit(wanted.limit),
            "ended": wanted.ended_before_ms,
        }
        found = await self._reads.ask(lambda connection: fetch(connection, sql, named))
        return tuple([_read(cells) for cells in found])

    async def due_jobs(self, wanted: Mapping[str, int], now_ms: int) -> tuple[Job, ...]:
        """Walks from principal to principal by the index, so that a long queue of one of them is not read."""

        def find(connection: apsw.Connection) -> tuple[Job, ...]:
            return tuple([job for kind, limit in wanted.items() for job in _due(connection, kind, now_ms, limit)])

        return await self._reads.ask(find)

    async def running_jobs(self, limit: int, before_ms: int | None = None) -> tuple[Job, ...]:
        sql = """
            SELECT * FROM jobs WHERE state = 'running' AND leased_until_ms < ?
            ORDER BY leased_until_ms LIMIT ?
        """
        return await self._jobs(sql, _EVER_MS if before_ms is None else before_ms, page_limit(limit))

    async def late_jobs(self, now_ms: int, limit: int) -> tuple[Job, ...]:
        sql = """
            SELECT * FROM jobs WHERE state = 'queued' AND expires_at_ms IS NOT NULL AND expires_at_ms <= ?
            ORDER BY expires_at_ms LIMIT ?
        """
        return await self._jobs(sql, now_ms, page_limit(limit))

    async def next_due_ms(self, after_ms: int) -> int | None:
        sql = "SELECT min(not_before_ms) FROM jobs WHERE state = 'queued' AND not_before_ms > ?"
        found = await self._reads.ask(lambda connection: fetch(connection, sql, (after_ms,)))
        next_ms: int | None = found[0][0]
        return next_ms

    async def count_queued(self, kind: str, principal: Principal | None, most: int) -> int:
        is_own = "" if principal is None else "AND principal = :principal"
        sql = f"""
            SELECT count(*) FROM (
                SELECT 1 FROM jobs INDEXED BY jobs_queued WHERE state = 'queued' AND kind = :kind {is_own} LIMIT :most
            )
        """  # noqa: S608 - our words; every value is bound
        named: dict[str, str | int | None] = {"kind": kind, "most": most}
        if principal is not None:
            named["principal"] = principal
        count: int = (await self._reads.ask(lambda connection: fetch(connection, sql, named)))[0][0]
        return count

    async def count_jobs(self) -> tuple[JobCount, ...]:
        sql = "SELECT kind, state, count(*) FROM jobs GROUP BY kind, state ORDER BY kind, state"
        found = await self._reads.ask(lambda connection: fetch(connection, sql, ()))
        return tuple([JobCount(kind=kind, state=JobState(state), count=count) for kind, state, count in found])

    async def _jobs(self, sql: str, *bindings: str | int) -> tuple[Job, ...]:
        found = await self._reads.ask(lambda connection: fetch(connection, sql, bindings))
        return tuple([_read(cells) for cells in found])


def _due(connection: apsw.Connection, kind: str, now_ms: int, limit: int) -> tuple[Job, ...]:
    jobs_sql = """
        SELECT * FROM jobs
        WHERE state = 'queued' AND kind = ? AND principal = ? AND not_before_ms <= ?
            AND (expires_at_ms IS NULL OR expires_at_ms > ?)
        ORDER BY priority DESC, not_before_ms, id LIMIT ?
    """
    found: list[Job] = []
    for principal in _due_principals(connection, kind, now_ms):
        found += map(_read, fetch(connection, jobs_sql, (kind, principal, now_ms, now_ms, limit)))
    return tuple(found)


def _due_principals(connection: apsw.Connection, kind: str, now_ms: int) -> list[str]:
    """Returns the principals that have a job due now, those whose first has waited longest, if they are too many."""
    sql = """
        SELECT principal, not_before_ms FROM jobs INDEXED BY jobs_by_turn
        WHERE state = 'queued' AND kind = ? AND principal > ? ORDER BY principal, not_before_ms LIMIT 1
    """
    due: list[tuple[int, str]] = []
    principal = ""
    for _ in range(PRINCIPALS_SEEN_MAX):
        rows = fetch(connection, sql, (kind, principal))
        if not rows:
            break
        principal, not_before_ms = rows[0]
        if not_before_ms <= now_ms:
            due.append((not_before_ms, principal))
    return [principal for _, principal in sorted(due)[:PRINCIPALS_MAX]]


def _read(cells: tuple[Any, ...]) -> Job:
    named = dict(zip(Job.__struct_fields__, cells, strict=True))
    named["payload"] = msgspec.json.decode(named["payload"])
    named["state"] = JobState(named["state"])
    return Job(**named)
