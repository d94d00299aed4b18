"""What a handler of jobs is given, and what it answers.

Does not own: any handler, nor retrying (worker).
A handler may be called again for the same job after a crash. What it returns in `JobDone` is committed together with
the job's end, so that part happens exactly once. Anything it does by itself must be idempotent by the job's id.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from palyra.core.jobs.model import Job, JobKind
from palyra.core.writes import Write
from palyra.ports.journal import Append


class JobDone(msgspec.Struct, frozen=True, kw_only=True):
    appends: tuple[Append, ...] = ()
    writes: tuple[Write, ...] = ()


class JobFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt failed. A final failure is not tried again. A secret in the message is redacted before storage."""

    message: str
    is_final: bool = False


class JobPostponed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing failed, but the job has to be called again later."""

    until_ms: int


JobResult = JobDone | JobFailed | JobPostponed
Report = Callable[[str], None]
JobHandler = Callable[[Job, Report], Awaitable[JobResult]]


class JobType(NamedTuple):
    """A kind and what performs its jobs. All types of a daemon stand in one table (engine.jobs.kinds)."""

    kind: JobKind
    handler: JobHandler
