"""Jobs that a commit of a session leaves behind: compaction, ending children, and what learning looks at.

Owns: which jobs follow from what. Does not own: performing them (engine.jobs), the rules behind them (core).
A job is in the commit of its cause, so a crash loses neither or both.
"""

from dataclasses import dataclass

from palyra.core.delegation import end_children_job
from palyra.core.jobs.model import NewJob
from palyra.core.learning.schedule import findings_job, schedule_post_run_reflection
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.run.state import Run
from palyra.core.service_runs import is_service
from palyra.core.writes import EnqueueJob, EraseSecrets, Write
from palyra.engine.new_ids import IdSource
from palyra.engine.session.pending_commit import SessionState
from palyra.ports.clock import Clock

COMPACTION_KIND = "compaction"
COMPACTION_COOLDOWN_MS = 30_000  # A summary costs a model call. What cannot wait is compacted at once by the rules.
COMPACTION_LIFE_MS = 86_400_000  # A session that is used again is compacted when its context is next assembled.


@dataclass(frozen=True, slots=True)
class FollowUpJobs:
    ids: IdSource
    clock: Clock
    learning: LearningRuntimeConfig

    def after_end(self, run: Run, state: SessionState) -> tuple[Write, ...]:
        """Returns what the end of a run leaves to do. The job survives a crash, so no child outlives its parent."""
        now_ms = self.clock.now_ms()
        reflection = schedule_post_run_reflection(run, state.owner, state.session_id, now_ms, self.learning)
        children = end_children_job(run.run_id, state.owner, state.session_id, now_ms) if run.has_children else None
        return EraseSecrets(run.run_id), *[EnqueueJob(job) for job in (children, reflection) if job is not None]

    def after_compaction(self, state: SessionState, checkpoint_id: str) -> tuple[Write, ...]:
        """Returns the job that looks at what a compaction found. The compaction does not wait for it."""
        if is_service(state.agent):
            return ()
        job = findings_job(state.session_id, state.owner, checkpoint_id, self.clock.now_ms(), self.learning)
        return () if job is None else (EnqueueJob(job),)

    def compaction(self, state: SessionState) -> EnqueueJob:
        """Returns the compaction of a session. A session has one such job at most, and all but the first wait a while."""
        now_ms = self.clock.now_ms()
        wait_ms = 0 if state.window.summary is None else COMPACTION_COOLDOWN_MS
        return EnqueueJob(
            NewJob(
                id=self.ids.job_id(),
                kind=COMPACTION_KIND,
                principal=state.owner,
                payload={"session_id": state.session_id},
                dedupe_key=state.session_id,
                session_id=state.session_id,
                not_before_ms=now_ms + wait_ms,
                expires_at_ms=now_ms + COMPACTION_LIFE_MS,
                created_at_ms=now_ms,
            )
        )
