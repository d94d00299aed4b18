"""Rules of routines: the times of a schedule, missed times, a clock that is set, and overlapping runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.ids import RunId
from palyra.core.routines.due import (
    GAP_MS,
    ON_TIME_MAX,
    awake_since,
    is_set_back,
    known_last_due_ms,
    plan_routine,
    settled_next_ms,
)
from palyra.core.routines.model import (
    WAITING_RUNS_MAX,
    CronSchedule,
    EverySchedule,
    Misfire,
    OnceSchedule,
    Overlap,
    Routine,
    RoutineSchedule,
)
from palyra.core.routines.overlap import SkipTime, StartAfter, decide_overlap
from palyra.core.routines.schedule import first_time, passed_times, time_after
from palyra.core.routines.wish import RoutineWish, make_definition, moment_text, wish_of
from tests.support.routines import START_MS, local_ms, routine_at, wish

EVERY_HOUR = CronSchedule("0 * * * *", "UTC")
HOUR_MS = 3_600_000


def no_check(schedule: CronSchedule) -> None:
    """Takes every expression."""


def hourly(schedule: CronSchedule, after_ms: int) -> int | None:
    """Cron for tests of rules: every full hour."""
    return (after_ms // HOUR_MS + 1) * HOUR_MS


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (EverySchedule(1), START_MS + 1_000),
        (EverySchedule(3600), START_MS + HOUR_MS),
        (EVERY_HOUR, START_MS + HOUR_MS),
        (OnceSchedule(START_MS + 1), START_MS + 1),
        (OnceSchedule(START_MS), None),
    ],
)
def test_first_time_lies_after_now(schedule: RoutineSchedule, expected: int | None) -> None:
    assert first_time(schedule, START_MS, hourly) == expected


@given(st.integers(1, 100_000), st.integers(0, 10**13), st.integers(0, 10**10))
def test_interval_times_keep_their_distance_and_lie_after_the_moment(every_s: int, known: int, ahead: int) -> None:
    after = known + ahead
    found = time_after(EverySchedule(every_s), known, after, hourly)
    assert found is not None
    assert after < found <= after + every_s * 1000
    assert (found - known) % (every_s * 1000) == 0


@given(st.integers(1, 5_000), st.integers(0, 20_000_000), st.integers(1, 200))
def test_passed_interval_times_are_all_counted_and_the_newest_are_named(every_s: int, span: int, most: int) -> None:
    first, until = START_MS, START_MS + span
    every = list(range(first, until + 1, every_s * 1000))
    found = passed_times(EverySchedule(every_s), first, until, most, hourly)
    assert (found.newest, found.count) == (tuple(every[-most:]), len(every))


@pytest.mark.parametrize("hours", [0, 1, 5, 999, 1_000, 5_000, 100_000])
def test_passed_cron_times_end_with_the_newest_however_many_there_are(hours: int) -> None:
    first = START_MS - START_MS % HOUR_MS
    found = passed_times(EVERY_HOUR, first, first + hours * HOUR_MS, 3, hourly)
    assert found.count == min(hours + 1, 1_000)
    every = [first + hour * HOUR_MS for hour in range(hours + 1)]
    assert found.newest == tuple(every[-3:])


MINUTE = 60_000
FIVE = tuple(START_MS + index * MINUTE for index in range(5))


@pytest.mark.parametrize(
    ("misfire", "most", "fires", "skipped"),
    [
        (Misfire.SKIP, 10, (), (FIVE[-1], 5)),
        (Misfire.ONCE, 10, FIVE[-1:], (FIVE[-2], 4)),
        (Misfire.ALL, 10, FIVE, (None, 0)),
        (Misfire.ALL, 5, FIVE, (None, 0)),
        (Misfire.ALL, 2, FIVE[-2:], (FIVE[-3], 3)),
        (Misfire.ALL, 1, FIVE[-1:], (FIVE[-2], 4)),
    ],
)
def test_missed_times_are_made_up_for_as_the_rule_says(
    misfire: Misfire, most: int, fires: tuple[int, ...], skipped: tuple[int | None, int]
) -> None:
    routine = routine_at(START_MS, misfire=misfire, misfire_max=most)
    now = FIVE[-1] + 30_000
    plan = plan_routine(routine, now, now, hourly)
    assert plan is not None
    assert plan.fires == fires
    assert (plan.skipped_at_ms, plan.skipped_count) == skipped
    assert (plan.next_at_ms, plan.last_due_ms) == (FIVE[-1] + MINUTE, FIVE[-1])


@pytest.mark.parametrize("misfire", list(Misfire))
def test_a_time_that_came_while_awake_fires_however_late_the_look_is(misfire: Misfire) -> None:
    plan = plan_routine(routine_at(START_MS, misfire=misfire), START_MS + 900, START_MS - 1, hourly)
    assert plan is not None
    assert (plan.fires, plan.skipped_count) == ((START_MS,), 0)


def test_missed_times_and_those_since_waking_are_told_apart() -> None:
    routine = routine_at(START_MS, EverySchedule(1))
    plan = plan_routine(routine, START_MS + 9_000, START_MS + 7_500, hourly)
    assert plan is not None
    assert plan.fires == (START_MS + 8_000, START_MS + 9_000)
    assert (plan.skipped_at_ms, plan.skipped_count) == (START_MS + 7_000, 8)


def test_times_that_a_full_queue_held_up_are_fired_up_to_a_limit_and_counted() -> None:
    plan = plan_routine(routine_at(START_MS, EverySchedule(1)), START_MS + 99_000, START_MS, hourly)
    assert plan is not None
    assert plan.fires == tuple(START_MS + 1_000 * second for second in range(100 - ON_TIME_MAX, 100))
    assert (plan.skipped_at_ms, plan.skipped_count) == (plan.fires[0] - 1_000, 100 - ON_TIME_MAX)


@pytest.mark.parametrize("misfire", list(Misfire))
def test_a_single_moment_fires_or_is_skipped_once_and_is_over(misfire: Misfire) -> None:
    routine = routine_at(START_MS, OnceSchedule(START_MS), misfire)
    late = plan_routine(routine, START_MS + HOUR_MS, START_MS + HOUR_MS, hourly)
    awake = plan_routine(routine, START_MS, START_MS, hourly)
    assert late is not None
    assert awake is not None
    assert late.fires == (() if misfire is Misfire.SKIP else (START_MS,))
    assert awake.fires == (START_MS,)
    assert late.next_at_ms is awake.next_at_ms is None


@pytest.mark.parametrize(
    "routine",
    [
        routine_at(None),
        routine_at(START_MS + 1),
        routine_at(START_MS, is_paused=True),
        routine_at(START_MS, is_removed=True),
    ],
)
def test_nothing_is_due_of_a_routine_that_is_over_early_paused_or_removed(routine: Routine) -> None:
    assert plan_routine(routine, START_MS, 0, hourly) is None


SCHEDULES = st.sampled_from([EverySchedule(1), EverySchedule(7), EverySchedule(3_600), EVERY_HOUR])
STEPS = st.lists(st.tuples(st.integers(0, 40_000), st.booleans()), min_size=1, max_size=40)


@given(SCHEDULES, st.sampled_from(Misfire), STEPS)
def test_no_history_of_looks_fires_a_time_twice_or_forgets_one(
    schedule: RoutineSchedule, misfire: Misfire, steps: list[tuple[int, bool]]
) -> None:
    """Each step looks later by some milliseconds, perhaps after a restart. Every time is fired or skipped, once."""
    first = first_time(schedule, START_MS, hourly)
    routine = routine_at(first, schedule, misfire, misfire_max=3)
    now, awake = START_MS, START_MS
    fired: list[int] = []
    skipped_count = 0
    for later, is_restart in steps:
        last_look, now = now, now + later
        awake = awake_since(None if is_restart else awake, last_look, now)
        plan = plan_routine(routine, now, awake, hourly)
        if plan is None:
            continue
        fired += plan.fires
        skipped_count += plan.skipped_count
        routine = routine_at(plan.next_at_ms, schedule, misfire, misfire_max=3, last_due_ms=plan.last_due_ms)
    assert fired == sorted(set(fired))
    assert first is not None
    assert len(fired) + skipped_count == passed_times(schedule, first, now, 1, hourly).count
    assert routine.next_at_ms is not None
    assert routine.next_at_ms > now


@pytest.mark.parametrize(
    ("schedule", "next_ms", "last_due_ms", "expected"),
    [
        (EverySchedule(60), START_MS + 60_000, None, START_MS + 60_000),
        (EverySchedule(60), START_MS + 1_000, None, START_MS + 1_000),
        (EverySchedule(60), START_MS - 1_000, None, START_MS - 1_000),
        (EverySchedule(60), START_MS + 90_000, None, START_MS + 60_000),
        (EverySchedule(60), START_MS + 120_000, START_MS + 60_000, START_MS + 60_001),
        (EVERY_HOUR, START_MS + 900 * HOUR_MS, None, START_MS + HOUR_MS),
        (EVERY_HOUR, START_MS + 3 * HOUR_MS, START_MS + 2 * HOUR_MS, START_MS + HOUR_MS),
        (OnceSchedule(START_MS + HOUR_MS), START_MS + HOUR_MS, None, START_MS + HOUR_MS),
        (EverySchedule(60), None, START_MS, None),
    ],
)
def test_a_clock_set_back_moves_the_next_time_nearer(
    schedule: RoutineSchedule, next_ms: int | None, last_due_ms: int | None, expected: int | None
) -> None:
    assert settled_next_ms(routine_at(next_ms, schedule, last_due_ms=last_due_ms), START_MS, hourly) == expected


def test_a_long_time_between_two_looks_is_sleep_and_a_short_one_is_not() -> None:
    assert awake_since(None, 0, START_MS) == START_MS
    assert awake_since(5, START_MS, START_MS + GAP_MS) == 5
    assert awake_since(5, START_MS, START_MS + GAP_MS + 1) == START_MS + GAP_MS + 1
    assert awake_since(START_MS, START_MS, START_MS - HOUR_MS) == START_MS - HOUR_MS
    assert [is_set_back(START_MS, START_MS - back) for back in (0, 999, 1_000, 1_001)] == [False, False, False, True]


RUNS = [RunId(f"run{number}") for number in range(WAITING_RUNS_MAX + 1)]


@pytest.mark.parametrize(
    ("overlap", "active", "expected"),
    [
        (Overlap.FORBID, 0, StartAfter()),
        (Overlap.FORBID, 1, SkipTime("overlap")),
        (Overlap.QUEUE, 0, StartAfter()),
        (Overlap.QUEUE, WAITING_RUNS_MAX - 1, StartAfter()),
        (Overlap.QUEUE, WAITING_RUNS_MAX, SkipTime("queue_full")),
        (Overlap.REPLACE, 0, StartAfter()),
        (Overlap.REPLACE, 2, StartAfter(tuple(RUNS[:2]))),
    ],
)
def test_overlap_is_decided_by_the_runs_that_go_on(
    overlap: Overlap, active: int, expected: StartAfter | SkipTime
) -> None:
    assert decide_overlap(overlap, RUNS[:active]) == expected


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (wish(name=""), "routine_name_empty"),
        (wish(name="a" * 65), "routine_name_length"),
        (wish(name="a\nb"), "routine_name_invalid"),
        (wish(prompt=" "), "routine_prompt_empty"),
        (wish(prompt="a" * 20_001), "routine_prompt_length"),
        (wish(every_s=0), "routine_interval"),
        (wish(every_s=367 * 24 * 3600), "routine_interval"),
        (wish(every_s=1, cron="* * * * *"), "routine_schedule"),
        (RoutineWish(name="a", prompt="b"), "routine_schedule"),
        (wish(cron="*" * 200), "cron_invalid"),
        (wish(at="tomorrow"), "time_invalid"),
        (wish(at="0001-01-01T00:00:00+14:00"), "time_invalid"),
        (wish(at="2201-01-01T00:00:00Z"), "time_invalid"),
        (wish(at="9999-12-31T23:59:59+00:00", timezone="Pacific/Auckland"), "time_invalid"),
        (wish(at="2026-03-29T02:30:00", timezone="Europe/Prague"), "time_missing"),
        (wish(timezone="Mars/Olympus"), "timezone_unknown"),
        (wish(timezone="../etc/passwd"), "timezone_unknown"),
        (wish(timezone=""), "timezone_unknown"),
        (wish(misfire_max=0), "routine_misfire_max"),
        (wish(misfire_max=101), "routine_misfire_max"),
        (wish(session_key=""), "routine_session_key_empty"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_its_reason(asked: RoutineWish, code: str) -> None:
    with pytest.raises(Invalid) as refusal:
        make_definition(asked, no_check)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (wish(at="2027-01-31T07:30:00+01:00"), local_ms("2027-01-31T07:30:00", "Europe/Prague")),
        (wish(at="2027-01-31T07:30:00", timezone="Europe/Prague"), local_ms("2027-01-31T07:30:00", "Europe/Prague")),
        (wish(at="2027-01-31T07:30:00Z"), local_ms("2027-01-31T07:30:00", "UTC")),
        # It exists twice, and means the first.
        (wish(at="2026-10-25T02:30:00", timezone="Europe/Prague"), local_ms("2026-10-25T02:30:00", "Europe/Prague")),
    ],
)
def test_a_moment_is_read_in_its_zone(asked: RoutineWish, expected: int) -> None:
    assert make_definition(asked, no_check).schedule == OnceSchedule(expected)


@pytest.mark.parametrize(
    "asked",
    [wish(), wish(cron="30 7 * * 1-5", timezone="Europe/Prague"), wish(at="2027-01-31T07:30:00+01:00", agent="main")],
)
def test_a_definition_can_be_told_as_a_wish_again(asked: RoutineWish) -> None:
    definition = make_definition(asked, no_check)
    assert make_definition(wish_of(definition), no_check) == definition


def test_a_missed_moment_is_made_up_for_by_default_and_other_times_are_not() -> None:
    assert make_definition(wish(at="2027-01-31T07:30:00Z"), no_check).misfire is Misfire.ONCE
    assert make_definition(wish(), no_check).misfire is Misfire.SKIP
    assert make_definition(wish(misfire=Misfire.ALL), no_check).misfire is Misfire.ALL


@given(st.integers(-(10**20), 10**20), st.sampled_from(["UTC", "Pacific/Auckland", "America/Adak", "Mars", "", "../x"]))
def test_every_stored_moment_can_be_told(at_ms: int, zone: str) -> None:
    assert moment_text(at_ms, zone)


@pytest.mark.parametrize("at_ms", [253_402_300_799_000, 10**18])
def test_a_stored_routine_with_an_odd_moment_still_has_a_wish(at_ms: int) -> None:
    routine = routine_at(at_ms, OnceSchedule(at_ms))
    assert wish_of(replace(routine.definition, timezone="Pacific/Auckland")).at


def test_a_cron_time_that_has_just_come_is_not_the_next_one() -> None:
    now = START_MS - 500
    routine = routine_at(START_MS + HOUR_MS, EVERY_HOUR, last_due_ms=START_MS)
    assert settled_next_ms(routine, now, hourly) == START_MS + HOUR_MS
    assert known_last_due_ms(routine, now) == START_MS
    assert known_last_due_ms(routine, START_MS - GAP_MS - 1) is None
