"""Routines of one principal (L11): prompts that run on a schedule.

Owns: listing, creating, changing, removing and running them, their history, and taking over those of palyra.toml.
Does not own: rules (core.routines), firing (engine.routines).
Invariants: a routine runs as the principal who made it. One of palyra.toml is changed there alone, but may be paused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, assert_never

import structlog
from msgspec import UNSET
from msgspec.structs import fields, replace

from palyra.core.errors import Conflict, Invalid, NotFound, Unauthorized, Unavailable
from palyra.core.events.routine import RoutineChanged, RoutineCreated, RoutineRemoved
from palyra.core.ids import EffectId, Principal, RoutineId, configured_routine_id, derive_routine_id
from palyra.core.routines.model import (
    ROUTINES_PER_PRINCIPAL_MAX,
    CronSchedule,
    EverySchedule,
    OnceSchedule,
    Routine,
    RoutineDefinition,
    RoutineFireView,
)
from palyra.core.routines.schedule import first_time, time_after
from palyra.core.routines.wish import ConfiguredRoutine, RoutineWish, make_definition, moment_text, wish_of
from palyra.core.writes import PutRoutine
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.jobs import JobService
from palyra.engine.api.routine_records import RoutineChange
from palyra.engine.channels.directory import ChannelDirectory
from palyra.engine.new_ids import IdSource
from palyra.engine.routines.fire_handler import ROUTINE_KIND
from palyra.engine.routines.routine_tape import RoutineTape
from palyra.engine.routines.scheduler import SCHEDULER, DueTime, fire_parts
from palyra.ports.cron import Cron
from palyra.ports.routines import RoutineViews

PAGE_MAX = 500
ATTEMPTS_MAX = 8  # The scheduler may advance the routine in between.

Answer = TypeVar("Answer")
Said = TypeVar("Said", RoutineWish, RoutineDefinition)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineService:
    """`clean` redacts a text before it is stored. `changed` tells the scheduler."""

    views: RoutineViews
    tape: RoutineTape
    jobs: JobService
    ids: IdSource
    agents: AgentDirectory
    channels: ChannelDirectory
    cron: Cron
    clean: Callable[[str], str]
    changed: Callable[[], None]

    async def list(
        self, principal: Principal | None, after: str, limit: int, *, is_removed: bool = False
    ) -> tuple[Routine, ...]:
        """Lists routines, or removed ones whose history stays. None lists everyone's, which the caller must allow."""
        return await self.views.list_routines(principal, after, min(limit, PAGE_MAX), is_removed=is_removed)

    async def get(self, principal: Principal, routine_id: RoutineId) -> Routine:
        routine = await self.views.routine(routine_id)
        if routine is None or routine.principal != principal or routine.is_removed:
            raise _unknown(routine_id)
        return routine

    async def create(self, principal: Principal, wish: RoutineWish) -> Routine:
        """Creates a routine that runs as this principal; it is durable when this returns."""
        return await self._create(principal, wish, self.ids.routine_id(), "api")

    async def make(self, principal: Principal, wish: RoutineWish, effect_id: EffectId) -> Routine:
        """Creates a routine for a tool call, once for each effect."""
        routine_id = derive_routine_id(effect_id)
        found = await self.views.routine(routine_id)
        return found if found is not None else await self._create(principal, wish, routine_id, "tool")

    def describe(self, wish: RoutineWish) -> str:
        """Says when a routine would run, and what it would say. Invalid if it cannot be."""
        # Without redaction, which takes long: whoever records what this says redacts it there.
        definition = self._defined(wish)
        schedule, next_ms = definition.schedule, self._first(definition)
        match schedule:
            case EverySchedule(every_s=every_s):
                when = f"every {every_s} s"
            case CronSchedule(cron=cron):
                when = f"by cron {cron} in {definition.timezone}"
            case OnceSchedule():
                when = "once"
            case _:
                assert_never(schedule)
        first = moment_text(next_ms, definition.timezone)
        return f"Runs {when}, first at {first}, without anybody watching:\n\n{definition.prompt}"

    async def change(self, principal: Principal, routine_id: RoutineId, wish: RoutineChange, by: Principal) -> Routine:
        """Changes a routine. Only its own principal gives it new words or times; `by` may be another who pauses it."""
        given = wish.given()
        if given and by != principal:
            message = f"routine {routine_id} runs as {principal}, who alone may change it; you may pause or remove it"
            raise Unauthorized("routine_not_own", message)

        async def attempt() -> Routine:
            routine = await self.get(principal, routine_id)
            if given and routine.is_configured:
                raise _configured(routine_id)
            definition = await self._changed(routine.definition, given) if given else routine.definition
            is_paused = routine.is_paused if wish.paused is UNSET else bool(wish.paused)
            return await self._replace(by, routine, definition, is_paused)

        return await self._until_current(attempt)

    async def remove(self, principal: Principal, routine_id: RoutineId, by: Principal) -> None:
        """Removes a routine with its prompt. Its history stays for a while; a run that goes on is not cancelled."""

        async def attempt() -> None:
            routine = await self.get(principal, routine_id)
            if routine.is_configured:
                raise _configured(routine_id)
            await self._remove(by, routine)

        await self._until_current(attempt)

    async def run(self, principal: Principal, routine_id: RoutineId) -> RoutineFireView:
        """Queues a run now, besides the schedule. Its overlap rule holds."""
        if not await self.jobs.has_room(ROUTINE_KIND.name, principal):
            raise Unavailable("job_queue_full", "too many jobs of routines wait already; try later")

        async def attempt() -> int:
            routine = await self.get(principal, routine_id)
            due_at_ms = self.tape.clock.now_ms()
            while await self.views.fire(routine_id, due_at_ms) is not None:
                due_at_ms += 1
            fact, writes = fire_parts(self.jobs, routine, DueTime(at_ms=due_at_ms, is_manual=True))
            counted = replace(routine, fired_count=routine.fired_count + 1, revision=routine.revision + 1)
            await self.tape.commit(principal, (fact,), (PutRoutine(counted), *writes))
            return due_at_ms

        due_at_ms = await self._until_current(attempt)
        self.jobs.wake()
        return (await self.views.history(routine_id, principal, due_at_ms + 1, 1))[0]

    async def history(
        self, principal: Principal, routine_id: RoutineId, before_ms: int | None, limit: int
    ) -> tuple[RoutineFireView, ...]:
        """Returns times that came, the newest first, also of a routine that was removed."""
        routine = await self.views.routine(routine_id)
        if routine is None or routine.principal != principal:
            raise _unknown(routine_id)
        return await self.views.history(routine_id, principal, before_ms, min(limit, PAGE_MAX))

    async def sync(self, configured: Sequence[ConfiguredRoutine]) -> None:
        """Makes the routines of palyra.toml those that are stored: new ones, changed ones, removed ones."""
        wanted = {configured_routine_id(one.definition.name): one for one in configured}
        for routine in await self._stored_from_file():
            if routine.id not in wanted:
                await self._remove(SCHEDULER, routine)
        for routine_id, one in wanted.items():
            try:
                await self._take_over(routine_id, one)
            except Conflict as conflict:
                log.error("routine_left_out", name=one.definition.name, code=conflict.code, message=conflict.message)

    async def _stored_from_file(self) -> tuple[Routine, ...]:
        stored: tuple[Routine, ...] = ()
        after = ""
        while page := await self.views.list_routines(None, after, PAGE_MAX):
            stored += tuple(routine for routine in page if routine.is_configured)
            after = page[-1].id
        return stored

    async def _take_over(self, routine_id: RoutineId, one: ConfiguredRoutine) -> None:
        """A changed schedule begins anew. A single moment that is over before it was ever seen does not fire."""
        definition = await asyncio.to_thread(self._cleaned, one.definition)
        stored, now_ms = await self.views.routine(routine_id), self.tape.clock.now_ms()
        is_there = stored is not None and not stored.is_removed
        if stored is not None and is_there and (stored.definition, stored.principal) == (definition, one.principal):
            return
        is_same_schedule = stored is not None and is_there and stored.definition.schedule == definition.schedule
        next_ms = stored.next_at_ms if stored is not None and is_same_schedule else self._first_or_none(definition)
        if next_ms is None and not is_same_schedule:
            log.warning("routine_is_over", name=definition.name, message="its time has passed already")
        routine = Routine(
            id=routine_id,
            principal=one.principal,
            definition=definition,
            is_configured=True,
            is_paused=stored.is_paused if stored is not None and is_there else False,
            next_at_ms=next_ms,
            last_due_ms=stored.last_due_ms if stored is not None else None,
            fired_count=stored.fired_count if stored is not None else 0,
            skipped_count=stored.skipped_count if stored is not None else 0,
            revision=stored.revision + 1 if stored is not None else 1,
            created_at_ms=stored.created_at_ms if stored is not None else now_ms,
            updated_at_ms=now_ms,
        )
        if stored is None or not is_there:
            await self._commit_new(SCHEDULER, routine, "file")
            return
        changed = (*_differences(stored.definition, definition), *_if(stored.principal != one.principal, "principal"))
        fact = RoutineChanged(routine_id=routine_id, fields=changed, next_at_ms=next_ms)
        await self.tape.commit(SCHEDULER, (fact,), (PutRoutine(routine),))

    async def _create(self, principal: Principal, wish: RoutineWish, routine_id: RoutineId, source: str) -> Routine:
        definition = await self._definition(wish)
        next_ms, now_ms = self._first(definition), self.tape.clock.now_ms()
        if await self.views.count_routines(principal) >= ROUTINES_PER_PRINCIPAL_MAX:
            message = f"{principal} has {ROUTINES_PER_PRINCIPAL_MAX} routines, which is the most; remove one first"
            raise Conflict("routines_max", message, is_retryable=False)
        routine = Routine(
            id=routine_id,
            principal=principal,
            definition=definition,
            next_at_ms=next_ms,
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        await self._commit_new(principal, routine, source)
        self.changed()
        return routine

    async def _commit_new(self, actor: Principal, routine: Routine, source: str) -> None:
        fact = RoutineCreated(
            routine_id=routine.id,
            principal=routine.principal,
            source=source,
            schedule=str(type(routine.definition.schedule).__struct_config__.tag),
            next_at_ms=routine.next_at_ms,
        )
        try:
            await self.tape.commit(actor, (fact,), (PutRoutine(routine),))
        except Conflict as conflict:
            raise _told(conflict) from conflict

    async def _replace(
        self, by: Principal, routine: Routine, definition: RoutineDefinition, is_paused: bool
    ) -> Routine:
        names = (*_differences(routine.definition, definition), *_if(is_paused != routine.is_paused, "paused"))
        if not names:
            return routine
        next_ms = routine.next_at_ms
        if definition.schedule != routine.definition.schedule:
            next_ms = self._first(definition)
        elif routine.is_paused and not is_paused:
            next_ms = self._resumed(routine)
        changed = replace(
            routine,
            definition=definition,
            is_paused=is_paused,
            next_at_ms=next_ms,
            revision=routine.revision + 1,
            updated_at_ms=self.tape.clock.now_ms(),
        )
        fact = RoutineChanged(routine_id=routine.id, fields=names, next_at_ms=next_ms)
        await self.tape.commit(by, (fact,), (PutRoutine(changed),))
        self.changed()
        return changed

    async def _remove(self, by: Principal, routine: Routine) -> None:
        removed = replace(
            routine,
            definition=replace(routine.definition, prompt="", session_key=None),
            is_removed=True,
            next_at_ms=None,
            revision=routine.revision + 1,
            updated_at_ms=self.tape.clock.now_ms(),
        )
        await self.tape.commit(by, (RoutineRemoved(routine_id=routine.id),), (PutRoutine(removed),))
        self.changed()

    async def _until_current(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """Repeats an attempt that found the routine changed meanwhile."""
        attempts_left = ATTEMPTS_MAX
        while True:
            try:
                return await attempt()
            except Conflict as conflict:
                attempts_left -= 1
                if conflict.code != "lease_lost" or attempts_left == 0:
                    raise _told(conflict) from conflict

    async def _definition(self, wish: RoutineWish) -> RoutineDefinition:
        return self._defined(await asyncio.to_thread(self._cleaned, wish))

    def _defined(self, wish: RoutineWish) -> RoutineDefinition:
        if wish.agent is not None:
            self.agents.find(wish.agent)
        if wish.channel is not None:
            self.channels.routine_address(wish.channel)
        return make_definition(wish, self.cron.check)

    def _cleaned(self, said: Said) -> Said:
        """Redacts every text of a wish or a definition, because all of them are stored and shown (L5)."""
        texts = {name: text for name in said.__struct_fields__ if isinstance(text := getattr(said, name), str)}
        return replace(said, **{name: self.clean(text) for name, text in texts.items()})

    async def _changed(self, definition: RoutineDefinition, given: dict[str, object]) -> RoutineDefinition:
        wish = wish_of(definition)
        if {"every_s", "cron", "at"} & set(given):
            wish = replace(wish, every_s=None, cron=None, at=None)
        return await self._definition(replace(wish, **given))

    def _first(self, definition: RoutineDefinition) -> int:
        first_ms = self._first_or_none(definition)
        if first_ms is None:
            raise Invalid("time_past", "that time has passed already; give one that is still to come")
        return first_ms

    def _first_or_none(self, definition: RoutineDefinition) -> int | None:
        return first_time(definition.schedule, self.tape.clock.now_ms(), self.cron.next_ms)

    def _resumed(self, routine: Routine) -> int | None:
        """Returns the next time after a pause. What passed meanwhile is not made up for."""
        now_ms, known_ms = self.tape.clock.now_ms(), routine.next_at_ms
        if known_ms is None or known_ms > now_ms:
            return known_ms
        return time_after(routine.definition.schedule, known_ms, now_ms, self.cron.next_ms)


def _differences(before: RoutineDefinition, after: RoutineDefinition) -> tuple[str, ...]:
    names = [field.name for field in fields(RoutineDefinition)]
    return tuple(name for name in names if getattr(before, name) != getattr(after, name))


def _if(is_so: bool, name: str) -> tuple[str, ...]:
    return (name,) if is_so else ()


def _told(conflict: Conflict) -> Conflict:
    if conflict.code == "routine_name_taken":
        message = "another routine of the same principal has this name already; choose another"
        return Conflict(conflict.code, message, is_retryable=False)
    if conflict.code == "lease_lost":
        return Conflict("routine_changed", "the routine has just changed; look at it again")
    return conflict


def _unknown(routine_id: RoutineId) -> NotFound:
    return NotFound("routine_unknown", f"there is no routine {routine_id}; palyra routines list shows those there are")


def _configured(routine_id: RoutineId) -> Conflict:
    message = f"routine {routine_id} is set in palyra.toml: change it there and restart; it can be paused and run here"
    return Conflict("routine_configured", message, is_retryable=False)
