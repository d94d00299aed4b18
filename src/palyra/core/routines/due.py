"""What a routine does now: which times fire, which are skipped, and which comes next.

Owns: the rule for missed times, and what follows when the clock was set back.
Does not own: reading the clock, nor committing the plan (engine.routines.scheduler).
A time is on time if the daemon was awake when it came, and missed if it came while the daemon was off or suspended.
Invariants: a time that was planned is at or before `last_due_ms`, and is not planned again. Everything that passed is
either fired or counted as skipped.
"""

from typing import assert_never

import msgspec
from msgspec.structs import replace

from palyra.core.routines.model import CronSchedule, EverySchedule, Misfire, OnceSchedule, Routine
from palyra.core.routines.schedule import CronNext, passed_times, time_after

ON_TIME_MAX = 32  # Far more than come between two looks while awake; only a full queue lets more wait.
GAP_MS = 10_000  # A longer time between two looks at the clock means that the machine slept or its clock was set.
BACK_MS = 1_000  # Clocks are corrected by less than this all the time.


class RoutinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """`fires` are due times, oldest first. `skipped_at_ms` is the last skipped time, of `skipped_count`."""

    fires: tuple[int, ...]
    skipped_at_ms: int | None
    skipped_count: int
    next_at_ms: int | None
    last_due_ms: int


def plan_routine(routine: Routine, now_ms: int, awake_since_ms: int, cron: CronNext) -> RoutinePlan | None:
    first_ms = routine.next_at_ms
    if first_ms is None or first_ms > now_ms or routine.is_paused or routine.is_removed:
        return None
    schedule, made_up_max = routine.definition.schedule, _made_up_max(routine)
    missed = passed_times(schedule, first_ms, min(now_ms, awake_since_ms - 1), made_up_max + 1, cron)
    from_ms = first_ms if missed.count == 0 else time_after(schedule, first_ms, awake_since_ms - 1, cron)
    awake = passed_times(schedule, now_ms + 1 if from_ms is None else from_ms, now_ms, ON_TIME_MAX + 1, cron)
    made_up = missed.newest[-made_up_max:] if made_up_max else ()
    on_time = awake.newest[-ON_TIME_MAX:]
    skipped = (*missed.newest[: len(missed.newest) - len(made_up)], *awake.newest[: len(awake.newest) - len(on_time)])
    return RoutinePlan(
        fires=(*made_up, *on_time),
        skipped_at_ms=skipped[-1] if skipped else None,
        skipped_count=missed.count - len(made_up) + awake.count - len(on_time),
        next_at_ms=time_after(schedule, first_ms, now_ms, cron),
        last_due_ms=(*missed.newest, *awake.newest)[-1],
    )


def skip_all(plan: RoutinePlan) -> RoutinePlan:
    """Returns the plan with every time skipped."""
    skipped_ms = [*plan.fires, *(() if plan.skipped_at_ms is None else (plan.skipped_at_ms,))]
    count = plan.skipped_count + len(plan.fires)
    return replace(plan, fires=(), skipped_at_ms=max(skipped_ms, default=None), skipped_count=count)


def settled_next_ms(routine: Routine, now_ms: int, cron: CronNext) -> int | None:
    """Returns the next time, moved nearer if the clock was ahead when it was worked out.

    An interval begins again from now, because its next time cannot be further away than one interval. A cron time moves
    to the first one after now, or after the last due time if that has just come. A single moment never moves.
    """
    next_ms, schedule = routine.next_at_ms, routine.definition.schedule
    if next_ms is None:
        return None
    match schedule:
        case EverySchedule(every_s=every_s):
            step_ms = every_s * 1000
            if next_ms <= now_ms + step_ms:
                return next_ms
            # Off the old times by a millisecond: a due time is the name of a run, and an old one is taken.
            is_old_time = (next_ms - now_ms) % step_ms == 0
            return now_ms + step_ms + (1 if is_old_time else 0)
        case CronSchedule():
            found_ms = cron(schedule, max(now_ms, known_last_due_ms(routine, now_ms) or 0))
            return next_ms if found_ms is None else min(next_ms, found_ms)
        case OnceSchedule():
            return next_ms
        case _:
            assert_never(schedule)


def known_last_due_ms(routine: Routine, now_ms: int) -> int | None:
    """Returns the last due time, unless a clock that was ahead made it: nothing waits for such a time to pass."""
    last_ms = routine.last_due_ms
    return None if last_ms is None or last_ms > now_ms + GAP_MS else last_ms


def awake_since(before_ms: int | None, last_look_ms: int, now_ms: int) -> int:
    """Returns since when the daemon has been awake, given its last look at the clock. None means that it starts now."""
    if before_ms is None or now_ms - last_look_ms > GAP_MS:
        return now_ms
    return min(before_ms, now_ms)


def is_set_back(last_look_ms: int, now_ms: int) -> bool:
    return now_ms < last_look_ms - BACK_MS


def _made_up_max(routine: Routine) -> int:
    match routine.definition.misfire:
        case Misfire.SKIP:
            return 0
        case Misfire.ONCE:
            return 1
        case Misfire.ALL:
            return routine.definition.misfire_max
        case unknown:
            assert_never(unknown)
