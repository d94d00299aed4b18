"""The worker of the background queue.

Owns: claiming jobs that are due, performing them, renewing their leases, and recording their ends.
Does not own: rules (core.jobs), what a job does (its handler), other nodes' jobs while their leases hold.
Invariants: a job's end and what its handler returned are one commit, under the job's token. A worker that lost a job
records nothing about it. No more than a kind's `at_once_max` of its jobs run here.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom

import structlog
from msgspec.structs import replace

from palyra.core.errors import Conflict, PalyraError
from palyra.core.ids import JobId, NodeId, Principal
from palyra.core.jobs.fairness import choose
from palyra.core.jobs.model import ERROR_LENGTH_MAX, LOOK_EVERY_MS, PROGRESS_LENGTH_MAX, Job, JobState, lease_name
from palyra.core.jobs.retry import loss_delay_ms, retry_delay_ms
from palyra.core.writes import ClaimJob, EndJob, Fence, RenewJob, RequeueCause, RequeueJob, Write
from palyra.engine.hub import Hub
from palyra.engine.jobs.handler import JobDone, JobFailed, JobHandler, JobPostponed, JobResult, JobType, Report
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.clock import Clock
from palyra.ports.jobs import JobViews
from palyra.ports.journal import Append, Journal

POLL_EVERY_S = LOOK_EVERY_MS / 1000
RENEW_EVERY_S = 15.0
STOP_WAIT_S = 5.0  # A handler that does not stop by then is left behind. Its token is taken, so it can record nothing.
PAGE_JOBS = 500

JobChange = ClaimJob | RenewJob | RequeueJob | EndJob

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job that this worker performs. `attempt` is None until its handler has begun."""

    job: Job
    lease_ms: int
    progress: str = ""
    progress_at_ms: int = 0
    attempt: "asyncio.Task[JobResult] | None" = None


