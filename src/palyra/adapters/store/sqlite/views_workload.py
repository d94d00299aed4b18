"""Counts what is under way. Every count reads an index of unfinished things alone, however long the journal is."""

import apsw

from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.reads import Reads
from palyra.ports.telemetry import Workload

_RUNS = "SELECT state, count(*) FROM runs WHERE ended_seq IS NULL GROUP BY state"
_APPROVALS = "SELECT count(*) FROM approvals WHERE status = 'pending'"
_JOBS = """
    SELECT 'queued', count(*) FROM jobs WHERE state = 'queued'
    UNION ALL SELECT 'running', count(*) FROM jobs WHERE state = 'running'
    UNION ALL SELECT 'dead', count(*) FROM jobs WHERE state = 'dead'
"""
_OUTBOX = """
    SELECT state, count(*) FROM outbox WHERE state IN ('queued', 'sending') GROUP BY state
    UNION ALL SELECT state, count(*) FROM outbox WHERE state IN ('dead', 'uncertain') GROUP BY state
"""
_POSITION = "SELECT coalesce(max(position), 0) FROM events"


class SqliteWorkload:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def workload(self) -> Workload:
        return await self._reads.ask(_count)


def _count(connection: apsw.Connection) -> Workload:
    return Workload(
        runs=dict(fetch(connection, _RUNS)),
        jobs=dict(fetch(connection, _JOBS)),
        outbox=dict(fetch(connection, _OUTBOX)),
        approvals_pending=fetch(connection, _APPROVALS)[0][0],
        position=fetch(connection, _POSITION)[0][0],
    )
