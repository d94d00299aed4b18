"""Caps hold where several things meet: downgrades, turns that follow at once, unpriced fallbacks, midnight, a full disk."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from palyra.adapters.prices.tables import PricedModel, PriceTables
from palyra.core.budget import Amount, Budget, BudgetAction, BudgetPeriod, BudgetScope, Spender
from palyra.core.errors import Unavailable
from palyra.core.events import Event
from palyra.core.events.model import BudgetState, Finish, Reservation, RouteMode, RoutePlanned, Usage, UsageRecorded
from palyra.core.ids import RunId, SessionId, StreamId
from palyra.core.trust import Trust
from palyra.core.writes import Fence, Write
from palyra.engine.api.requests import RunRecord
from palyra.engine.engine import Engine
from palyra.engine.spend.ledger import Ledger, Spent
from palyra.ports.journal import Append, Journal
from palyra.ports.provider import CallDelta, Completed, Delta, ModelRequest, TextDelta
from palyra.ports.router import ModelCard
from palyra.ports.views import Spend, SpendFilter
from tests.engine.test_budgets import Metered, run_many, total
from tests.support.asking import ask, finished, wait_for
from tests.support.engines import OWNER, Workshop
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio
USD = 1_000_000_000


def listing(name: str, price: float | None = 1.0) -> PricedModel:
    return PricedModel(kind="scripted", id=name, input_usd_per_mtok=price, output_usd_per_mtok=price)


def shop(root: Path, providers: dict[str, Metered], prices: dict[str, float | None], *budgets: Budget) -> Workshop:
    workshop = Workshop(root, [])
    workshop.providers = dict(providers)
    workshop.route = tuple(providers)
    workshop.prices = PriceTables({name: listing(name, price) for name, price in prices.items()})
    workshop.budgets = budgets
    workshop.describe = lambda name: ModelCard(name=name, provider=name, kind="", id=name, max_output_tokens=1_000)
    return workshop


def calling(times: int, usage: Usage) -> Metered:
    """Calls a tool that there is none of, `times` times, then answers: every turn follows the last at once."""

    class Caller(Metered):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            await asyncio.sleep(0.001)
            said_count = sum(1 for message in request.messages if type(message).__name__ == "ToolMessage")
            if said_count < times:
                yield CallDelta(0, "no.such", f'{{"n": {said_count}}}')
                yield Completed(Finish.TOOL_CALLS, usage)
            else:
                yield TextDelta("Done.")
                yield Completed(Finish.STOP, usage)

    return Caller(usage)


async def test_a_cap_above_a_downgrade_holds(tmp_path: Path) -> None:
    usage = Usage(input_tokens=80_000, output_tokens=10)
    workshop = shop(
        tmp_path,
        {"dear": Metered(usage), "cheap": Metered(usage)},
        {"dear": 2.0, "cheap": 1.0},
        Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD // 20, action=BudgetAction.DOWNGRADE),
        Budget(scope=BudgetScope.GLOBAL, period=BudgetPeriod.DAY, limit_nano_usd=USD),
    )
    async with workshop.open() as engine:
        spent = total(await run_many(engine, 1)) + total(await run_many(engine, 50))
    assert 1.0 <= spent <= 1.0 + 0.08001


async def test_turns_that_follow_at_once_are_counted_before_the_next(tmp_path: Path) -> None:
    usage = Usage(input_tokens=9_000, output_tokens=500)
    budget = Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=62 * USD // 100)
    workshop = shop(tmp_path, {"a": calling(2, usage)}, {"a": 1.0}, budget)
    async with workshop.open() as engine:
        spent = total(await run_many(engine, 1)) + total(await run_many(engine, 50))
    assert 0.62 <= spent <= 0.62 + 0.0095


async def test_a_fallback_of_unknown_price_takes_nothing_from_the_reservation(tmp_path: Path) -> None:
    usage = Usage(input_tokens=90_000, output_tokens=10)
    budget = Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD, limit_tokens=100_000_000)
    workshop = shop(tmp_path, {"a": Metered(usage), "b": Metered(usage)}, {"a": 1.0, "b": None}, budget)
    async with workshop.open() as engine:
        first = await engine.runs.start(OWNER, ask(model="b"))
        await finished(engine, first)
        spent = total(await run_many(engine, 1)) + total(await run_many(engine, 50))
    assert 1.0 <= spent <= 1.0 + 0.09001


class _Nothing:
    async def spent(self, query: SpendFilter) -> Spend:
        return Spend(nano_usd=0, tokens=0, unpriced_count=0)

    async def report(self, query: object) -> object:
        raise NotImplementedError


def _spender(number: int) -> Spender:
    return Spender(
        principal=OWNER,
        channel="test",
        agent="main",
        session_id=SessionId(StreamId(f"S{number}")),
        run_id=RunId(f"R{number}"),
    )


def _plan(turn: int, usd: float) -> RoutePlanned:
    reserved = Reservation(input_tokens=1, output_tokens=1, cost_usd=usd)
    return RoutePlanned(turn=turn, mode=RouteMode.ENFORCED, chosen="a", budget=BudgetState.OK, reserved=reserved)


def _ledger(*budgets: Budget) -> Ledger:
    ledger = Ledger(_Nothing(), budgets, lambda _: None)  # type: ignore[arg-type]
    ledger.open()
    return ledger


MIDNIGHT_MS = 1_800_000_000_000 // 86_400_000 * 86_400_000


async def test_what_is_out_at_midnight_counts_on_the_next_day(tmp_path: Path) -> None:
    ledger = _ledger(Budget(scope=BudgetScope.GLOBAL, period=BudgetPeriod.DAY, limit_nano_usd=USD))
    await ledger.standings(_spender(1), MIDNIGHT_MS - 1, ())
    ledger.reserve(_spender(1), _plan(1, 0.9))
    (standing,) = await ledger.standings(_spender(2), MIDNIGHT_MS + 1, ())
    assert standing.reserved.nano_usd == 9 * USD // 10


async def test_a_session_does_not_wait_for_itself(tmp_path: Path) -> None:
    ledger = _ledger(Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD))
    spender = _spender(1)
    await ledger.standings(spender, 0, ())
    ledger.reserve(spender, _plan(1, 0.9))
    data = UsageRecorded(model="a", input_tokens=1, output_tokens=1, cached_tokens=0, cost_usd=0.2, turn=1)
    spend = Spent(spender, data, 0)
    ledger.foresee(spend)
    (own,) = await ledger.standings(spender, 0, (spend,))
    (other,) = await ledger.standings(_spender(2), 0, ())
    assert (own.spent.nano_usd, own.reserved) == (USD // 5, Amount())
    assert (other.spent.nano_usd, other.reserved.nano_usd) == (0, USD // 5)


class Failing:
    """A journal whose commits fail while it is told to."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.is_failing = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)

    async def commit(
        self, appends: Sequence[Append], writes: Sequence[Write] = (), fence: Fence | None = None
    ) -> tuple[Event, ...]:
        if self.is_failing:
            raise Unavailable("disk_full", "there is no room on the disk")
        return await self._journal.commit(appends, writes, fence)


