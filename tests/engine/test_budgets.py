"""Budgets in a running engine: fifty at once, restarts, questions, downgrades, and spend that nobody counted."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from palyra.adapters.prices.tables import PricedModel, PriceTables
from palyra.adapters.providers.prepared_turns import PreparedFailure, Turn
from palyra.adapters.providers.route_table import ModelRoute
from palyra.core.budget import Budget, BudgetAction, BudgetPeriod, BudgetScope
from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.events.model import Finish, ModelError, RouteMode, RoutePlanned, Usage, UsageRecorded
from palyra.core.events.tool import Decision, Scope
from palyra.engine.api.requests import ApprovalAnswer, ApprovalsQuery, RunRecord
from palyra.engine.engine import Engine
from palyra.ports.provider import Completed, Delta, ModelRequest, TextDelta
from palyra.ports.router import ModelCard
from tests.support.asking import ask, calls, finished, says, wait_for
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.scripts import play_turns

pytestmark = pytest.mark.anyio
USD = 1_000_000_000
CALL = Usage(input_tokens=40_000, output_tokens=10)  # $0.04001 at the prices below, whatever the prompt was.


class Metered:
    """Answers every call with the same usage; holds answers back while `gate` is closed."""

    def __init__(self, usage: Usage | None = CALL) -> None:
        self.usage = usage
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun_count = 0
        self.out_count = 0
        self.out_most = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.begun_count += 1
        self.out_count += 1
        self.out_most = max(self.out_most, self.out_count)
        try:
            yield TextDelta("Yes, so it is.\n")
            await asyncio.sleep(0.001)
            await self.gate.wait()
            yield Completed(Finish.STOP, self.usage)
        finally:
            self.out_count -= 1


def priced(root: Path, provider: object, *budgets: Budget) -> Workshop:
    workshop = Workshop(root, provider)  # type: ignore[arg-type]
    listing = PricedModel(kind="scripted", id="scripted", input_usd_per_mtok=1.0, output_usd_per_mtok=1.0)
    workshop.prices = PriceTables({"scripted": listing})
    workshop.budgets = budgets
    return workshop


def dollar(action: BudgetAction = BudgetAction.DENY, scope: BudgetScope = BudgetScope.GLOBAL) -> Budget:
    return Budget(scope=scope, period=BudgetPeriod.DAY, action=action, limit_nano_usd=USD)


def spends(events: list[Event]) -> list[UsageRecorded]:
    return [event.data for event in events if isinstance(event.data, UsageRecorded)]


async def run_many(engine: Engine, count: int) -> list[RunRecord]:
    started = await asyncio.gather(*(engine.runs.start(OWNER, ask(f"number {n}")) for n in range(count)))
    await asyncio.gather(*(finished(engine, record) for record in started))
    return [await engine.runs.get(OWNER, record.id) for record in started]


def total(records: list[RunRecord]) -> float:
    return sum(record.usage.cost_usd or 0.0 for record in records)


async def test_fifty_at_once_overshoot_a_cap_by_at_most_one_request(tmp_path: Path) -> None:
    """The estimate is far too low here: what the provider counts has nothing to do with what was sent."""
    async with priced(tmp_path, Metered(), dollar()).open() as engine:
        records = await run_many(engine, 50)
    done = [record for record in records if record.state == "done"]
    denied = [record for record in records if record.reason == "budget"]
    assert len(done) + len(denied) == 50
    assert 1.0 <= total(records) <= 1.0 + 0.04001
    assert all(record.error is not None and "used up" in record.error.message for record in denied)


async def test_a_cap_is_used_to_its_end_and_not_denied_early(tmp_path: Path) -> None:
    """What others only reserved is no reason to refuse: whoever finds no room waits until there is."""
    provider = Metered(Usage(input_tokens=1_000, output_tokens=1_000))
    async with priced(tmp_path, provider, Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD // 10)).open() as engine:
        records = await run_many(engine, 60)
    assert len([record for record in records if record.state == "done"]) == 50
    assert total(records) == pytest.approx(0.1)
    assert provider.out_most > 1


async def test_a_restart_in_the_middle_counts_what_was_cut_off(tmp_path: Path) -> None:
    provider = Metered()
    workshop = priced(tmp_path, provider, dollar())
    async with workshop.open() as engine:
        await run_many(engine, 1)
        provider.gate.clear()
        started = [await engine.runs.start(OWNER, ask(f"number {n}")) for n in range(50)]
        await wait_for(engine, started[0].id, "model.delta")
    cut_off_count = provider.out_most
    provider.gate.set()
    async with workshop.open() as engine:
        await asyncio.gather(*(finished(engine, record) for record in started))
        records = [await engine.runs.get(OWNER, record.id) for record in started]
        events = [event for record in started for event in await finished(engine, record)]
    estimates = [spend for spend in spends(events) if spend.is_estimate]
    assert len(estimates) == cut_off_count >= 1
    assert all(spend.cost_usd for spend in estimates)
    assert 1.0 <= total(records) + 0.04001 <= 1.0 + max(0.04001, *(spend.cost_usd or 0 for spend in estimates))


async def test_spend_is_remembered_over_restarts_and_days(tmp_path: Path) -> None:
    workshop = priced(tmp_path, Metered(Usage(input_tokens=600_000, output_tokens=0)), dollar())
    for expected in ("done", "done", "failed"):
        async with workshop.open() as engine:
            assert [record.state for record in await run_many(engine, 1)] == [expected]
    later = _Later(86_400_000)
    workshop.clock = later
    async with workshop.open() as engine:
        assert [record.state for record in await run_many(engine, 1)] == ["done"]


class _Later:
    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def now_ms(self) -> int:
        from palyra.adapters.clock import SystemClock

        return SystemClock().now_ms() + self._by_ms


@pytest.mark.parametrize("scope", [BudgetScope.PRINCIPAL, BudgetScope.SESSION, BudgetScope.RUN])
async def test_a_budget_of_one_is_not_anothers(tmp_path: Path, scope: BudgetScope) -> None:
    workshop = priced(tmp_path, Metered(Usage(input_tokens=1_500_000, output_tokens=0)), dollar(scope=scope))
    async with workshop.open() as engine:
        mine = await engine.runs.start(OWNER, ask(session_key="s"))
        await finished(engine, mine)
        again = await engine.runs.start(OWNER, ask(session_key="s"))
        await finished(engine, again)
        other = await engine.runs.start(ALICE, ask())
        await finished(engine, other, ALICE)
        second = (await engine.runs.get(OWNER, again.id)).reason
        assert second == ("final_answer" if scope is BudgetScope.RUN else "budget")
        assert (await engine.runs.get(ALICE, other.id)).state == "done"


async def test_a_run_of_many_turns_ends_where_its_own_budget_does(tmp_path: Path) -> None:
    turn = Turn(calls=calls("mark.read", text="a").calls, usage=Usage(input_tokens=400_000, output_tokens=0))
    workshop = priced(tmp_path, play_turns(*[turn] * 9), dollar(scope=BudgetScope.RUN))
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        ended = await engine.runs.get(OWNER, record.id)
    assert (ended.state, ended.reason) == ("failed", "budget")
    assert [spend.cost_usd for spend in spends(events)] == [0.4, 0.4, 0.4]


async def test_a_person_is_asked_once_a_run_and_may_refuse(tmp_path: Path) -> None:
    turn = Turn(calls=calls("mark.read", text="a").calls, usage=Usage(input_tokens=1_000_000, output_tokens=0))
    provider = play_turns(turn, turn, says("Done."))
    workshop = priced(tmp_path, provider, dollar(BudgetAction.ASK, BudgetScope.RUN))
    async with workshop.open() as engine:
        for decision, reason in ((Decision.ALLOW, "final_answer"), (Decision.DENY, "budget")):
            record = await engine.runs.start(OWNER, ask())
            await wait_for(engine, record.id, "approval.requested")
            (question,) = [q for q in await engine.approvals.list(OWNER, ApprovalsQuery()) if q.status == "pending"]
            assert question.kind == "budget"
            assert question.preview is not None
            assert "used up" in question.preview
            lasting = ApprovalAnswer(decision=Decision.DENY, scope=Scope.SESSION)
            with pytest.raises(Invalid, match="scope_not_offered"):
                await engine.approvals.answer(OWNER, question.id, lasting)
            await engine.approvals.answer(OWNER, question.id, ApprovalAnswer(decision=decision))
            events = await finished(engine, record)
            assert (await engine.runs.get(OWNER, record.id)).reason == reason
            assert [event.type for event in events].count("approval.requested") == 1


async def test_nobody_to_ask_is_a_denial(tmp_path: Path) -> None:
    workshop = priced(tmp_path, Metered(Usage(input_tokens=2_000_000, output_tokens=0)), dollar(BudgetAction.ASK))
    async with workshop.open() as engine:
        await run_many(engine, 1)
        record = await engine.runs.start(OWNER, ask(can_ask=False))
        await finished(engine, record)
        assert (await engine.runs.get(OWNER, record.id)).reason == "budget"


def two_models(root: Path, *budgets: Budget) -> Workshop:
    workshop = Workshop(root, [])
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    workshop.providers = {"dear": Metered(usage), "cheap": Metered(usage)}
    workshop.route = ("dear", "cheap")
    workshop.prices = PriceTables(
        {
            "dear": PricedModel(kind="scripted", id="dear", input_usd_per_mtok=2.0, output_usd_per_mtok=2.0),
            "cheap": PricedModel(kind="scripted", id="cheap", input_usd_per_mtok=0.1, output_usd_per_mtok=0.1),
        }
    )
    workshop.budgets = budgets
    return workshop


async def test_past_its_budget_a_route_goes_on_with_its_cheapest_model(tmp_path: Path) -> None:
    async with two_models(tmp_path, dollar(BudgetAction.DOWNGRADE)).open() as engine:
        events = [await finished(engine, await engine.runs.start(OWNER, ask())) for _ in range(3)]
    assert [spends(each)[0].model for each in events] == ["dear", "cheap", "cheap"]


async def test_a_route_that_only_suggests_calls_its_first_model(tmp_path: Path) -> None:
    workshop = two_models(tmp_path)
    workshop.routes = {"trial": ModelRoute(("cheap", "dear"), RouteMode.DRY_RUN)}
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask(model="trial")))
    (plan,) = [event.data for event in events if isinstance(event.data, RoutePlanned)]
    assert (plan.mode, plan.chosen, plan.suggested) == (RouteMode.DRY_RUN, "cheap", "cheap")
    assert spends(events)[0].model == "cheap"


async def test_a_call_that_failed_before_its_first_word_gives_back_what_it_reserved(tmp_path: Path) -> None:
    failing = Turn(failure=PreparedFailure(ModelError.BAD_REQUEST))
    workshop = priced(tmp_path, play_turns(failing), dollar())
    async with workshop.open() as engine:
        for _ in range(5):
            events = await finished(engine, await engine.runs.start(OWNER, ask()))
            assert spends(events) == []
            (plan,) = [event.data for event in events if isinstance(event.data, RoutePlanned)]
            assert plan.reserved is not None


async def test_a_provider_that_does_not_count_is_counted_by_us(tmp_path: Path) -> None:
    async with priced(tmp_path, Metered(None)).open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask("x" * 3_000)))
    (spend,) = spends(events)
    assert spend.is_estimate
    assert spend.input_tokens >= 750
    assert spend.cost_usd is not None


async def test_a_cancelled_call_is_paid_for_as_far_as_it_went(tmp_path: Path) -> None:
    provider = Metered()
    provider.gate.clear()
    async with priced(tmp_path, provider, dollar()).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await wait_for(engine, record.id, "model.delta")
        await engine.runs.cancel(OWNER, record.id)
        (spend,) = spends(await finished(engine, record))
    assert spend.is_estimate
    assert spend.output_tokens == 5


async def test_a_run_that_waits_for_room_can_be_cancelled(tmp_path: Path) -> None:
    provider = Metered()
    provider.gate.clear()
    async with priced(tmp_path, provider, dollar()).open() as engine:
        first = await engine.runs.start(OWNER, ask())
        await wait_for(engine, first.id, "model.delta")
        second = await engine.runs.start(OWNER, ask())
        assert provider.begun_count == 1
        await engine.runs.cancel(OWNER, second.id)
        await finished(engine, second)
        assert (await engine.runs.get(OWNER, second.id)).state == "cancelled"
        provider.gate.set()
        await finished(engine, first)


async def test_a_model_of_unknown_price_is_refused_under_a_cap_in_usd(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, Metered())
    workshop.budgets = (dollar(),)
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        ended = await engine.runs.get(OWNER, record.id)
    assert ended.reason == "budget"
    assert ended.error is not None
    assert "price_unknown" in ended.error.message
    assert spends(events) == []


async def test_an_unknown_price_is_never_zero(tmp_path: Path) -> None:
    async with Workshop(tmp_path, Metered()).open() as engine:
        record = await engine.runs.start(OWNER, ask())
        (spend,) = spends(await finished(engine, record))
        assert (await engine.runs.get(OWNER, record.id)).usage.cost_usd is None
    assert spend.cost_usd is None


async def test_images_and_tools_go_to_a_model_that_takes_them(tmp_path: Path) -> None:
    workshop = two_models(tmp_path)
    workshop.describe = lambda name: ModelCard(name=name, provider=name, kind="", id=name, tools=name == "cheap")
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
    assert spends(events)[0].model == "cheap"
