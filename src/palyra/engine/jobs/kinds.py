"""The kinds of jobs there are: one table.

Owns: the limits of each kind, and which handler performs it. Does not own: the handlers.
A new kind is a JobKind here, a handler in a module of its own, and one line in `job_types`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from palyra.core.channels.outbox import OUTBOX_KIND
from palyra.core.delegation import JOB as DELEGATION_JOB
from palyra.core.jobs.model import JobKind
from palyra.core.learning.schedule import FINDINGS_KIND, REFLECTION_TASK_KIND, SETTLE_KIND
from palyra.engine.jobs.handler import JobHandler, JobType
from palyra.engine.jobs.vector_upkeep import RE_EMBEDDING
from palyra.engine.memory.eraser import MEMORY_ERASURE
from palyra.engine.routines.fire_handler import ROUTINE_KIND

DELEGATION = JobKind(
    name=DELEGATION_JOB,
    summary="Cancels the child runs of a run that is over.",
    at_once_max=8,
    attempts_max=20,  # A child that is left behind spends money, so this gives up late.
    timeout_s=60.0,
    backoff_max_s=60.0,
)
COMPACTION = JobKind(
    name="compaction",
    summary="summarise the older part of a long session",
    at_once_max=4,
    attempts_max=3,
    timeout_s=300.0,
)
SESSION_CLEANUP = JobKind(
    name="session_cleanup",
    summary="erase sessions idle for longer than journal.retention_days, and sweep files nothing refers to",
    at_once_max=1,
    timeout_s=3_600.0,
)
MAINTENANCE = JobKind(
    name="maintenance",
    summary="empty the log, give unused space back, forget expired memory and jobs that ended a week (or a day) ago",
    at_once_max=1,
    timeout_s=1_800.0,
)
VERIFY = JobKind(
    name="verify",
    summary="check the whole journal in a process of its own",
    at_once_max=1,
    attempts_max=2,
    timeout_s=7_200.0,
)
REFLECTION = JobKind(
    name=REFLECTION_TASK_KIND,
    summary="read a run that is over, and propose what is worth remembering",
    at_once_max=2,
    attempts_max=3,
    timeout_s=300.0,
    kept_days=1,
)
FINDINGS = JobKind(
    name=FINDINGS_KIND,
    summary="propose what a compaction found: facts, decisions, standing wishes",
    at_once_max=2,
    attempts_max=5,
    timeout_s=120.0,
)
SETTLE = JobKind(
    name=SETTLE_KIND,
    summary="make what an accepted candidate says, or take back what an undone one made",
    at_once_max=2,
    attempts_max=20,  # A decision of a person should hold, so this gives up late.
    timeout_s=120.0,
    backoff_max_s=300.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandlers:
    compaction: JobHandler
    delegation: JobHandler
    session_cleanup: JobHandler
    maintenance: JobHandler
    verify: JobHandler
    routine: JobHandler
    memory_erasure: JobHandler
    re_embedding: JobHandler
    reflection: JobHandler
    findings: JobHandler
    settle: JobHandler
    outbox: JobHandler


def job_types(handlers: JobHandlers) -> Mapping[str, JobType]:
    types = (
        JobType(COMPACTION, handlers.compaction),
        JobType(DELEGATION, handlers.delegation),
        JobType(SESSION_CLEANUP, handlers.session_cleanup),
        JobType(MAINTENANCE, handlers.maintenance),
        JobType(VERIFY, handlers.verify),
        JobType(ROUTINE_KIND, handlers.routine),
        JobType(MEMORY_ERASURE, handlers.memory_erasure),
        JobType(RE_EMBEDDING, handlers.re_embedding),
        JobType(REFLECTION, handlers.reflection),
        JobType(FINDINGS, handlers.findings),
        JobType(SETTLE, handlers.settle),
        JobType(OUTBOX_KIND, handlers.outbox),
    )
    return {one.kind.name: one for one in types}
