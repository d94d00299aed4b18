"""Queues the jobs that come back: session cleanup and maintenance.

Owns: how often each is due. Does not own: what they do.
Each has one live job at most, under its dedupe key. The job waits in the journal, so restarts neither repeat nor delay
it. The next one is queued when one of them ends, however it ended. A look every minute finds what was cancelled. Jobs
of other kinds end by the hundred a second, and nothing here follows from them.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import structlog

from palyra.core.errors import PalyraError
from palyra.core.ids import JobId, Principal
from palyra.core.jobs.model import LIVE_STATES
from palyra.engine.api.jobs import JobRequest
from palyra.ports.jobs import JobFilter, JobViews

LOOK_EVERY_S = 60.0
ACTOR = Principal("system:upkeep")

log = structlog.get_logger()


class RegularJob(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    every_ms: int


REGULAR_JOBS = (
    RegularJob(kind="session_cleanup", every_ms=3_600_000),
    RegularJob(kind="maintenance", every_ms=3_600_000),
    RegularJob(kind="verify", every_ms=86_400_000),
)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """`ended` is set when a regular job has ended. `views` tells what is queued, so that a look usually writes nothing."""

    enqueue: Callable[[JobRequest], Awaitable[JobId | None]]
    views: JobViews
    ended: asyncio.Event

    async def keep(self) -> None:
        """Queues what is missing now, after each end of such a job, and from time to time; never ends by itself."""
        while True:
            self.ended.clear()
            try:
                await self.queue_missing()
            except PalyraError as error:
                log.warning("upkeep_not_queued", code=error.code, message=error.message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self.ended.wait()

    async def queue_missing(self) -> None:
        live = {job.kind for state in LIVE_STATES for job in await self.views.list_jobs(ACTOR, JobFilter(state=state))}
        for regular in REGULAR_JOBS:
            if regular.kind in live:
                continue
            request = JobRequest(
                kind=regular.kind, principal=ACTOR, dedupe_key=regular.kind, delay_ms=regular.every_ms, priority=-10
            )
            await self.enqueue(request)
