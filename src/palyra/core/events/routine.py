"""Events of routines, on a node's system tape.

Does not own: what a routine says. Names and prompts are in its row alone, where they can be erased.
"""

from typing import ClassVar

from palyra.core.events.base import Count, EventData, Identifier
from palyra.core.ids import JobId, Principal, RoutineId


class RoutineCreated(EventData, frozen=True, kw_only=True):
    """`source` is `file`, `api` or `tool`; `schedule` is the kind: every, cron or at."""

    TYPE: ClassVar[str] = "routine.created"
    routine_id: RoutineId
    principal: Principal
    source: Identifier
    schedule: Identifier
    next_at_ms: Count | None = None


class RoutineChanged(EventData, frozen=True, kw_only=True):
    """`fields` names what changed, without the values."""

    TYPE: ClassVar[str] = "routine.changed"
    routine_id: RoutineId
    fields: tuple[Identifier, ...]
    next_at_ms: Count | None = None


class RoutineRemoved(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "routine.removed"
    routine_id: RoutineId


class RoutineFired(EventData, frozen=True, kw_only=True):
    """A due time queued the job that starts its run. `is_manual` says that a person asked for it."""

    TYPE: ClassVar[str] = "routine.fired"
    routine_id: RoutineId
    due_at_ms: Count
    job_id: JobId
    is_manual: bool = False


class RoutineSkipped(EventData, frozen=True, kw_only=True):
    """No run for `count` due times, of which this is the last, and why."""

    TYPE: ClassVar[str] = "routine.skipped"
    routine_id: RoutineId
    due_at_ms: Count
    reason: Identifier
    count: Count = 1
