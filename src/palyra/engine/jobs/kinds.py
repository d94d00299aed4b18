"""The kinds of jobs there are: one table.

Owns: the limits of each kind, and which handler performs it. Does not own: the handlers.
A new kind is a JobKind here, a handler in a module of its own, and one line in `job_types`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from palyra.core.delegation import JOB as DELEGATION_JOB
from palyra.core.jobs.model import JobKind
from palyra.engine.jobs.handler import JobHandler, JobType
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
    summary="empty the journal's log, give unused space back, forget jobs that ended a week (routines: a day) ago",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandlers:
    """One handler for each kind."""

    compaction: JobHandler
    delegation: JobHandler
    session_cleanup: JobHandler
    maintenance: JobHandler
    verify: JobHandler
    routine: JobHandler


def job_types(handlers: JobHandlers) -> Mapping[str, JobType]:
    types = (
        JobType(COMPACTION, handlers.compaction),
        JobType(DELEGATION, handlers.delegation),
        JobType(SESSION_CLEANUP, handlers.session_cleanup),
        JobType(MAINTENANCE, handlers.maintenance),
        JobType(VERIFY, handlers.verify),
        JobType(ROUTINE_KIND, handlers.routine),
    )
    return {one.kind.name: one for one in types}
