"""Queues the jobs that come back: session cleanup and maintenance.

Owns: how often each is due. Does not own: what they do.
Each has one live job at most, under its dedupe key. The job waits in the journal, so restarts neither repeat nor delay
it. A look every hour queues the next one, also after a job that died.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import structlog

from palyra.core.errors import PalyraError
from palyra.core.ids import JobId, Principal
from palyra.engine.api.jobs import JobRequest

LOOK_EVERY_S = 600.0
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
    enqueue: Callable[[JobRequest], Awaitable[JobId | None]]

    async def keep(self) -> None:
        """Queues what is missing now and from time to time; never ends by itself."""
        while True:
            try:
                await self.queue_missing()
            except PalyraError as error:
                log.warning("upkeep_not_queued", code=error.code, message=error.message)
            await asyncio.sleep(LOOK_EVERY_S)

    async def queue_missing(self) -> None:
        for regular in REGULAR_JOBS:
            request = JobRequest(
                kind=regular.kind, principal=ACTOR, dedupe_key=regular.kind, delay_ms=regular.every_ms, priority=-10
            )
            await self.enqueue(request)
