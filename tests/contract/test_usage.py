"""What every store promises of spend: sums that agree with each other and with the tape, whole days, own spend alone."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.errors import Invalid
from palyra.core.events import Draft
from palyra.core.events.model import UsageRecorded
from palyra.core.events.run import EndReason, RunAccepted, RunDone, RunStarted
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.projections.usage import NANO, QUARTER_MS
from palyra.ports.journal import Append, Erasure
from palyra.ports.views import Spend, SpendFilter, UsageFilter, UsageGroup, UsageReport, UsageSum, UsageViews
from tests.contract.conftest import STORES, Opened, Opener, Store
from tests.support.examples import examples
from tests.support.journals import ALICE, BOB, LIMITS, Ids, draft, session_created

pytestmark = pytest.mark.anyio

EXAMPLES_COUNT = examples(12)  # Each opens a journal of its own.
ZONES = [ZoneInfo(name) for name in ("UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Chatham", "America/Santiago")]
DAY_MS = 24 * 60 * 60 * 1000
SPRING_MS = int(datetime(2026, 3, 27, tzinfo=UTC).timestamp() * 1000)  # Berlin and Chatham change within ten days.
COUNTS = tuple(field for field in UsageSum.__struct_fields__ if field not in ("key", "label"))


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One model call of a run: what the store is told, and what a plain sum is made of."""

    at_ms: int
    session: int = 0
    principal: Principal = ALICE
    agent: str = "main"
    origin: str = "api"
    model: str = "small"
    input_tokens: int = 100
    output_tokens: int = 10
    cached_tokens: int = 40
    reasoning_tokens: int = 3
    nano_usd: int | None = 2_000_000

    def counts(self) -> dict[str, int]:
        return {
            "calls_count": 1,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "cost_nano_usd": self.nano_usd or 0,
            "unpriced_count": self.nano_usd is None,
        }


class Ledger:
    """Writes calls, each in a run of its own, and knows which ids they were given."""

    def __init__(self, opened: Opened, ids: Ids) -> None:
        self._opened = opened
        self._ids = ids
        self.sessions: dict[int, SessionId] = {}
        self.runs: list[RunId] = []

    async def write(self, calls: Sequence[Call]) -> None:
        drafts: dict[int, list[Draft]] = {}
        for call in calls:
            if call.session not in self.sessions:
                self.sessions[call.session] = self._ids.session()
                drafts[call.session] = [session_created(label=f"label {call.session}")]
            drafts[call.session] += self._run_of(call)
        appends = [Append(self.sessions[number], 0, tuple(events)) for number, events in drafts.items()]
        await self._opened.journal.commit(appends)

    def _run_of(self, call: Call) -> list[Draft]:
        run = self._ids.run()
        self.runs.append(run)
        accepted = RunAccepted(agent=call.agent, origin=call.origin, can_ask=False, limits=LIMITS)
        spent = UsageRecorded(
            model=call.model,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            cached_tokens=call.cached_tokens,
            reasoning_tokens=call.reasoning_tokens,
            cost_usd=None if call.nano_usd is None else call.nano_usd / NANO,
        )
        done = RunDone(reason=EndReason.FINAL_ANSWER, message="answered")
        return [draft(data, run, call.principal, call.at_ms) for data in (accepted, RunStarted(), spent, done)]


def day_of(call: Call, zone: tzinfo) -> str:
    return datetime.fromtimestamp(call.at_ms / 1000, zone).date().isoformat()


def sums_of(report: UsageReport) -> dict[str, dict[str, int]]:
    assert [item.key for item in report.sums] == sorted({item.key for item in report.sums})
    return {item.key: counts_of(item) for item in report.sums}


def counts_of(item: UsageSum) -> dict[str, int]:
    return {name: getattr(item, name) for name in COUNTS}


def added(parts: Sequence[dict[str, int]]) -> dict[str, int]:
    total = Counter(dict.fromkeys(COUNTS, 0))
    for part in parts:
        total.update(part)
    return dict(total)


