"""Background jobs as people see and change them.

Owns: queueing, listing, cancelling and retrying jobs. Does not own: performing them (engine.jobs.worker).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from palyra.core.errors import Conflict, Invalid, NotFound, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.ids import JobId, Principal, SessionId
from palyra.core.jobs.model import LIVE_STATES, PAYLOAD_BYTES_MAX, Job, JobState, NewJob
from palyra.core.writes import EndJob, EnqueueJob, RequeueCause, RequeueJob, Write
from palyra.engine.jobs.handler import JobType
from palyra.engine.new_ids import IdSource
from palyra.ports.clock import Clock
from palyra.ports.jobs import JobCount, JobFilter, JobViews
from palyra.ports.journal import Append, Journal

PAGE_MAX = 500


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`delay_ms` is how long the job waits at least; `ttl_ms` is how long it may wait at most."""

    kind: str
    principal: Principal
    payload: JsonObject = {}
    priority: int = 0
    dedupe_key: str | None = None
    session_id: SessionId | None = None
    delay_ms: int = 0
    ttl_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobService:
    """`stop_attempt` and `wake` reach the worker of this node."""

    journal: Journal
    views: JobViews
    ids: IdSource
    clock: Clock
    types: Mapping[str, JobType]
    stop_attempt: Callable[[JobId], bool]
    wake: Callable[[], None]

    def prepare(self, request: JobRequest) -> EnqueueJob:
        """Returns the write that queues a job, for a commit that holds its cause too. Call `wake` after the commit."""
        if request.kind not in self.types:
            raise Invalid("job_kind_unknown", f"there is no kind of job named {request.kind}")
        size = len(msgspec.json.encode(request.payload))
        if size > PAYLOAD_BYTES_MAX:
            raise Invalid("job_payload_size", f"a job's payload has at most {PAYLOAD_BYTES_MAX} bytes, this has {size}")
        now_ms = self.clock.now_ms()
        return EnqueueJob(
            NewJob(
                id=self.ids.job_id(),
                kind=request.kind,
                principal=request.principal,
                payload=request.payload,
                priority=request.priority,
                dedupe_key=request.dedupe_key,
                session_id=request.session_id,
                not_before_ms=now_ms + request.delay_ms,
                expires_at_ms=None if request.ttl_ms is None else now_ms + request.ttl_ms,
                created_at_ms=now_ms,
            )
        )

    async def enqueue(self, request: JobRequest, appends: tuple[Append, ...] = ()) -> JobId | None:
        """Queues a job; it is durable when this returns. None means that an equal job is live already."""
        await self._require_room(request.kind, request.principal)
        write = self.prepare(request)
        await self.journal.commit(appends, (write,))
        self.wake()
        return write.job.id if await self.views.job(write.job.id) is not None else None

    async def has_room(self, kind: str, principal: Principal | None = None) -> bool:
        """Tells whether one more job of the kind may wait, and if given one of this principal."""
        found = self.types.get(kind)
        if found is None:
            return True
        most, each = found.kind.queued_max, found.kind.queued_each_max
        if await self.views.count_queued(kind, None, most) >= most:
            return False
        return principal is None or await self.views.count_queued(kind, principal, each) < each

    async def get(self, principal: Principal | None, job_id: JobId) -> Job:
        job = await self.views.job(job_id)
        if job is None or (principal is not None and job.principal != principal):
            raise NotFound("job_unknown", f"there is no job {job_id}; palyra jobs list shows those there are")
        return job

    async def list(self, principal: Principal | None, wanted: JobFilter) -> tuple[Job, ...]:
        """Lists jobs; None lists everyone's. The caller checks that this is allowed."""
        return await self.views.list_jobs(principal, msgspec.structs.replace(wanted, limit=min(wanted.limit, PAGE_MAX)))

    async def counts(self) -> tuple[JobCount, ...]:
        return await self.views.count_jobs()

    async def cancel(self, principal: Principal | None, job_id: JobId) -> Job:
        """Cancels a job, whether it waits or runs. Its handler can record nothing after this returns."""
        job = await self.get(principal, job_id)
        if job.state not in LIVE_STATES:
            raise Conflict("job_ended", f"job {job_id} is {job.state.value} already", is_retryable=False)
        now_ms = self.clock.now_ms()
        end = EndJob(job_id=job_id, token=job.token, state=JobState.CANCELLED, error="cancelled", at_ms=now_ms)
        await self._change(job_id, end)
        self.stop_attempt(job_id)
        return await self.get(principal, job_id)

    async def retry(self, principal: Principal | None, job_id: JobId) -> Job:
        """Puts a dead, expired or cancelled job back, or begins a waiting one now."""
        job = await self.get(principal, job_id)
        if job.state in (JobState.RUNNING, JobState.DONE):
            raise Conflict("job_not_retryable", f"job {job_id} is {job.state.value}", is_retryable=False)
        again = RequeueJob(
            job_id=job_id,
            token=job.token,
            cause=RequeueCause.ASKED,
            not_before_ms=self.clock.now_ms(),
            error=job.error,
            at_ms=self.clock.now_ms(),
        )
        await self._change(job_id, again)
        self.wake()
        return await self.get(principal, job_id)

    async def _change(self, job_id: JobId, write: Write) -> None:
        try:
            await self.journal.commit((), (write,))
        except Conflict as cause:
            raise Conflict("job_changed", f"job {job_id} has just changed; look at it again") from cause

    async def _require_room(self, kind: str, principal: Principal) -> None:
        if not await self.has_room(kind):
            most = self.types[kind].kind.queued_max
            raise Unavailable("job_queue_full", f"{most} {kind} jobs wait already, which is the most; try later")
        if not await self.has_room(kind, principal):
            each = self.types[kind].kind.queued_each_max
            message = f"{each} {kind} jobs of {principal} wait already, which is the most for one; try later"
            raise Unavailable("job_queue_full", message)
