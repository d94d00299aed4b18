"""Cron expressions: which are taken, and what summer time does to them, in both directions and on two continents."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.cron import SimulatedCron
from palyra.core.errors import Invalid
from palyra.core.routines.model import CronSchedule
from tests.support.routines import START_MS, local_ms, local_text

CRON = SimulatedCron()
PRAGUE, NEW_YORK = "Europe/Prague", "America/New_York"


def times(expression: str, zone: str, after: str, count: int) -> list[str]:
    """The next times, as the zone's clocks show them."""
    found: list[str] = []
    at_ms = local_ms(after, zone)
    for _ in range(count):
        next_ms = CRON.next_ms(CronSchedule(expression, zone), at_ms)
        assert next_ms is not None
        assert next_ms > at_ms
        at_ms = next_ms
        found.append(local_text(at_ms, zone))
    return found


def test_times_are_those_of_the_zone() -> None:
    assert times("30 7 * * 1-5", PRAGUE, "2026-07-03T08:00", 2) == [
        "2026-07-06T07:30:00+02:00",
        "2026-07-07T07:30:00+02:00",
    ]
    assert times("0 9 * * MON", NEW_YORK, "2026-01-01T00:00", 1) == ["2026-01-05T09:00:00-05:00"]
    assert times("0 0 29 2 *", "UTC", "2026-01-01T00:00", 1) == ["2028-02-29T00:00:00+00:00"]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # 02:30 does not exist: the first minute that does is in its place, and the next day is as usual.
        (
            "30 2 * * *", PRAGUE, "2026-03-28T12:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ),
        (
            "30 2 * * *", NEW_YORK, "2026-03-07T12:00",
            ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
        ),
        # Several such times come once.
        (
            "*/20 2 * * *", PRAGUE, "2026-03-28T12:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
        ),
        # One that exists right after the gap is not repeated for the one that does not.
        (
            "0 2,3 * * *", PRAGUE, "2026-03-28T12:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
        ),
        # Every hour that passes: none is left out or repeated.
        (
            "0 * * * *", PRAGUE, "2026-03-29T00:30",
            ["2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"],
        ),
    ],
)  # fmt: skip
def test_a_time_that_does_not_exist_that_day_comes_right_after_the_gap(
    expression: str, zone: str, after: str, expected: list[str]
) -> None:
    assert times(expression, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # 02:30 exists twice: the first of them is it.
        (
            "30 2 * * *", PRAGUE, "2026-10-24T12:00",
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        ),
        (
            "30 1 * * *", NEW_YORK, "2026-10-31T12:00",
            ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
        ),
        (
            "*/30 2 * * *", PRAGUE, "2026-10-24T12:00",
            ["2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"],
        ),
        (
            "0 */2 * * *", PRAGUE, "2026-10-25T00:30",
            ["2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00"],
        ),
        # Every hour that passes, so the repeated one too.
        (
            "0 * * * *", PRAGUE, "2026-10-25T01:30",
            ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"],
        ),
    ],
)  # fmt: skip
def test_a_time_that_exists_twice_comes_once(expression: str, zone: str, after: str, expected: list[str]) -> None:
    assert times(expression, zone, after, len(expected)) == expected


@pytest.mark.parametrize("minute", range(0, 60, 7))
def test_a_moment_in_the_second_pass_of_an_hour_brings_back_no_time_of_the_first(minute: int) -> None:
    after_ms = local_ms(f"2026-10-25T02:{minute:02}", PRAGUE, fold=1)
    found = CRON.next_ms(CronSchedule("*/5 2 * * *", PRAGUE), after_ms)
    assert found == local_ms("2026-10-26T02:00", PRAGUE)


FIELD = st.sampled_from(["*", "*/2", "*/7", "0", "1", "2", "3", "1-3", "2,3", "30", "59"])
HOUR = st.sampled_from(["*", "*/2", "*/3", "0", "1", "2", "3", "1-3", "2,3", "23"])
ZONES = st.sampled_from(["UTC", PRAGUE, NEW_YORK, "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata"])


@given(FIELD, HOUR, ZONES, st.integers(1_600_000_000, 1_900_000_000), st.integers(0, 400_000))
def test_times_do_not_depend_on_where_one_begins_to_look(
    minute: str, hour: str, zone: str, at_s: int, later_s: int
) -> None:
    """Whoever looks from later on finds the same times as one who has looked from the beginning."""
    schedule = CronSchedule(f"{minute} {hour} * * *", zone)
    found = [at_s * 1000]
    while found[-1] <= (at_s + later_s) * 1000 and len(found) < 400:
        next_ms = CRON.next_ms(schedule, found[-1])
        assert next_ms is not None
        found.append(next_ms)
    assert all(before < after for before, after in pairwise(found))
    middle = found[len(found) // 2] - 1
    expected = next(one for one in found[1:] if one > middle) if found[-1] > middle else None
    if expected is not None and middle >= found[0]:
        assert CRON.next_ms(schedule, middle) == expected


@given(st.text(alphabet="0123456789*/,-#LWlwJANMONSU ", max_size=40))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        CRON.check(CronSchedule(text, PRAGUE))
    except Invalid as refusal:
        assert refusal.code == "cron_invalid"


@pytest.mark.parametrize(
    "text",
    [
        "", "hourly", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
        "*/0 * * * *", "5-1 * * * *", "0 0 30 2 *", "0 0 31 4 *", "a b c d e", "-1 * * * *", "1.5 * * * *",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="cron_invalid"):
        CRON.check(CronSchedule(text, "UTC"))


def test_a_moment_between_two_seconds_is_no_obstacle() -> None:
    schedule = CronSchedule("* * * * *", "UTC")
    assert CRON.next_ms(schedule, START_MS - 1) == START_MS
    assert CRON.next_ms(schedule, START_MS) == START_MS + 60_000
    assert CRON.next_ms(schedule, START_MS + 999) == START_MS + 60_000
