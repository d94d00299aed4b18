"""Routines and their history as people see them.

Owns: the records. Does not own: finding routines (routines), changing them (routines).
"""

import msgspec
from msgspec import UNSET, UnsetType

from palyra.core.ids import RoutineId
from palyra.core.routines.model import Misfire, Overlap, Routine, RoutineFireView
from palyra.core.routines.wish import wish_of


class RoutineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is active, paused, over when no further time comes, or removed. `source` is file for one of palyra.toml."""

    id: RoutineId
    name: str
    prompt: str
    every_s: int | None
    cron: str | None
    at: str | None
    timezone: str
    misfire: str
    misfire_max: int
    overlap: str
    session_key: str | None
    channel: str | None
    agent: str | None
    principal: str
    source: str
    state: str
    next_at_ms: int | None
    last_due_ms: int | None
    fired_count: int
    skipped_count: int
    created_at_ms: int
    updated_at_ms: int
    last: "RoutineFireRecord | None" = None


class RoutineFireRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A time that came: `outcome` is fired or skipped, and `reason` why it was skipped.

    `count` is above 1 where several missed times were skipped together. `error` tells why no run could be started, and
    `run_reason` why a run failed or was cancelled.
    """

    id: str
    due_at_ms: int
    outcome: str
    reason: str | None
    count: int
    is_manual: bool
    run_id: str | None
    run_state: str | None
    run_reason: str | None = None
    error: str | None
    at_ms: int


class RoutineChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is not given stays. One of `every_s`, `cron` and `at` takes the place of the schedule before."""

    name: str | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    every_s: int | UnsetType = UNSET
    cron: str | UnsetType = UNSET
    at: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    misfire: Misfire | UnsetType = UNSET
    misfire_max: int | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    session_key: str | UnsetType | None = UNSET
    channel: str | UnsetType = UNSET
    agent: str | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET

    def given(self) -> dict[str, object]:
        """Returns the members that were given, but `paused`."""
        named = {name: getattr(self, name) for name in self.__struct_fields__ if name != "paused"}
        return {name: value for name, value in named.items() if value is not UNSET}


def routine_record(routine: Routine, last: RoutineFireRecord | None = None) -> RoutineRecord:
    wish = wish_of(routine.definition)
    return RoutineRecord(
        id=routine.id,
        name=wish.name,
        prompt=wish.prompt,
        every_s=wish.every_s,
        cron=wish.cron,
        at=wish.at,
        timezone=wish.timezone,
        misfire=routine.definition.misfire.value,
        misfire_max=wish.misfire_max,
        overlap=wish.overlap.value,
        session_key=wish.session_key,
        channel=wish.channel,
        agent=wish.agent,
        principal=routine.principal,
        source="file" if routine.is_configured else "api",
        state=_state(routine),
        next_at_ms=None if routine.is_paused else routine.next_at_ms,
        last_due_ms=routine.last_due_ms,
        fired_count=routine.fired_count,
        skipped_count=routine.skipped_count,
        created_at_ms=routine.created_at_ms,
        updated_at_ms=routine.updated_at_ms,
        last=last,
    )


def _state(routine: Routine) -> str:
    if routine.is_removed:
        return "removed"
    return "paused" if routine.is_paused else "over" if routine.next_at_ms is None else "active"


def fire_record(view: RoutineFireView, run_reason: str | None = None) -> RoutineFireRecord:
    fire = view.fire
    return RoutineFireRecord(
        id=str(fire.due_at_ms),
        due_at_ms=fire.due_at_ms,
        outcome="fired" if fire.reason is None else "skipped",
        reason=fire.reason,
        count=fire.count,
        is_manual=fire.is_manual,
        run_id=view.run_id,
        run_state=view.run_state,
        run_reason=run_reason,
        error=view.job_error if view.run_id is None and fire.reason is None else None,
        at_ms=fire.at_ms,
    )
