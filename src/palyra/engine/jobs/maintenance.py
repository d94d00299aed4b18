"""Maintenance of the journal beside a running daemon: its log, its unused space, old jobs,
expired memory, and a background verify.

Owns: what is done and in which steps. Does not own: how (ports.upkeep), when (upkeep).
The verify runs in a process of its own with limits, because it takes as long as the journal is.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from palyra.core.jobs.model import Job
from palyra.core.writes import DropJobs
from palyra.engine.jobs.handler import JobDone, JobFailed, JobResult, Report
from palyra.ports.clock import Clock
from palyra.ports.jobs import JobFilter, JobViews
from palyra.ports.journal import Journal
from palyra.ports.upkeep import JournalUpkeep

ENDED_JOBS_KEPT_MS = 7 * 86_400_000
STEP_BYTES = 4 * 1024 * 1024  # A step takes a few milliseconds, and commits wait only for one.
STEPS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUpkeep:
    """`kept_ms` says how long jobs of a kind stay after their end, by name. Those of other kinds stay a week.

    `forget_expired` removes memory items whose time is over, and returns how many there were.
    """

    upkeep: JournalUpkeep
    clock: Clock
    journal: Journal
    jobs: JobViews
    kept_ms: Mapping[str, int]
    forget_expired: Callable[[], Awaitable[int]]

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
        await self._forget_jobs()
        forgotten_count = await self.forget_expired()
        if forgotten_count:
            report(f"forgot {forgotten_count} memory items whose time was over")
        return JobDone()

    async def _forget_jobs(self) -> None:
        """Forgets ended jobs, each step in a commit of its own. What a crash leaves is forgotten the next time."""
        now_ms = self.clock.now_ms()
        drops = [DropJobs(now_ms - kept_ms, kind) for kind, kept_ms in self.kept_ms.items()]
        for drop in (DropJobs(now_ms - ENDED_JOBS_KEPT_MS), *drops):
            oldest = JobFilter(kind=drop.kind, ended_before_ms=drop.before_ms, limit=1)
            for _ in range(STEPS_MAX):
                if not await self.jobs.list_jobs(None, oldest):
                    break
                await self.journal.commit((), (drop,))


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
