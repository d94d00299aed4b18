"""When a run is reflected on.

Owns: the job that a run's end leaves behind, and the share of runs that are sampled.
Does not own: queueing it (engine.session.commit_builder), performing it (engine.jobs.reflection).
"""

import hashlib

from palyra.core.ids import ULID_RANDOM_BYTES, JobId, Principal, RunId, SessionId, length_prefixed, make_ulid
from palyra.core.jobs.model import NewJob
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.run.state import Run
from palyra.core.service_runs import is_service

REFLECTION_TASK_KIND = "reflection"
FINDINGS_KIND = "compaction_findings"
SETTLE_KIND = "candidate_settle"
TELLS = "tells"  # The member of a settling job that tells the session of what was applied.
REFLECTION_LIFE_MS = 7 * 86_400_000  # Who starts a daemon after weeks is not to pay for what it then reads of the past.
_SAMPLE_STEPS = 1 << 32


def schedule_post_run_reflection(
    run: Run, owner: Principal, session_id: SessionId, now_ms: int, settings: LearningRuntimeConfig
) -> NewJob | None:
    """Returns the job that reflects on a run which has just ended, or None if nothing is learned from it.

    The job is queued in the commit that ends the run. A delegated run says nothing that its parent's does not.
    """
    if not settings.is_enabled or run.lineage or is_service(run.agent):
        return None
    return NewJob(
        id=JobId(make_ulid(now_ms, _mark(REFLECTION_TASK_KIND, run.run_id))),
        kind=REFLECTION_TASK_KIND,
        principal=owner,
        payload={"run_id": run.run_id, "is_sampled": is_sampled(run.run_id, settings.sample)},
        dedupe_key=run.run_id,
        session_id=session_id,
        not_before_ms=now_ms + settings.delay_ms,
        expires_at_ms=now_ms + REFLECTION_LIFE_MS,
        created_at_ms=now_ms,
    )


def findings_job(
    session_id: SessionId, owner: Principal, checkpoint_id: str, now_ms: int, settings: LearningRuntimeConfig
) -> NewJob | None:
    """Returns the job that makes candidates of what a compaction found. It is queued in the compaction's commit."""
    if not settings.is_enabled:
        return None
    return NewJob(
        id=JobId(make_ulid(now_ms, _mark(FINDINGS_KIND, checkpoint_id))),
        kind=FINDINGS_KIND,
        principal=owner,
        payload={"checkpoint_id": checkpoint_id},
        dedupe_key=checkpoint_id,
        session_id=session_id,
        created_at_ms=now_ms,
    )


def settle_job(candidate_id: str, owner: Principal, revision: int, now_ms: int) -> NewJob:
    """Returns the job that makes what an accepted candidate says, or takes it back. It is queued with the decision."""
    return NewJob(
        id=JobId(make_ulid(now_ms, _mark(SETTLE_KIND, f"{candidate_id}:{revision}"))),
        kind=SETTLE_KIND,
        principal=owner,
        payload={"candidate_id": candidate_id},
        dedupe_key=f"{candidate_id}:{revision}",
        created_at_ms=now_ms,
    )


def notice_job(candidate_id: str, owner: Principal, now_ms: int) -> NewJob:
    """Returns the job that tells what was applied unasked. It is queued in the commit that applies it."""
    told = f"{candidate_id}:told"
    return NewJob(
        id=JobId(make_ulid(now_ms, _mark(SETTLE_KIND, told))),
        kind=SETTLE_KIND,
        principal=owner,
        payload={"candidate_id": candidate_id, TELLS: True},
        dedupe_key=told,
        created_at_ms=now_ms,
    )


def is_sampled(run_id: RunId, share: float) -> bool:
    """Tells whether a run is sampled: always the same answer for the same run."""
    drawn = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:4], "big")
    return drawn < share * _SAMPLE_STEPS


def _mark(kind: str, cause: str) -> bytes:
    return hashlib.sha256(length_prefixed(kind.encode(), cause.encode())).digest()[:ULID_RANDOM_BYTES]
