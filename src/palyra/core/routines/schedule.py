"""The times of a schedule.

Owns: the first time, the time after a moment, and the times between two moments.
Does not own: reading cron expressions; `CronNext` arrives as an argument (ports.cron).
"""

from collections.abc import Callable, Iterator
from typing import assert_never

import msgspec

from palyra.core.routines.model import CronSchedule, EverySchedule, OnceSchedule, RoutineSchedule

COUNTED_MAX = 1_000  # Passed times of a cron expression are counted up to here.
WINDOW_FIRST_MS = 3_600_000

CronNext = Callable[[CronSchedule, int], int | None]


class PassedTimes(msgspec.Struct, frozen=True):
    """The newest of the passed times, oldest first, and how many passed in all; of cron at least so many."""

    newest: tuple[int, ...]
    count: int


def first_time(schedule: RoutineSchedule, now_ms: int, cron: CronNext) -> int | None:
    """Returns the first time of a schedule that begins now. None means that there is none any more."""
    match schedule:
        case EverySchedule(every_s=every_s):
            return now_ms + every_s * 1000
        case CronSchedule():
            return cron(schedule, now_ms)
        case OnceSchedule(at_ms=at_ms):
            return at_ms if at_ms > now_ms else None
        case _:
            assert_never(schedule)


def time_after(schedule: RoutineSchedule, known_ms: int, after_ms: int, cron: CronNext) -> int | None:
    """Returns the first time after `after_ms`. `known_ms` is a time of the schedule, from which intervals count."""
    match schedule:
        case EverySchedule(every_s=every_s):
            step_ms = every_s * 1000
            return known_ms + ((after_ms - known_ms) // step_ms + 1) * step_ms
        case CronSchedule():
            return cron(schedule, after_ms)
        case OnceSchedule():
            return None
        case _:
            assert_never(schedule)


def passed_times(
    schedule: RoutineSchedule, first_ms: int, until_ms: int, newest_max: int, cron: CronNext
) -> PassedTimes:
    """Returns the times from `first_ms`, which is one of them, up to and with `until_ms`."""
    if first_ms > until_ms:
        return PassedTimes((), 0)
    match schedule:
        case EverySchedule(every_s=every_s):
            step_ms = every_s * 1000
            count = (until_ms - first_ms) // step_ms + 1
            oldest = max(0, count - newest_max)
            return PassedTimes(tuple(first_ms + index * step_ms for index in range(oldest, count)), count)
        case OnceSchedule():
            return PassedTimes((first_ms,)[:newest_max], 1)
        case CronSchedule():
            return _passed_cron_times(schedule, first_ms, until_ms, newest_max, cron)
        case _:
            assert_never(schedule)


def _passed_cron_times(
    schedule: CronSchedule, first_ms: int, until_ms: int, newest_max: int, cron: CronNext
) -> PassedTimes:
    """Counts from the beginning up to a limit. Beyond it, looks for the newest in growing windows before the end."""
    times: list[int] = []
    for time_ms in _cron_times(schedule, first_ms - 1, until_ms, cron):
        times.append(time_ms)
        if len(times) == COUNTED_MAX:
            break
    else:
        return PassedTimes(tuple(times[max(0, len(times) - newest_max) :]), len(times))
    window_ms, newest = WINDOW_FIRST_MS, list[int]()
    while len(newest) < newest_max:
        newest = list(_cron_times(schedule, max(first_ms - 1, until_ms - window_ms), until_ms, cron))
        if until_ms - window_ms < first_ms:
            break
        window_ms *= 2
    return PassedTimes(tuple(newest[max(0, len(newest) - newest_max) :]), COUNTED_MAX)


def _cron_times(schedule: CronSchedule, after_ms: int, until_ms: int, cron: CronNext) -> Iterator[int]:
    time_ms = cron(schedule, after_ms)
    while time_ms is not None and time_ms <= until_ms:
        yield time_ms
        time_ms = cron(schedule, time_ms)
