"""Budgets: accounts, periods by the calendar, and room beside calls that are out."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.budget import (
    Account,
    Amount,
    Budget,
    BudgetPeriod,
    BudgetScope,
    Spender,
    Standing,
    accounts_of,
    has_room,
    left_usd,
    period_of,
)
from palyra.core.ids import Principal, RunId, SessionId, StreamId

SPENDER = Spender(
    principal=Principal("user:alice"),
    channel="http",
    agent="main",
    session_id=SessionId(StreamId("01S")),
    run_id=RunId("01R"),
)
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Chatham", "America/St_Johns")


def at(zone: str, *date: int) -> int:
    return int(datetime(*date, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("scope", "subject"),
    [
        (BudgetScope.GLOBAL, ""),
        (BudgetScope.PRINCIPAL, "user:alice"),
        (BudgetScope.CHANNEL, "http"),
        (BudgetScope.AGENT, "main"),
        (BudgetScope.SESSION, "01S"),
        (BudgetScope.RUN, "01R"),
    ],
)
def test_each_scope_sums_up_its_own_subject(scope: BudgetScope, subject: str) -> None:
    assert accounts_of(Budget(scope=scope, limit_tokens=1), SPENDER, 0) == (Account(scope=scope, subject=subject),)


@pytest.mark.parametrize(
    ("zone", "now", "since", "until"),
    [
        ("UTC", (2026, 7, 1, 12), (2026, 7, 1), (2026, 7, 2)),
        ("Europe/Berlin", (2026, 3, 29, 12), (2026, 3, 29), (2026, 3, 30)),  # A day of 23 hours.
        ("Europe/Berlin", (2026, 10, 25, 2), (2026, 10, 25), (2026, 10, 26)),  # A day of 25 hours.
        ("Asia/Kolkata", (2026, 7, 1, 0, 10), (2026, 7, 1), (2026, 7, 2)),
    ],
)
def test_a_day_is_the_calendars(
    zone: str, now: tuple[int, ...], since: tuple[int, ...], until: tuple[int, ...]
) -> None:
    budget = Budget(scope=BudgetScope.GLOBAL, period=BudgetPeriod.DAY, limit_tokens=1, timezone=zone)
    assert period_of(budget, at(zone, *now)) == (at(zone, *since), at(zone, *until))


@pytest.mark.parametrize(
    ("month", "following"), [((2026, 1), (2026, 2)), ((2026, 2), (2026, 3)), ((2026, 12), (2027, 1))]
)
def test_a_month_is_the_calendars(month: tuple[int, int], following: tuple[int, int]) -> None:
    budget = Budget(scope=BudgetScope.GLOBAL, period=BudgetPeriod.MONTH, limit_tokens=1, timezone="America/St_Johns")
    now_ms = at("America/St_Johns", *month, 15, 7)
    assert period_of(budget, now_ms) == (at("America/St_Johns", *month, 1), at("America/St_Johns", *following, 1))


@given(
    st.sampled_from(ZONES),
    st.sampled_from([BudgetPeriod.DAY, BudgetPeriod.MONTH]),
    st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - the zone is drawn apart
)
def test_every_moment_lies_in_its_period_and_periods_meet(zone: str, period: BudgetPeriod, moment: datetime) -> None:
    budget = Budget(scope=BudgetScope.GLOBAL, period=period, limit_tokens=1, timezone=zone)
    now_ms = int(moment.replace(tzinfo=ZoneInfo("UTC")).timestamp() * 1000)
    since_ms, until_ms = period_of(budget, now_ms)
    assert until_ms is not None
    assert since_ms <= now_ms < until_ms
    assert period_of(budget, until_ms)[0] == until_ms
    assert period_of(budget, until_ms - 1) == (since_ms, until_ms)
    assert until_ms - since_ms <= timedelta(days=32) // timedelta(milliseconds=1)
    assert since_ms % 900_000 == 0


amounts = st.integers(min_value=0, max_value=2_000)


@given(st.lists(st.tuples(amounts, st.integers(min_value=0, max_value=100)), max_size=60), st.integers(1, 1_000))
def test_a_limit_is_overshot_by_at_most_one_call(calls: list[tuple[int, int]], limit: int) -> None:
    """Calls that cost at most what was reserved, begun whenever there is room and settled in any order."""
    budget = Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=limit)
    spent, out = 0, list[tuple[int, int]]()
    largest = max((reserved for reserved, _ in calls), default=0)
    for reserved, share in calls:
        standing = Standing(budget=budget, spent=Amount(spent), reserved=Amount(sum(amount for amount, _ in out)))
        if not standing.is_used_up and has_room(standing, Amount(reserved), is_proven=True):
            out.append((reserved, reserved * share // 100))
        elif out:
            spent += out.pop(share % len(out))[1]
    spent += sum(cost for _, cost in out)
    assert spent <= limit + largest


def test_what_never_ran_before_goes_alone() -> None:
    budget = Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=1_000)
    busy = Standing(budget=budget, reserved=Amount(1))
    assert has_room(busy, Amount(1), is_proven=True)
    assert not has_room(busy, Amount(1), is_proven=False)
    assert has_room(Standing(budget=budget), Amount(5_000), is_proven=False)


def test_tokens_and_money_each_hold() -> None:
    budget = Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=100, limit_tokens=100)
    assert Standing(budget=budget, spent=Amount(100, 0)).is_used_up
    assert Standing(budget=budget, spent=Amount(0, 100)).is_used_up
    assert not Standing(budget=budget, spent=Amount(99, 99)).is_used_up
    busy = Standing(budget=budget, reserved=Amount(50, 50))
    assert has_room(busy, Amount(50, 50), is_proven=True)
    assert not has_room(busy, Amount(51, 50), is_proven=True)
    assert not has_room(busy, Amount(50, 51), is_proven=True)


def test_money_reserved_by_a_free_model_holds_up_nobody() -> None:
    budget = Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=100)
    assert not Standing(budget=budget, reserved=Amount(0, 5_000)).is_reserved


def test_what_is_left_is_the_tightest_budgets_and_never_less_than_nothing() -> None:
    wide = Standing(budget=Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=5_000_000_000), spent=Amount(1_000_000_000))
    tight = Standing(
        budget=Budget(scope=BudgetScope.RUN, limit_nano_usd=2_000_000_000),
        spent=Amount(500_000_000),
        reserved=Amount(250_000_000),
    )
    over = Standing(budget=Budget(scope=BudgetScope.RUN, limit_nano_usd=1), spent=Amount(9))
    assert left_usd([wide, tight]) == 1.25
    assert left_usd([wide, over]) == 0.0
    assert left_usd([Standing(budget=Budget(scope=BudgetScope.RUN, limit_tokens=5))]) is None