@dataclass(slots=True, kw_only=True)
class JobWorker:
    """`clean` redacts a text before it is stored. `queued` is set when a job was queued or a place became free.

    While the daemon drains, no job begins. Those that run go on. `ended` is set after each end of a job of the `regular`
    kinds, whose next one somebody queues then.
    """

    node: NodeId
    journal: Journal
    views: JobViews
    hub: Hub
    clock: Clock
    tasks: TaskSupervisor
    types: Mapping[str, JobType]
    clean: Callable[[str], str]
    queued: asyncio.Event
    regular: frozenset[str] = frozenset()
    chance: Callable[[], float] = SystemRandom().random
    is_draining: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _running: dict[JobId, RunningJob] = field(default_factory=dict)

    @property
    def running(self) -> tuple[RunningJob, ...]:
        return tuple(self._running.values())

    async def keep(self) -> None:
        """Works until it is cancelled. What an earlier process of this node had begun goes back to the queue first."""
        await self._until_done(self._take_back)
        renewing = self.tasks.spawn(self._renew_regularly(), "job leases")
        try:
            while True:
                self.queued.clear()
                await self._wait(await self._until_done(self._step))
        finally:
            renewing.cancel()

    def stop_attempt(self, job_id: JobId) -> bool:
        """Stops the handler of a job here. If the job is still this worker's, the attempt counts as failed."""
        running = self._running.get(job_id)
        if running is None or running.attempt is None:
            return False
        running.attempt.cancel()
        return True

    async def take_from(self, job: Job) -> bool:
        """Puts a job back whose holder is lost or hangs. False if the job has changed hands meanwhile."""
        refused = await self._commit_each([self._lost(job)])
        self.stop_attempt(job.id)
        self.queued.set()
        return not refused

    async def renew(self) -> None:
        """Renews the leases of all jobs that run here, in one commit. A job that was lost is stopped."""
        now_ms = self.clock.now_ms()
        writes = [_renewal(running, now_ms) for running in self._running.values()]
        for write in await self._commit_each(writes):
            self.stop_attempt(write.job_id)

    async def _wait(self, timeout_s: float) -> None:
        """Waits until a job is queued or a place is free, but no longer than this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.queued.wait()

    async def _renew_regularly(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                await self.renew()
            except PalyraError as error:
                log.warning("job_leases_not_renewed", code=error.code, message=error.message)

    async def _until_done(self, work: Callable[[], Awaitable[float]]) -> float:
        """Repeats a step that the disk did not let happen."""
        while True:
            try:
                return await work()
            except PalyraError as error:
                log.warning("queue_step_failed", code=error.code, message=error.message)
                await asyncio.sleep(POLL_EVERY_S)

    async def _take_back(self) -> float:
        """Requeues what an earlier process of this node held: it is not running any more, whatever its lease says."""
        while True:
            held = [
                job
                for job in await self.views.running_jobs(PAGE_JOBS)
                if job.owner == self.node and job.id not in self._running
            ]
            if not held:
                return 0.0
            await self._commit_each([self._lost(job) for job in held])

    async def _step(self) -> float:
        """Ends late jobs, takes back lost ones, begins due ones. Returns how long to wait for the next step."""
        now_ms = self.clock.now_ms()
        late = await self.views.late_jobs(now_ms, PAGE_JOBS)
        expired = [_end(job, JobState.EXPIRED, "its time to begin was over", now_ms) for job in late]
        lost = [job for job in await self.views.running_jobs(PAGE_JOBS, now_ms) if job.id not in self._running]
        await self._commit_each([*expired, *map(self._lost, lost)])
        is_full = await self._begin_due(now_ms)
        next_ms = await self.views.next_due_ms(now_ms)
        wait_ms = POLL_EVERY_S * 1000 if next_ms is None else min(POLL_EVERY_S * 1000, max(0, next_ms - now_ms))
        # A full worker is woken by the first job that ends.
        return POLL_EVERY_S if is_full else wait_ms / 1000

    async def _begin_due(self, now_ms: int) -> bool:
        """Claims and begins due jobs. Returns whether a kind is full, or nothing may begin."""
        if self.is_draining:
            return True
        counts = Counter(running.job.kind for running in self._running.values())
        free = {name: kind.at_once_max - counts[name] for name, (kind, _) in self.types.items()}
        free = {name: count for name, count in free.items() if count > 0}
        is_full = len(free) < len(self.types)
        due = await self.views.due_jobs(free, now_ms)
        claims: list[tuple[Job, ClaimJob]] = []
        for name, free_count in free.items():
            lease_ms = int(self.types[name][0].lease_s * 1000)
            chosen = choose([job for job in due if job.kind == name], self._shares(name), free_count)
            claims += [(job, _claim(job, self.node, now_ms, lease_ms)) for job in chosen]
        refused = {write.job_id for write in await self._commit_each([claim for _, claim in claims])}
        for job, claim in claims:
            if job.id not in refused:
                self._begin(job, claim)
        return is_full

    def _begin(self, job: Job, claim: ClaimJob) -> None:
        kind, _ = self.types[job.kind]
        mine = _claimed(job, claim)
        running = RunningJob(mine, int(kind.lease_s * 1000), progress_at_ms=claim.at_ms)
        self._running[job.id] = running
        self.tasks.spawn(self._perform(running), f"job {job.id}")

    def _shares(self, kind: str) -> Mapping[Principal, int]:
        return Counter(running.job.principal for running in self._running.values() if running.job.kind == kind)

    async def _perform(self, running: RunningJob) -> None:
        try:
            result = await self._call_handler(running)
            await self._until_recorded(running, result)
        finally:
            self._running.pop(running.job.id, None)
            self.queued.set()
            if running.job.kind in self.regular:
                self.ended.set()

    async def _call_handler(self, running: RunningJob) -> JobResult:
        """Calls the handler within its time. Whatever it raises is a failed attempt, and never ends the worker."""
        job, (kind, handler) = running.job, self.types[running.job.kind]

        def report(progress: str) -> None:
            running.progress = self.clean(progress)[:PROGRESS_LENGTH_MAX]
            running.progress_at_ms = self.clock.now_ms()

        attempt: asyncio.Task[JobResult] = self.tasks.spawn(_called(handler, job, report), f"{kind.name} {job.id}")
        running.attempt = attempt
        await asyncio.wait({attempt}, timeout=kind.timeout_s)
        if not attempt.done():
            attempt.cancel()
            await asyncio.wait({attempt}, timeout=STOP_WAIT_S)
            return JobFailed(message=f"it took longer than {kind.timeout_s:.0f} s")
        if attempt.cancelled():
            return JobFailed(message="the attempt was stopped")
        error = attempt.exception()
        if isinstance(error, PalyraError):
            return JobFailed(message=f"{error.code}: {error.message}")
        if error is not None:
            return JobFailed(message=f"{type(error).__name__}: {error}")
        return attempt.result()

    async def _until_recorded(self, running: RunningJob, result: JobResult) -> None:
        """Records the result, and tries again while the disk fails. A job that was lost meanwhile records nothing."""
        while True:
            try:
                await self._record(running, result)
                return
            except Conflict as error:
                if not isinstance(result, JobDone) or not (result.appends or result.writes):
                    log.info("job_lost", kind=running.job.kind, job_id=running.job.id)
                    return
                # What the handler wanted to commit is out of date, so it has to look again. If the job itself was
                # lost, recording this failure is refused too.
                result = JobFailed(message=f"{error.code}: {error.message}")
            except PalyraError as error:
                log.warning("job_result_waits", job_id=running.job.id, code=error.code)
                await asyncio.sleep(POLL_EVERY_S)

    async def _record(self, running: RunningJob, result: JobResult) -> None:
        job = running.job
        now_ms = self.clock.now_ms()
        fence = Fence(lease_name(job.id), job.token)
        match result:
            case JobDone(appends=appends, writes=writes):
                # The end comes first, so that a job may queue its own successor under the same dedupe key.
                end = replace(_end(job, JobState.DONE, None, now_ms), progress=running.progress)
                await self._commit(appends, (end, *writes), fence)
            case JobPostponed(until_ms=until_ms):
                write = RequeueJob(
                    job_id=job.id,
                    token=job.token,
                    cause=RequeueCause.POSTPONED,
                    not_before_ms=until_ms,
                    error=None,
                    at_ms=now_ms,
                )
                await self._commit((), (write,), fence)
            case JobFailed():
                await self._commit((), (self._failed(job, result, now_ms),), fence)

    def _failed(self, job: Job, result: JobFailed, now_ms: int) -> RequeueJob | EndJob:
        error = self.clean(result.message)[:ERROR_LENGTH_MAX]
        delay_ms = None if result.is_final else retry_delay_ms(self.types[job.kind].kind, job.attempts, self.chance())
        if delay_ms is None:
            return _end(job, JobState.DEAD, error, now_ms)
        return RequeueJob(
            job_id=job.id,
            token=job.token,
            cause=RequeueCause.FAILED,
            not_before_ms=now_ms + delay_ms,
            error=error,
            at_ms=now_ms,
        )

    def _lost(self, job: Job) -> RequeueJob | EndJob:
        now_ms = self.clock.now_ms()
        delay_ms = loss_delay_ms(job.losses)
        if delay_ms is None:
            return _end(job, JobState.DEAD, f"its worker was lost {job.losses + 1} times", now_ms)
        return RequeueJob(
            job_id=job.id,
            token=job.token,
            cause=RequeueCause.LOST,
            not_before_ms=now_ms + delay_ms,
            error="its worker was lost",
            at_ms=now_ms,
        )

    async def _commit(self, appends: Sequence[Append], writes: Sequence[Write], fence: Fence) -> None:
        events = await self.journal.commit(appends, writes, fence)
        self.hub.publish(events)

    async def _commit_each(self, writes: Sequence[JobChange]) -> tuple[JobChange, ...]:
        """Commits all, or each by itself if one of them lost its job. Returns those that were refused."""
        if not writes:
            return ()
        try:
            await self.journal.commit((), writes)
            return ()
        except Conflict:
            refused: list[JobChange] = []
            for write in writes:
                try:
                    await self.journal.commit((), (write,))
                except Conflict:
                    refused.append(write)
            return tuple(refused)


async def _called(handler: JobHandler, job: Job, report: Report) -> JobResult:
    return await handler(job, report)


def _claim(job: Job, node: NodeId, now_ms: int, lease_ms: int) -> ClaimJob:
    return ClaimJob(
        job_id=job.id, owner=node, expected_token=job.token, leased_until_ms=now_ms + lease_ms, at_ms=now_ms
    )


def _claimed(job: Job, claim: ClaimJob) -> Job:
    return replace(
        job,
        state=JobState.RUNNING,
        owner=claim.owner,
        token=claim.expected_token + 1,
        attempts=job.attempts + 1,
        leased_until_ms=claim.leased_until_ms,
    )


def _renewal(running: RunningJob, now_ms: int) -> RenewJob:
    return RenewJob(
        job_id=running.job.id,
        token=running.job.token,
        leased_until_ms=now_ms + running.lease_ms,
        progress_at_ms=running.progress_at_ms,
        progress=running.progress,
    )


def _end(job: Job, state: JobState, error: str | None, now_ms: int) -> EndJob:
    return EndJob(job_id=job.id, token=job.token, state=state, error=error, at_ms=now_ms)
