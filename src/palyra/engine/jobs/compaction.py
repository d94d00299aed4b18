"""The compaction job: compacts a session beside its runs.

Does not own: how (engine.compaction.compactor), when it is due (engine.session.context_assembler).
"""

from dataclasses import dataclass

from palyra.core.errors import Conflict, NotFound
from palyra.core.ids import parse_session_id
from palyra.core.jobs.model import Job
from palyra.engine.compaction.compactor import Compactor
from palyra.engine.jobs.handler import JobDone, JobFailed, JobResult, Report


@dataclass(frozen=True, slots=True)
class CompactionJob:
    compactor: Compactor

    async def perform(self, job: Job, report: Report) -> JobResult:
        session_id = parse_session_id(str(job.payload.get("session_id", "")))
        report("summarising")
        try:
            done = await self.compactor.compact(session_id, "size", job.id)
        except NotFound:
            return JobDone()  # The session was erased meanwhile.
        except Conflict as error:
            return JobFailed(message=f"{error.code}: {error.message}", is_final=not error.is_retryable)
        words = f"compacted {done.exchanges_count} exchanges" if done.is_committed else done.reason
        report(words)
        return JobDone()
