"""The kinds of jobs there are: one table.

Owns: the limits of each kind, and which handler performs it. Does not own: the handlers.
A new kind is a JobKind here, a handler in a module of its own, and one line in `job_types`.
"""

from collections.abc import Mapping

from palyra.engine.jobs.handler import JobHandler, JobType
from palyra.engine.routines.fire_handler import ROUTINE_KIND


def job_types(routine: JobHandler) -> Mapping[str, JobType]:
    types: tuple[JobType, ...] = (JobType(ROUTINE_KIND, routine),)
    return {one.kind.name: one for one in types}