calls = st.builds(
    Call,
    at_ms=st.integers(SPRING_MS, SPRING_MS + 10 * DAY_MS),
    session=st.integers(0, 3),
    principal=st.sampled_from([ALICE, BOB]),
    agent=st.sampled_from(["main", "writer"]),
    origin=st.sampled_from(["api", "telegram"]),
    model=st.sampled_from(["small", "large", "vendor/model:1'b"]),
    input_tokens=st.integers(0, 10**9),
    output_tokens=st.integers(0, 10**9),
    cached_tokens=st.integers(0, 10**9),
    reasoning_tokens=st.integers(0, 10**9),
    nano_usd=st.none() | st.integers(0, 1000).map(lambda cents: cents * NANO // 100),
)
quarters = st.integers(SPRING_MS // QUARTER_MS - 4, (SPRING_MS + 10 * DAY_MS) // QUARTER_MS + 4)
queries = st.builds(
    UsageFilter,
    group=st.sampled_from(UsageGroup),
    since_ms=quarters.map(lambda quarter: quarter * QUARTER_MS),
    until_ms=st.none() | quarters.map(lambda quarter: quarter * QUARTER_MS),
    principal=st.sampled_from([None, ALICE, BOB]),
    reader=st.just(ALICE),
    zone=st.sampled_from(ZONES),
    limit=st.just(1000),
)
spend_queries = st.builds(
    SpendFilter,
    since_ms=quarters.map(lambda quarter: quarter * QUARTER_MS),
    until_ms=st.none() | quarters.map(lambda quarter: quarter * QUARTER_MS),
    principal=st.sampled_from([None, ALICE, BOB]),
    agent=st.sampled_from([None, "main", "writer"]),
    channel=st.sampled_from([None, "api", "telegram"]),
)


def is_within(call: Call, query: UsageFilter | SpendFilter) -> bool:
    return query.since_ms <= call.at_ms and (query.until_ms is None or call.at_ms < query.until_ms)


def key_of(call: Call, query: UsageFilter, sessions: dict[int, SessionId]) -> str:
    match query.group:
        case UsageGroup.DAY:
            return day_of(call, query.zone)
        case UsageGroup.MODEL:
            return call.model
        case UsageGroup.SESSION:
            return sessions[call.session]
        case UsageGroup.AGENT:
            return call.agent
        case UsageGroup.PRINCIPAL:
            return call.principal
        case UsageGroup.CHANNEL:
            return call.origin


@pytest.mark.parametrize("open_store", STORES.values(), ids=list(STORES))
@settings(max_examples=EXAMPLES_COUNT)
@given(st.lists(calls, max_size=12), st.lists(queries, min_size=6, max_size=12), st.lists(spend_queries, min_size=4))
def test_any_sum_is_what_a_plain_sum_over_the_calls_gives(
    open_store: Opener, made: list[Call], asked: list[UsageFilter], spends: list[SpendFilter]
) -> None:
    async def compare(store: Store) -> None:
        opened = await store.open()
        ledger = Ledger(opened, Ids())
        try:
            await ledger.write(made)
            for query in asked:
                await compare_report(opened.usage, query, made, ledger.sessions)
            for spend in spends:
                await compare_spend(opened.usage, spend, made)
        finally:
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Store(open_store, Path(folder))))


async def compare_report(
    usage: UsageViews, query: UsageFilter, made: list[Call], sessions: dict[int, SessionId]
) -> None:
    report = await usage.report(query)
    counted = [call for call in made if is_within(call, query) and query.principal in (None, call.principal)]
    keys = {key_of(call, query, sessions) for call in counted}
    assert sums_of(report) == {
        key: added([call.counts() for call in counted if key_of(call, query, sessions) == key]) for key in keys
    }
    assert counts_of(report.total) == added([counts_of(item) for item in report.sums])
    assert report.total.key == ""


async def compare_spend(usage: UsageViews, query: SpendFilter, made: list[Call]) -> None:
    counted = [
        call
        for call in made
        if is_within(call, query)
        and query.principal in (None, call.principal)
        and query.agent in (None, call.agent)
        and query.channel in (None, call.origin)
    ]
    assert await usage.spent(query) == Spend(
        nano_usd=sum(call.nano_usd or 0 for call in counted),
        tokens=sum(call.input_tokens + call.output_tokens for call in counted),
        unpriced_count=sum(call.nano_usd is None for call in counted),
    )


# The local midnight that ends a day on which clocks change, in UTC: 23 hours in spring, 25 in autumn, and 24 in Kolkata.
DAYS = [
    ("Europe/Berlin", "2026-03-29", "2026-03-28T23:00", "2026-03-29T22:00"),
    ("Europe/Berlin", "2026-10-25", "2026-10-24T22:00", "2026-10-25T23:00"),
    ("Asia/Kolkata", "2026-03-29", "2026-03-28T18:30", "2026-03-29T18:30"),
    ("Pacific/Chatham", "2026-04-05", "2026-04-04T10:15", "2026-04-05T11:15"),
    ("Pacific/Chatham", "2026-09-27", "2026-09-26T11:15", "2026-09-27T10:15"),
    ("America/Santiago", "2026-09-06", "2026-09-06T04:00", "2026-09-07T03:00"),  # Has no midnight.
]


@pytest.mark.parametrize(("zone", "day", "first", "next_first"), DAYS)
async def test_a_day_is_a_day_where_the_clocks_change(
    opened: Opened, ids: Ids, zone: str, day: str, first: str, next_first: str
) -> None:
    begin, end = (int(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000) for text in (first, next_first))
    hours = range(begin, end, QUARTER_MS)
    inside = [Call(at_ms=at_ms, session=1) for at_ms in (*hours, end - 1)]
    await Ledger(opened, ids).write([*inside, Call(at_ms=begin - 1), Call(at_ms=end)])
    report = await opened.usage.report(UsageFilter(group=UsageGroup.DAY, since_ms=0, zone=ZoneInfo(zone)))
    assert [item.calls_count for item in report.sums] == [1, len(inside), 1]
    assert report.sums[1].key == day


