"""The job of a due time: starts the routine's run.

Owns: the limits of that kind of job, and starting, skipping or replacing runs as core.routines.overlap decides.
Does not own: when a time is due (scheduler), the run itself (engine.session).
Invariant: a due time has at most one run, because its idempotency key is made of the routine and the time (L2). A job
that is performed again after a crash finds that run.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid, NotFound, Unauthorized, Unavailable
from palyra.core.events.routine import RoutineSkipped
from palyra.core.ids import RoutineId
from palyra.core.jobs.model import Job, JobKind, lease_name
from palyra.core.routines.model import HISTORY_MAX, Routine, run_key
from palyra.core.routines.overlap import SkipTime, decide_overlap, made_up_overlap
from palyra.core.trust import Trust
from palyra.core.writes import Fence, PutRoutine, RecordFire, Write
from palyra.engine.api.requests import RunRequest
from palyra.engine.api.runs import DRAINING, RunService
from palyra.engine.channels.directory import ChannelDirectory
from palyra.engine.jobs.handler import JobDone, JobFailed, JobPostponed, JobResult, Report
from palyra.engine.routines.routine_tape import RoutineTape
from palyra.engine.session.drafts import ENGINE
from palyra.ports.routines import RoutineViews

ROUTINE_KIND = JobKind(
    name="routine",
    summary="starts the run of a routine's due time",
    at_once_max=4,
    attempts_max=8,
    timeout_s=60.0,
    backoff_max_s=60.0,
    kept_days=1,  # One for every due time; the routine's own history tells more.
)
ORIGIN = "routine"
ATTEMPTS_MAX = 8
REPLACED = "A later time of its routine replaced it."


class _Payload(msgspec.Struct, frozen=True):
    routine_id: RoutineId
    due_at_ms: int
    is_one_of_many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineFireHandler:
    views: RoutineViews
    runs: RunService
    tape: RoutineTape
    channels: ChannelDirectory
    _locks: dict[RoutineId, asyncio.Lock] = field(default_factory=dict)
    _holders: Counter[RoutineId] = field(default_factory=Counter)

    async def perform(self, job: Job, report: Report) -> JobResult:
        due = msgspec.convert(job.payload, _Payload)
        # Two due times of one routine would both find no run, and both start one.
        async with self._alone(due.routine_id):
            return await self._perform(job, due)

    async def _perform(self, job: Job, due: _Payload) -> JobResult:
        key = run_key(due.routine_id, due.due_at_ms)
        if await self.runs.views.run_by_idempotency_key(key, job.principal) is not None:
            return JobDone()
        routine = await self.views.routine(due.routine_id)
        if routine is None or routine.is_removed:
            return await self._skip(job, due, "removed")
        if routine.principal != job.principal:
            return await self._skip(job, due, "principal_changed")
        overlap = made_up_overlap(routine.definition.overlap) if due.is_one_of_many else routine.definition.overlap
        decision = decide_overlap(overlap, await self.views.active_runs(routine.id, routine.principal))
        if isinstance(decision, SkipTime):
            return await self._skip(job, due, decision.reason)
        for run_id in decision.cancelled:
            with suppress(NotFound):  # It was erased meanwhile.
                await self.runs.cancel(routine.principal, run_id, message=REPLACED)
        try:
            await self.runs.start(routine.principal, self._request(routine, key))
        except (Invalid, NotFound, Unauthorized) as refusal:
            # The same request would fail again, so the next due time is the next try.
            return await self._skip(job, due, refusal.code)
        except Unavailable as refusal:
            if refusal.code != DRAINING:
                raise
            return JobPostponed(until_ms=job.not_before_ms)  # No attempt: the next start performs it.
        return JobDone()

    def _request(self, routine: Routine, key: str) -> RunRequest:
        definition = routine.definition
        return RunRequest(
            text=definition.prompt,
            origin=ORIGIN,
            session_key=definition.session_key or f"routine:{routine.id}",
            agent=definition.agent,
            idempotency_key=key,
            trust=Trust.EXTERNAL if definition.taint else Trust.OPERATOR,
            taint=definition.taint,
            reply=None if definition.channel is None else self.channels.routine_address(definition.channel),
        )

    async def _skip(self, job: Job, due: _Payload, reason: str) -> JobResult:
        """Records a skipped time under the job's token. If the job was lost meanwhile, nothing is recorded."""
        fence = Fence(lease_name(job.id), job.token)
        for _ in range(ATTEMPTS_MAX):
            fire = await self.views.fire(due.routine_id, due.due_at_ms)
            if fire is not None and fire.reason is not None:
                return JobDone()
            writes: list[Write] = [] if fire is None else [RecordFire(replace(fire, reason=reason), HISTORY_MAX)]
            routine = await self.views.routine(due.routine_id)
            if routine is not None and not routine.is_removed:
                writes.append(PutRoutine(_recounted(routine)))
            fact = RoutineSkipped(routine_id=due.routine_id, due_at_ms=due.due_at_ms, reason=reason)
            try:
                await self.tape.commit(ENGINE, (fact,), writes, fence)
                return JobDone()
            except Conflict:
                continue  # The routine has changed meanwhile, or the job is another's and its next commit tells.
        return JobFailed(message="the routine changes too often")

    @asynccontextmanager
    async def _alone(self, routine_id: RoutineId) -> AsyncIterator[None]:
        """One due time of a routine at a time. A lock goes when nobody holds or awaits it."""
        self._holders[routine_id] += 1
        try:
            async with self._locks.setdefault(routine_id, asyncio.Lock()):
                yield
        finally:
            self._holders[routine_id] -= 1
            if not self._holders[routine_id]:
                del self._holders[routine_id], self._locks[routine_id]


def _recounted(routine: Routine) -> Routine:
    """Counts a time that fired, and was then skipped, among the skipped ones."""
    return replace(
        routine,
        fired_count=max(0, routine.fired_count - 1),
        skipped_count=routine.skipped_count + 1,
        revision=routine.revision + 1,
    )