async def test_a_commit_that_fails_frees_nothing_of_a_call_that_is_out(tmp_path: Path) -> None:
    provider = Metered(Usage(input_tokens=1_000, output_tokens=1_000))
    provider.gate.clear()
    workshop = shop(tmp_path, {"a": provider}, {"a": 1.0}, Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD // 100))
    disks: list[Failing] = []

    def wrap(journal: Journal) -> Journal:
        disks.append(Failing(journal))
        return disks[0]  # type: ignore[return-value]

    workshop.wrap_journal = wrap
    async with workshop.open() as engine:
        first = await engine.runs.start(OWNER, ask())
        await wait_for(engine, first.id, "model.delta")
        second = await engine.runs.start(OWNER, ask())
        disks[0].is_failing = True
        with pytest.raises(Unavailable):
            await engine.runs.send_input(OWNER, first.id, "And now?", Trust.OPERATOR)
        disks[0].is_failing = False
        assert (await engine.runs.get(OWNER, second.id)).state == "in_progress"
        assert provider.begun_count == 1
        provider.gate.set()
        await finished(engine, second)
        assert provider.out_most == 1


async def test_a_run_whose_begin_is_not_recorded_holds_nobody_up(tmp_path: Path) -> None:
    """Two take a new key at once: one of them planned, and waited for room, in a session that never came to be."""
    provider = Metered(Usage(input_tokens=1_000, output_tokens=1_000))
    provider.gate.clear()
    workshop = shop(tmp_path, {"a": provider}, {"a": 1.0}, Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD // 100))
    async with workshop.open() as engine:
        first = await engine.runs.start(OWNER, ask())
        await wait_for(engine, first.id, "model.delta")
        keyed = await asyncio.gather(*(engine.runs.start(OWNER, ask(session_key="new")) for _ in range(2)))
        last = await engine.runs.start(OWNER, ask())
        provider.gate.set()
        async with asyncio.timeout(WAIT_S):
            for record in (first, *keyed, last):
                await finished(engine, record)
    assert {record.session_id for record in keyed} == {keyed[0].session_id}


async def test_whoever_waits_longest_goes_first(tmp_path: Path) -> None:
    """A model that never ran must go alone; others that fit at any time must not keep it from its turn."""
    usage = Usage(input_tokens=1_000, output_tokens=10)
    workshop = shop(
        tmp_path,
        {"a": Metered(usage), "b": Metered(usage)},
        {"a": 1.0, "b": 1.0},
        Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=1_000 * USD),
    )
    async with workshop.open() as engine:
        await run_many(engine, 1)
        crowd = [asyncio.create_task(_again_and_again(engine, 12)) for _ in range(4)]
        await asyncio.sleep(0)
        late = await engine.runs.start(OWNER, ask(model="b"))
        await finished(engine, late)
        left = sum(1 for task in crowd if not task.done())
        await asyncio.gather(*crowd)
        assert (await engine.runs.get(OWNER, late.id)).state == "done"
    assert left > 0


async def _again_and_again(engine: Engine, count: int) -> list[RunRecord]:
    return [record for _ in range(count) for record in await run_many(engine, 1)]


async def test_a_provider_that_does_not_count_is_not_called_one_by_one_for_ever(tmp_path: Path) -> None:
    provider = Metered(None)
    workshop = shop(tmp_path, {"a": provider}, {"a": 1.0}, Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD))
    async with workshop.open() as engine:
        await run_many(engine, 1)
        await run_many(engine, 10)
    assert provider.out_most > 1


@pytest.mark.parametrize(
    ("configured", "wanted", "sent"),
    [
        (100_000, None, None),
        (100_000, 77, 77),
        (None, None, 16_384),
        (None, 77, 77),
        (None, 1_000_000, 16_384),  # Whatever a caller wants, no more was reserved.
    ],
)
async def test_a_models_own_limit_stands_under_a_budget(
    tmp_path: Path, configured: int | None, wanted: int | None, sent: int | None
) -> None:
    asked: list[int | None] = []

    class Listening(Metered):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
            asked.append(request.max_output_tokens)
            async for delta in super().stream(request):
                yield delta

    workshop = shop(tmp_path, {"a": Listening()}, {"a": 1.0}, Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD))
    workshop.describe = lambda name: ModelCard(name=name, provider=name, kind="", id=name, max_output_tokens=configured)
    async with workshop.open() as engine:
        await finished(engine, await engine.runs.start(OWNER, ask(output_tokens_max=wanted)))
    assert asked == [sent]
