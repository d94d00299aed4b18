"""Routines as they are stored, and the record of each time that came.

Owns: the forms and their limits. Does not own: when a routine is due (schedule, due), nor SQL (each store).
A prompt is a person's text. It is in the routine's row alone, so that removing the routine removes it.
"""

from enum import Enum

import msgspec

from palyra.core.ids import JobId, Principal, RoutineId, RunId

NAME_LENGTH_MAX = 64
PROMPT_LENGTH_MAX = 20_000
EVERY_S_MAX = 366 * 24 * 3600
CRON_LENGTH_MAX = 128
ZONE_LENGTH_MAX = 64
MISFIRE_MAX_DEFAULT = 10
MISFIRE_MAX_LIMIT = 100  # More runs at once after a long stop would help nobody.
ROUTINES_PER_PRINCIPAL_MAX = 200
HISTORY_MAX = 200  # Times kept for each routine; older ones are dropped as new ones come.
WAITING_RUNS_MAX = 16  # Unfinished runs of one routine with overlap `queue`; a further time is skipped.
REMOVED_KEPT_MS = 90 * 24 * 3600 * 1000  # How long the history of a removed routine stays.


class Misfire(Enum):
    """What happens to the times that a routine missed while no daemon ran."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(Enum):
    """What happens to a routine that is due while its last run goes on."""

    FORBID = "forbid"
    QUEUE = "queue"
    REPLACE = "replace"


class EverySchedule(msgspec.Struct, frozen=True, tag="every"):
    every_s: int


class CronSchedule(msgspec.Struct, frozen=True, tag="cron"):
    """Five fields, read in the time zone."""

    cron: str
    timezone: str


class OnceSchedule(msgspec.Struct, frozen=True, tag="at"):
    at_ms: int


RoutineSchedule = EverySchedule | CronSchedule | OnceSchedule


class RoutineDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a person said. If `session_key` is None, the routine has a session of its own.

    `taint` are the sources that the context held in which a model wrote the prompt. Every run begins with them (L8).
    `channel` names the channel whose conversation hears the answers.
    """

    name: str
    prompt: str
    schedule: RoutineSchedule
    timezone: str = "UTC"
    misfire: Misfire = Misfire.SKIP
    misfire_max: int = MISFIRE_MAX_DEFAULT
    overlap: Overlap = Overlap.FORBID
    session_key: str | None = None
    agent: str | None = None
    taint: tuple[str, ...] = ()
    channel: str | None = None


class Routine(msgspec.Struct, frozen=True, kw_only=True):
    """A routine as it stands.

    `revision` grows with every write, and a write names the one it expects. So a time that was advanced over is never
    advanced over again. `next_at_ms` is None when no further time comes. `last_due_ms` is the last time that fired or
    was skipped. A configured routine comes from palyra.toml. A removed one has no prompt any more; its history stays.
    """

    id: RoutineId
    principal: Principal
    definition: RoutineDefinition
    is_configured: bool = False
    is_paused: bool = False
    is_removed: bool = False
    next_at_ms: int | None
    last_due_ms: int | None = None
    fired_count: int = 0
    skipped_count: int = 0
    revision: int = 1
    created_at_ms: int
    updated_at_ms: int


class RoutineFire(msgspec.Struct, frozen=True, kw_only=True):
    """A time that came. `reason` says why it was skipped, and is None if it fired.

    `count` is above 1 where one record stands for several skipped times; `due_at_ms` is then the last of them.
    """

    routine_id: RoutineId
    principal: Principal
    due_at_ms: int
    reason: str | None = None
    count: int = 1
    is_manual: bool = False
    job_id: JobId | None = None
    at_ms: int


class RoutineFireView(msgspec.Struct, frozen=True, kw_only=True):
    """A time that came, with its run and its job as they stand now."""

    fire: RoutineFire
    run_id: RunId | None
    run_state: str | None
    job_state: str | None
    job_error: str | None


LEASE_PREFIX = "routine:"


def routine_lease(routine_id: RoutineId) -> str:
    """Returns the name under which a commit's fence asks for a routine's revision."""
    return LEASE_PREFIX + routine_id


def run_key(routine_id: RoutineId, due_at_ms: int) -> str:
    """Returns the idempotency key of the one run that a due time starts."""
    return f"routine:{routine_id}:{due_at_ms}"
