"""The Queue port: reads the jobs that commits wrote.

Does not own: writing them (core.writes), nor who works on which (engine.jobs).
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from palyra.core.ids import JobId, Principal
from palyra.core.jobs.model import Job, JobState


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """With `ended_before_ms` only jobs that ended before it are listed, those that ended longest ago first."""

    kind: str | None = None
    state: JobState | None = None
    after: str = ""
    limit: int = 100
    ended_before_ms: int | None = None


class JobCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a kind are in a state."""

    kind: str
    state: JobState
    count: int


class JobViews(Protocol):
    async def job(self, job_id: JobId) -> Job | None: ...

    async def list_jobs(self, principal: Principal | None, wanted: JobFilter) -> tuple[Job, ...]:
        """Lists jobs by id, the newest first; `after` is the last id of the page before. None lists everyone's."""
        ...

    async def due_jobs(self, limits: Mapping[str, int], now_ms: int) -> tuple[Job, ...]:
        """Returns jobs that may begin now: of each kind that is named, up to its limit of each principal that has some.

        If too many principals have some, those that have waited longest come. A principal's own jobs come by priority,
        then by how long they have waited.
        """
        ...

    async def running_jobs(self, limit: int, before_ms: int | None = None) -> tuple[Job, ...]:
        """Returns running jobs, those with the oldest lease first; if given, only leases that ended before this."""
        ...

    async def late_jobs(self, now_ms: int, limit: int) -> tuple[Job, ...]:
        """Returns queued jobs whose time to begin is over."""
        ...

    async def next_due_ms(self, after_ms: int) -> int | None:
        """Returns when the next queued job becomes due after this time."""
        ...

    async def count_queued(self, kind: str, principal: Principal | None, most: int) -> int:
        """Counts the queued jobs of a kind, and of one principal if given, up to `most`."""
        ...

    async def count_jobs(self) -> tuple[JobCount, ...]:
        """Counts all jobs by kind and state."""
        ...
