"""Queues for tests: a worker on a real journal in a folder, with the handlers a test gives."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from palyra.adapters.clock import SystemClock
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from palyra.core.ids import JobId, Principal, derive_node_id
from palyra.core.jobs.model import Job, JobKind, JobState
from palyra.engine.api.jobs import JobRequest, JobService
from palyra.engine.hub import Hub
from palyra.engine.jobs.handler import JobDone, JobHandler, JobResult, JobType, Report
from palyra.engine.jobs.worker import JobWorker
from palyra.engine.new_ids import IdSource
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.clock import Clock
from tests.support.journals import FixedSigner
from tests.support.waiting import until

OWNER = Principal("user:owner")


class SetClock:
    """A clock that is set by hand."""

    def __init__(self, at_ms: int = 1_750_000_000_000) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms


@dataclass(slots=True)
class TestQueue:
    __test__ = False

    journal: SqliteJournal
    worker: JobWorker
    jobs: JobService
    tasks: TaskSupervisor

    async def add(self, kind: str, principal: Principal = OWNER, **fields: object) -> JobId:
        request = JobRequest(kind=kind, principal=principal, **fields)  # type: ignore[arg-type]
        job_id = await self.jobs.enqueue(request)
        assert job_id is not None
        return job_id

    async def job(self, job_id: JobId) -> Job:
        return await self.jobs.get(None, job_id)

    async def ended(self, job_id: JobId, state: JobState) -> Job:
        async def has_ended() -> bool:
            return (await self.job(job_id)).state is state

        await until(has_ended, f"the job's state {state.value}")
        return await self.job(job_id)


async def succeed(job: Job, report: Report) -> JobResult:
    return JobDone()


def job_type(name: str, handler: JobHandler = succeed, **limits: object) -> JobType:
    return JobType(JobKind(name=name, summary="for a test", **limits), handler)  # type: ignore[arg-type]


@asynccontextmanager
async def open_queue(
    folder: Path, types: Sequence[JobType], clock: Clock | None = None, *, is_working: bool = True
) -> AsyncIterator[TestQueue]:
    """Opens the queue; with `is_working` its worker runs until the end, and dies like a process that stops."""
    clock = clock or SystemClock()
    signer = FixedSigner()
    journal = open_journal(JournalSettings(path=folder / "journal.db"), signer, clock)
    tasks, queued, table = TaskSupervisor(), asyncio.Event(), {one.kind.name: one for one in types}
    worker = JobWorker(
        node=derive_node_id(signer.public_key),
        journal=journal,
        views=journal.jobs,
        hub=Hub(journal),
        clock=clock,
        tasks=tasks,
        types=table,
        clean=lambda text: text.replace("hunter2", "‹secret›"),
        queued=queued,
        chance=lambda: 0.0,
    )
    jobs = JobService(
        journal=journal,
        views=journal.jobs,
        ids=IdSource(clock),
        clock=clock,
        types=table,
        stop_attempt=worker.stop_attempt,
        wake=queued.set,
    )
    if is_working:
        tasks.spawn(worker.keep(), "jobs")
    try:
        yield TestQueue(journal, worker, jobs, tasks)
    finally:
        await tasks.close()
        await journal.close()
