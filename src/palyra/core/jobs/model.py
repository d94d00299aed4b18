"""Jobs of the background queue (the OrchestratorBackgroundTaskRecord of the first description).

Owns: a job's form, its states, and what the kind of a job says about all jobs of that kind.
Does not own: the kinds there are (engine.jobs.kinds), nor SQL (each store).

A job's payload holds ids and numbers, never a person's words. Words stay on a tape, where they can be erased.
"""

from enum import Enum

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.ids import JobId, NodeId, Principal, SessionId

PAYLOAD_BYTES_MAX = 16 * 1024  # Ids and numbers; a longer text belongs on a tape or in an artifact.
ERROR_LENGTH_MAX = 2_000
PROGRESS_LENGTH_MAX = 200
LOOK_EVERY_MS = 5_000  # The fallback of a worker: a signal, or the time at which the next job is due, comes first.


class JobState(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


LIVE_STATES = frozenset({JobState.QUEUED, JobState.RUNNING})


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be queued.

    Nothing is queued while a live job of the same kind has the same `dedupe_key`. `session_id` is the session that the
    job is about: the job goes when that session is erased. `not_before_ms` and `expires_at_ms` bound when it may begin.
    """

    id: JobId
    kind: str
    principal: Principal
    payload: JsonObject = {}
    priority: int = 0
    dedupe_key: str | None = None
    session_id: SessionId | None = None
    not_before_ms: int = 0
    expires_at_ms: int | None = None
    created_at_ms: int


def wakes_worker(job: NewJob) -> bool:
    """Tells whether a worker must be told of a new job. One that is due later is found by the worker's next look."""
    return job.not_before_ms - job.created_at_ms < LOOK_EVERY_MS


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands.

    `token` is the fencing token: it grows whenever the job changes hands, so that a worker that lost the job can change
    nothing any more. `owner` and `leased_until_ms` say who works on it, and until when it counts as alive.
    `attempts` counts those that began and were not lost; `losses` counts workers that ended or were cut off.
    `progress_at_ms` is when the handler last reported progress. `error` tells why the last attempt failed.
    """

    id: JobId
    kind: str
    principal: Principal
    payload: JsonObject
    state: JobState
    priority: int
    dedupe_key: str | None
    session_id: SessionId | None
    not_before_ms: int
    expires_at_ms: int | None
    attempts: int
    losses: int
    owner: NodeId | None
    token: int
    leased_until_ms: int
    progress_at_ms: int
    progress: str
    error: str | None
    created_at_ms: int
    updated_at_ms: int


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all jobs of one kind.

    `at_once_max` is how many run at the same time on one node. `timeout_s` bounds one attempt. `queued_max` is how many
    may wait at once; one principal may fill a tenth of that. `kept_days` is how long a job stays after its end.
    """

    name: str
    summary: str
    at_once_max: int = 2
    attempts_max: int = 5
    lease_s: float = 60.0
    timeout_s: float = 600.0
    backoff_s: float = 2.0
    backoff_max_s: float = 900.0
    queued_max: int = 10_000
    kept_days: int = 7

    @property
    def queued_each_max(self) -> int:
        """How many jobs of one principal may wait, so that nobody keeps everybody else out."""
        return max(1, self.queued_max // 10)


LEASE_PREFIX = "job:"


def lease_name(job_id: JobId) -> str:
    """Returns the name under which a commit's fence asks for a job's token."""
    return LEASE_PREFIX + job_id
