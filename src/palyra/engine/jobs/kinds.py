"""The kinds of jobs there are: one table.

Owns: the limits of each kind, and which handler performs it. Does not own: the handlers.
A new kind is a JobKind here, a handler in a module of its own, and one line in `job_types`.
"""

from collections.abc import Mapping

from palyra.engine.jobs.handler import JobType


def job_types() -> Mapping[str, JobType]:
    types: tuple[JobType, ...] = ()
    return {one.kind.name: one for one in types}