async def test_an_unknown_price_is_counted_and_adds_no_money(opened: Opened, ids: Ids) -> None:
    await Ledger(opened, ids).write(
        [Call(at_ms=SPRING_MS, nano_usd=None), Call(at_ms=SPRING_MS, nano_usd=5), Call(at_ms=SPRING_MS, nano_usd=0)]
    )
    total = (await opened.usage.report(UsageFilter(group=UsageGroup.MODEL, since_ms=0))).total
    assert (total.calls_count, total.cost_nano_usd, total.unpriced_count) == (3, 5, 1)


@pytest.mark.parametrize("group", UsageGroup)
async def test_sums_come_in_order_page_by_page_and_the_total_is_of_all(
    opened: Opened, ids: Ids, group: UsageGroup
) -> None:
    made = [
        Call(
            at_ms=SPRING_MS + number * DAY_MS,
            session=number,
            principal=Principal(f"user:{number}"),
            agent=f"agent{number}",
            origin=f"origin{number}",
            model=f"model{number}",
        )
        for number in range(5)
    ]
    await Ledger(opened, ids).write(made)
    query = UsageFilter(group=group, since_ms=0, limit=1000)
    whole = await opened.usage.report(query)
    found: list[UsageSum] = []
    for _ in range(3):
        after = found[-1].key if found else ""
        page = await opened.usage.report(msgspec.structs.replace(query, after=after, limit=2))
        assert page.total == whole.total
        found += page.sums
    assert tuple(found) == whole.sums
    assert len(found) == 5


async def test_a_sessions_label_is_told_to_its_owner_alone(opened: Opened, ids: Ids) -> None:
    await Ledger(opened, ids).write([Call(at_ms=SPRING_MS, principal=BOB)])
    for reader, label in ((ALICE, "label 0"), (BOB, None), (None, None)):
        query = UsageFilter(group=UsageGroup.SESSION, since_ms=0, principal=BOB, reader=reader)
        (item,) = (await opened.usage.report(query)).sums
        assert (item.calls_count, item.label) == (1, label)


async def test_spend_is_found_by_session_and_by_run(opened: Opened, ids: Ids) -> None:
    ledger = Ledger(opened, ids)
    await ledger.write([Call(at_ms=SPRING_MS + number, session=number % 2, nano_usd=10**number) for number in range(4)])
    odd = await opened.usage.spent(SpendFilter(since_ms=0, session_id=ledger.sessions[1]))
    assert (odd.nano_usd, odd.tokens) == (1010, 220)
    second = await opened.usage.spent(SpendFilter(since_ms=0, run_id=ledger.runs[1]))
    assert (second.nano_usd, second.tokens) == (10, 110)
    both = SpendFilter(since_ms=0, run_id=ledger.runs[1], session_id=ledger.sessions[0])
    assert await opened.usage.spent(both) == Spend(nano_usd=0, tokens=0, unpriced_count=0)


async def test_a_span_has_its_first_quarter_and_not_its_last(opened: Opened, ids: Ids) -> None:
    edges = (SPRING_MS - 1, SPRING_MS, SPRING_MS + QUARTER_MS - 1, SPRING_MS + QUARTER_MS)
    await Ledger(opened, ids).write([Call(at_ms=at_ms, nano_usd=10**place) for place, at_ms in enumerate(edges)])
    since_ms, until_ms = SPRING_MS, SPRING_MS + QUARTER_MS
    assert (await opened.usage.spent(SpendFilter(since_ms=since_ms, until_ms=until_ms))).nano_usd == 110
    for group in UsageGroup:
        report = await opened.usage.report(UsageFilter(group=group, since_ms=since_ms, until_ms=until_ms))
        assert report.total.cost_nano_usd == 110


async def test_spend_outlives_the_process(store: Store, ids: Ids) -> None:
    await Ledger(await store.open(), ids).write([Call(at_ms=SPRING_MS)])
    again = await store.reopen()
    assert (await again.usage.spent(SpendFilter(since_ms=SPRING_MS))).nano_usd == 2_000_000


async def test_spend_of_an_erased_session_is_erased_with_it(opened: Opened, ids: Ids) -> None:
    ledger = Ledger(opened, ids)
    await ledger.write([Call(at_ms=SPRING_MS), Call(at_ms=SPRING_MS, session=1)])
    await opened.journal.erase([Erasure(stream=ledger.sessions[0], reason="asked", seqs=None, actor=ALICE, at_ms=0)])
    report = await opened.usage.report(UsageFilter(group=UsageGroup.SESSION, since_ms=0))
    assert [item.key for item in report.sums] == [ledger.sessions[1]]
    assert report.total.calls_count == 1


@pytest.mark.parametrize("query", [SpendFilter(since_ms=1), SpendFilter(since_ms=0, until_ms=QUARTER_MS + 1)])
async def test_a_time_within_a_quarter_is_refused(opened: Opened, query: SpendFilter) -> None:
    with pytest.raises(Invalid, match="quarter_expected"):
        await opened.usage.spent(query)
