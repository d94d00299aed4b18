"""`GET /api/v1/usage`: own spend for everyone, everyone's for operators, unknown prices never as zero, times as said."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.errors import Invalid
from palyra.core.events import Draft
from palyra.core.events.model import UsageRecorded
from palyra.core.events.run import EndReason, RunAccepted, RunDone, RunStarted
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.projections.usage import QUARTER_MS
from palyra.engine.api.requests import UsageQuery
from palyra.engine.api.usage import begin_of, end_of, find_zone
from palyra.ports.journal import Append
from palyra.ports.tokens import Role
from palyra.ports.views import UsageGroup
from tests.gateway.scene import NOW_MS, Answer, Scene
from tests.support.engines import Workshop
from tests.support.journals import ALICE, BOB, LIMITS, FixedClock, Ids, draft, session_created
from tests.support.sqlite import journal_at

USAGE = "/api/v1/usage"
HOUR_MS = 60 * 60 * 1000


def spend(
    run: RunId, principal: Principal, at_ms: int, cost_usd: float | None = 0.5, model: str = "small"
) -> list[Draft]:
    """A whole run with one call."""
    accepted = RunAccepted(agent="main", origin="http", can_ask=True, limits=LIMITS)
    spent = UsageRecorded(model=model, input_tokens=200, output_tokens=20, cached_tokens=50, cost_usd=cost_usd)
    done = RunDone(reason=EndReason.FINAL_ANSWER, message="answered")
    return [draft(data, run, principal, at_ms) for data in (accepted, RunStarted(), spent, done)]


class Home:
    """Tokens and sessions of alice and bob."""

    def __init__(self, scene: Scene, sessions: dict[Principal, SessionId]) -> None:
        self.scene = scene
        self.sessions = sessions
        self.tokens = {
            ALICE: scene.tokens.add("palyra_of-alice-0123456789", Role.VIEWER, principal=ALICE),
            BOB: scene.tokens.add("palyra_of-bob-0123456789ab", Role.OPERATOR, principal=BOB),
        }

    async def ask(self, principal: Principal, query: str = "") -> Answer:
        return await self.scene.ask("GET", f"{USAGE}?{query}", token=self.tokens[principal])


@pytest.fixture(scope="module")
async def home(anyio_backend: object, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    """A gateway over a real engine, in whose journal alice and bob have spent something today and a month ago."""
    tmp_path = tmp_path_factory.mktemp("usage")
    ids = Ids()
    sessions = {ALICE: ids.session(), BOB: ids.session()}
    async with journal_at(tmp_path / "journal.db") as journal:
        alices = [*spend(ids.run(), ALICE, NOW_MS - HOUR_MS), *spend(ids.run(), ALICE, NOW_MS, None, "local")]
        bobs = [*spend(ids.run(), BOB, NOW_MS, 1.5), *spend(ids.run(), BOB, NOW_MS - 40 * 24 * HOUR_MS)]
        for principal, drafts in ((ALICE, alices), (BOB, bobs)):
            opening = session_created(principal, label=f"of {principal}")
            await journal.commit([Append(sessions[principal], 0, (opening, *drafts))])
    workshop = Workshop(tmp_path, [])
    workshop.clock = FixedClock(NOW_MS)
    async with workshop.open() as engine:
        yield Home(Scene(engine), sessions)


@pytest.mark.parametrize("by", ["day", "model", "session", "agent", "channel"])
async def test_a_principal_sees_own_spend_alone(home: Home, by: str) -> None:
    alice = (await home.ask(ALICE, f"by={by}")).json
    bob = (await home.ask(BOB, f"by={by}")).json
    assert (alice["totals"]["calls_count"], alice["totals"]["cost_usd"]) == (2, 0.5)
    assert (bob["totals"]["calls_count"], bob["totals"]["cost_usd"]) == (1, 1.5)
    for answer in (alice, bob):
        assert sum(item["calls_count"] for item in answer["items"]) == answer["totals"]["calls_count"]


@pytest.mark.parametrize("query", ["by=principal", "everyone=true", "by=day&everyone=1"])
async def test_everyones_spend_is_for_operators(home: Home, query: str) -> None:
    refused = await home.ask(ALICE, query)
    assert (refused.status, refused.code) == (403, "role_insufficient")
    assert (await home.ask(BOB, query)).json["totals"]["calls_count"] == 3


async def test_principals_are_told_apart(home: Home) -> None:
    items = (await home.ask(BOB, "by=principal&since=60d")).json["items"]
    assert [(item["key"], item["calls_count"], item["cost_usd"]) for item in items] == [(ALICE, 2, 0.5), (BOB, 2, 2.0)]


async def test_an_operator_is_not_told_the_labels_of_others(home: Home) -> None:
    items = (await home.ask(BOB, "by=session&everyone=true")).json["items"]
    assert [(item["key"], item.get("label")) for item in items] == [
        (home.sessions[ALICE], None),
        (home.sessions[BOB], f"of {BOB}"),
    ]
    assert "label" not in items[0]


async def test_an_unknown_price_is_null_and_counted(home: Home) -> None:
    answer = (await home.ask(ALICE, "by=model")).json
    assert [(item["key"], item["cost_usd"], item["unpriced_calls_count"]) for item in answer["items"]] == [
        ("local", None, 1),
        ("small", 0.5, 0),
    ]
    assert answer["totals"] == {
        "calls_count": 2,
        "input_tokens": 400,
        "output_tokens": 40,
        "cached_tokens": 100,
        "reasoning_tokens": 0,
        "cache_hit_share": 0.25,
        "cost_usd": 0.5,
        "unpriced_calls_count": 1,
    }


async def test_since_and_until_bound_what_is_counted(home: Home) -> None:
    for query, count in (("since=60d", 2), ("since=60d&until=30d", 1), ("since=2023-11-14&until=2023-11-14", 1)):
        assert (await home.ask(BOB, query)).json["totals"]["calls_count"] == count
    assert (await home.ask(ALICE, "since=1h")).json["totals"]["calls_count"] == 2


async def test_days_are_those_of_the_time_zone(home: Home) -> None:
    """Now is 22:13 UTC, before midnight in Berlin and after it in Kolkata."""
    for zone, days in (("UTC", ["2023-11-14"]), ("Europe/Berlin", ["2023-11-14"]), ("Asia/Kolkata", ["2023-11-15"])):
        items = (await home.ask(ALICE, f"timezone={zone}")).json["items"]
        assert [item["key"] for item in items] == days


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("by=colour", "query_invalid"),
        ("since=yesterday", "time_invalid"),
        ("since=0d", "time_invalid"),
        ("since=2026-02-30", "time_invalid"),
        ("since=0001-01-01", "time_invalid"),
        ("until=9999-12-31", "time_invalid"),
        ("since=2023-W01-1", "time_invalid"),
        ("since=", "query_invalid"),
        ("timezone=Mars/Olympus", "timezone_unknown"),
        ("timezone=..%2F..%2Fetc%2Fpasswd", "timezone_unknown"),
        ("timezone=Europe", "timezone_unknown"),
        ("timezone=%00", "timezone_unknown"),
        ("since=7d&until=30d", "span_empty"),
        ("limit=0", "query_invalid"),
        ("colour=red", "query_invalid"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(home: Home, query: str, code: str) -> None:
    answer = await home.ask(ALICE, query)
    assert (answer.status, answer.code) == (400, code)


async def test_sums_are_paged_by_key_and_totals_are_of_all(home: Home) -> None:
    first = (await home.ask(ALICE, "by=model&limit=1")).json
    assert ([item["key"] for item in first["items"]], first["next_after"]) == (["local"], "local")
    assert first["totals"]["calls_count"] == 2
    second = (await home.ask(ALICE, "by=model&limit=1&after=local")).json
    assert ([item["key"] for item in second["items"]], second["next_after"]) == (["small"], None)
    assert second["totals"] == first["totals"]
    asked = UsageQuery(by=UsageGroup.MODEL, after="local", limit=2)
    assert home.scene.asked[-1] == ("usage.report", ALICE, asked)


async def test_no_call_costs_nothing_and_has_no_share(home: Home) -> None:
    answer = (await home.scene.ask("GET", USAGE)).json
    assert (answer["items"], answer["next_after"]) == ([], None)
    assert (answer["totals"]["cost_usd"], answer["totals"]["cache_hit_share"]) == (0.0, None)


ZONES = ["UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Chatham", "America/Santiago", "Africa/Cairo", "Asia/Beirut"]
moments = st.integers(946_684_800_000, 4_102_444_800_000)  # This century.


@given(st.sampled_from(ZONES), moments, st.integers(1, 9999))
def test_days_ago_begin_with_the_first_quarter_of_a_day(name: str, now_ms: int, count: int) -> None:
    zone = find_zone(name)
    begin = begin_of(f"{count}d", zone, now_ms)
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    assert begin % QUARTER_MS == 0
    assert _day(begin, name) == max(today - timedelta(days=count - 1), _day(0, name))
    assert begin == 0 or _day(begin - 1, name) < _day(begin, name)


@given(st.sampled_from(ZONES), st.dates(date(1990, 1, 1), date(2100, 1, 1)))
def test_a_date_ends_where_the_next_begins(name: str, day: date) -> None:
    zone, following = find_zone(name), (day + timedelta(days=1)).isoformat()
    assert end_of(day.isoformat(), zone, NOW_MS) == begin_of(following, zone, NOW_MS)
    assert _day(begin_of(day.isoformat(), zone, NOW_MS), name) == day


@given(st.text(max_size=12) | st.from_regex(r"\d{1,5}[hdwm]?", fullmatch=True), moments)
def test_any_text_is_a_quarter_or_refused(text: str, now_ms: int) -> None:
    for meaning in (begin_of, end_of):
        try:
            found = meaning(text, UTC, now_ms)
        except Invalid as error:
            assert error.code == "time_invalid"
        else:
            assert found >= 0
            assert found % QUARTER_MS == 0


@given(st.text(max_size=64))
def test_any_name_is_a_zone_or_refused(name: str) -> None:
    try:
        assert find_zone(name).utcoffset(datetime.fromtimestamp(0, UTC)) is not None
    except Invalid as error:
        assert error.code == "timezone_unknown"


def _day(at_ms: int, name: str) -> date:
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(name)).date()
