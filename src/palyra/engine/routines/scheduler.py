"""The scheduler of routines.

Owns: looking at the clock, and committing what core.routines.due plans.
Does not own: rules (core.routines), starting runs (fire_handler), changing routines (engine.api.routines).
Invariant: a routine's new next time, the jobs of its due times and their events are one commit, under the revision that
was read. So a time fires once, whatever crashes and however the clock is set.

It reads the wall clock about once a second, which costs nothing but that. It reads the database only when a time has
come, a routine has changed, or the clock was set.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import structlog
from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid, PalyraError
from palyra.core.events import Data
from palyra.core.events.routine import RoutineChanged, RoutineFired, RoutineSkipped
from palyra.core.ids import Principal
from palyra.core.routines.due import (
    RoutinePlan,
    awake_since,
    is_set_back,
    known_last_due_ms,
    plan_routine,
    settled_next_ms,
    skip_all,
)
from palyra.core.routines.model import HISTORY_MAX, REMOVED_KEPT_MS, CronSchedule, Routine, RoutineFire
from palyra.core.writes import DropRoutines, PutRoutine, RecordFire, Write
from palyra.engine.api.jobs import JobRequest, JobService
from palyra.engine.routines.fire_handler import ROUTINE_KIND
from palyra.engine.routines.routine_tape import RoutineTape
from palyra.ports.clock import Clock
from palyra.ports.cron import Cron
from palyra.ports.routines import RoutineViews

LOOK_EVERY_S = 1.0
RETRY_S = 5.0  # After a failure of the disk.
PAGE_ROUTINES = 200
PAGES_MAX = 100
SCHEDULER = Principal("system:routines")

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class RoutineScheduler:
    """`changed` is set when a routine was created, changed or removed.

    While the daemon drains nothing fires. A time that comes then is missed, and the next start treats it as such.
    """

    views: RoutineViews
    tape: RoutineTape
    jobs: JobService
    cron: Cron
    clock: Clock
    changed: asyncio.Event
    is_draining: bool = False
    _awake_since_ms: int | None = None
    _last_look_ms: int = 0
    _next_ms: int | None = None
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def keep(self) -> None:
        """Works until it is cancelled."""
        self.changed.set()
        while True:
            try:
                wait_s = await self.look()
            except PalyraError as error:
                log.warning("routines_not_looked_at", code=error.code, message=error.message)
                self.changed.set()
                await asyncio.sleep(RETRY_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.changed.wait()

    async def look(self) -> float:
        """Looks at the clock once and fires what is due. Returns how long to wait for the next look."""
        async with self._looking:
            return await self._look()

    async def _look(self) -> float:
        if self.is_draining:
            self.changed.clear()
            return LOOK_EVERY_S
        now_ms, is_start = self.clock.now_ms(), self._awake_since_ms is None
        if is_start or is_set_back(self._last_look_ms, now_ms):
            await self._settle(now_ms)
            self.changed.set()
        self._awake_since_ms = awake_since(self._awake_since_ms, self._last_look_ms, now_ms)
        self._last_look_ms = now_ms
        if self.changed.is_set():
            self.changed.clear()
            self._next_ms = await self.views.next_due_ms()
        if self._next_ms is not None and self._next_ms <= now_ms:
            if not await self._fire_due(now_ms, self._awake_since_ms):
                return LOOK_EVERY_S
            self._next_ms = await self.views.next_due_ms()
        wait_ms = LOOK_EVERY_S * 1000 if self._next_ms is None else self._next_ms - self.clock.now_ms()
        return max(0.0, min(LOOK_EVERY_S, wait_ms / 1000))

    async def _settle(self, now_ms: int) -> None:
        """Moves next times nearer that were worked out by a clock that was ahead. Forgets what was removed long ago."""
        await self.tape.system.journal.commit((), (DropRoutines(now_ms - REMOVED_KEPT_MS),))
        after = ""
        while found := await self.views.list_routines(None, after, PAGE_ROUTINES):
            for routine in found:
                next_ms = await self._unfired(routine, self._settled(routine, now_ms))
                if next_ms != routine.next_at_ms:
                    await self._move(routine, next_ms, now_ms)
            after = found[-1].id

    def _settled(self, routine: Routine, now_ms: int) -> int | None:
        """A schedule that cannot be read any more, as after a change of the time zones, has no next time."""
        try:
            return settled_next_ms(routine, now_ms, self.cron.next_ms)
        except Invalid as error:
            log.error("routine_unreadable", routine_id=routine.id, code=error.code, message=error.message)
            return None

    async def _unfired(self, routine: Routine, next_ms: int | None) -> int | None:
        """Moves on from cron times that fired before the clock was set back. Beyond the history their runs tell."""
        schedule = routine.definition.schedule
        for _ in range(HISTORY_MAX):
            if next_ms is None or next_ms == routine.next_at_ms or not isinstance(schedule, CronSchedule):
                break
            fire = await self.views.fire(routine.id, next_ms)
            if fire is None or fire.reason is not None:
                break
            next_ms = self.cron.next_ms(schedule, next_ms)
        return next_ms

    async def _move(self, routine: Routine, next_ms: int | None, now_ms: int) -> None:
        moved = replace(routine, next_at_ms=next_ms, revision=routine.revision + 1, updated_at_ms=now_ms)
        fact = RoutineChanged(routine_id=routine.id, fields=("next_at_ms",), next_at_ms=next_ms)
        with contextlib.suppress(Conflict):  # Whoever changed it meanwhile has worked the next time out anew.
            await self.tape.commit(SCHEDULER, (fact,), (PutRoutine(moved),))

    async def _fire_due(self, now_ms: int, awake_since_ms: int) -> bool:
        """Fires what is due. False means that some is left for the next look."""
        for _ in range(PAGES_MAX):
            found = await self.views.due_routines(now_ms, PAGE_ROUTINES)
            if not found:
                return True
            if not await self.jobs.has_room(ROUTINE_KIND.name):
                log.warning("routines_wait", message="too many jobs of routines wait already")
                return False
            for routine in found:
                if self.is_draining:
                    return False
                await self._fire(routine, now_ms, awake_since_ms)
        return False

    async def _fire(self, routine: Routine, now_ms: int, awake_since_ms: int) -> None:
        try:
            plan = plan_routine(routine, now_ms, awake_since_ms, self.cron.next_ms)
        except Invalid as error:
            log.error("routine_unreadable", routine_id=routine.id, code=error.code, message=error.message)
            await self._move(routine, None, now_ms)
            return
        if plan is None:
            return
        if await self.jobs.has_room(ROUTINE_KIND.name, routine.principal):
            await self._advance(routine, plan, now_ms, "misfire")
        else:
            # Left as it is, the routine would stand before everybody else's at each look.
            await self._advance(routine, skip_all(plan), now_ms, "queue_full")

    async def _advance(self, routine: Routine, plan: RoutinePlan, now_ms: int, reason: str) -> None:
        """Commits a plan. If the routine has changed meanwhile, it is looked at again."""
        advanced = replace(
            routine,
            next_at_ms=plan.next_at_ms,
            last_due_ms=max(plan.last_due_ms, known_last_due_ms(routine, now_ms) or 0),
            fired_count=routine.fired_count + len(plan.fires),
            skipped_count=routine.skipped_count + plan.skipped_count,
            revision=routine.revision + 1,
            updated_at_ms=now_ms,
        )
        facts: list[Data] = []
        writes: list[Write] = [PutRoutine(advanced)]
        if plan.skipped_at_ms is not None:
            skipped = replace(_skipped(routine, plan.skipped_at_ms, plan.skipped_count, now_ms), reason=reason)
            facts.append(
                RoutineSkipped(routine_id=routine.id, due_at_ms=skipped.due_at_ms, reason=reason, count=skipped.count)
            )
            writes.append(RecordFire(skipped, HISTORY_MAX))
        for due in _due_times(plan):
            fact, more = fire_parts(self.jobs, routine, due)
            facts.append(fact)
            writes += more
        with contextlib.suppress(Conflict):
            await self.tape.commit(SCHEDULER, facts, writes)
            self.jobs.wake()


class DueTime(msgspec.Struct, frozen=True, kw_only=True):
    """`later_count` is the number of times that are made up for after this one, in the same commit."""

    at_ms: int
    is_manual: bool = False
    is_one_of_many: bool = False
    later_count: int = 0


def _due_times(plan: RoutinePlan) -> Iterator[DueTime]:
    count = len(plan.fires)
    for place, at_ms in enumerate(plan.fires, 1):
        yield DueTime(at_ms=at_ms, is_one_of_many=count > 1, later_count=count - place)


def fire_parts(jobs: JobService, routine: Routine, due: DueTime) -> tuple[RoutineFired, tuple[Write, ...]]:
    """Returns the event and the writes of one due time: its job, and its place in the history."""
    due_at_ms, is_manual = due.at_ms, due.is_manual
    request = JobRequest(
        kind=ROUTINE_KIND.name,
        principal=routine.principal,
        payload={"routine_id": routine.id, "due_at_ms": due_at_ms, "is_one_of_many": due.is_one_of_many},
        delay_ms=-due.later_count,  # The oldest first: jobs are begun in the order of the times they waited for.
        dedupe_key=f"{routine.id}:{due_at_ms}",
    )
    enqueue = jobs.prepare(request)
    fire = RoutineFire(
        routine_id=routine.id,
        principal=routine.principal,
        due_at_ms=due_at_ms,
        is_manual=is_manual,
        job_id=enqueue.job.id,
        at_ms=enqueue.job.created_at_ms,
    )
    fact = RoutineFired(routine_id=routine.id, due_at_ms=due_at_ms, job_id=enqueue.job.id, is_manual=is_manual)
    return fact, (enqueue, RecordFire(fire, HISTORY_MAX))


def _skipped(routine: Routine, due_at_ms: int, count: int, now_ms: int) -> RoutineFire:
    return RoutineFire(
        routine_id=routine.id, principal=routine.principal, due_at_ms=due_at_ms, count=count, at_ms=now_ms
    )
