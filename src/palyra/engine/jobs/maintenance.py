"""Maintenance of the journal beside a running daemon: its log, its unused space, old jobs, and a background verify.

Owns: what is done and in which steps. Does not own: how (ports.upkeep), when (upkeep).
The verify runs in a process of its own with limits, because it takes as long as the journal is.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palyra.core.jobs.model import Job
from palyra.core.writes import DropJobs
from palyra.engine.jobs.handler import JobDone, JobFailed, JobResult, Report
from palyra.ports.clock import Clock
from palyra.ports.upkeep import JournalUpkeep

ENDED_JOBS_KEPT_MS = 7 * 86_400_000
STEP_BYTES = 4 * 1024 * 1024  # A step takes a few milliseconds, and commits wait only for one.
STEPS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUpkeep:
    upkeep: JournalUpkeep
    clock: Clock

    async def perform(self, job: Job, report: Report) -> JobResult:
        """Empties the log, gives unused space back in small steps, and forgets jobs that ended long ago."""
        is_emptied = await self.upkeep.empty_log()
        given_bytes = 0
        for _ in range(STEPS_MAX):
            step_bytes = await self.upkeep.give_back(STEP_BYTES)
            given_bytes += step_bytes
            if step_bytes <= 0:
                break
            report(f"gave {given_bytes // 1024} KiB back to the disk")
        report(f"gave {given_bytes // 1024} KiB back; the log is {'empty' if is_emptied else 'still being read'}")
        return JobDone(writes=(DropJobs(self.clock.now_ms() - ENDED_JOBS_KEPT_MS),))


@dataclass(frozen=True, slots=True)
class BackgroundVerify:
    """`verify` checks the whole journal and returns the report that `palyra verify --json` prints."""

    verify: Callable[[], Awaitable[dict[str, object]]]

    async def perform(self, job: Job, report: Report) -> JobResult:
        report("checking the journal")
        found = await self.verify()
        if found.get("ok"):
            report("the journal is whole")
            return JobDone()
        message = f"the journal is damaged: {found.get('first_bad')}; run palyra verify, then restore a backup"
        return JobFailed(message=message, is_final=True)
