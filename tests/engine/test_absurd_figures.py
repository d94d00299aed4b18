"""Token counts that cannot be: a run ends, later runs are planned, and a budget still counts."""

from pathlib import Path
from typing import cast

import pytest

from palyra.core.budget import Budget, BudgetAction, BudgetPeriod, BudgetScope, Spender
from palyra.core.estimate import CALL_TOKENS_MAX
from palyra.core.events import Event
from palyra.core.events.model import BudgetState, Reservation, RouteMode, RoutePlanned, Usage, UsageRecorded
from palyra.core.ids import RunId, SessionId, StreamId
from palyra.engine.spend.ledger import FACTOR_MAX, EstimateFactor, Ledger, Spent
from palyra.ports.views import UsageViews
from tests.engine.test_budgets import CALL, Metered, priced, run_many
from tests.support.asking import ask, finished
from tests.support.engines import OWNER

pytestmark = pytest.mark.anyio

ABSURD = (2**53, 2**63, 2**70, -1)


def spend_of(events: list[Event]) -> UsageRecorded:
    (spend,) = [event.data for event in events if isinstance(event.data, UsageRecorded)]
    return spend


@pytest.mark.parametrize("count", ABSURD)
@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "cached_tokens"])
async def test_a_run_ends_whatever_its_provider_counts_and_the_next_one_too(
    tmp_path: Path, field: str, count: int
) -> None:
    usage = Usage(**{"input_tokens": 10, "output_tokens": 10, field: count})
    async with priced(tmp_path, Metered(usage)).open() as engine:
        for _ in range(3):
            events = await finished(engine, await engine.runs.start(OWNER, ask()))
            assert events[-1].type == "run.done"
            assert spend_of(events).is_estimate


async def test_the_largest_possible_count_leaves_later_runs_possible(tmp_path: Path) -> None:
    provider = Metered(Usage(input_tokens=CALL_TOKENS_MAX, output_tokens=CALL_TOKENS_MAX))
    async with priced(tmp_path, provider).open() as engine:
        states = [record.state for record in await run_many(engine, 5)]
    assert states == ["done"] * 5


def test_one_absurd_bill_is_learned_from_only_so_far() -> None:
    ledger = Ledger(cast(UsageViews, None), (), lambda _: None)
    spender = Spender(
        principal=OWNER, channel="api", agent="main", session_id=SessionId(StreamId("s")), run_id=RunId("r")
    )
    reserved = Reservation(input_tokens=10, output_tokens=10, cost_usd=0.001)
    ledger.reserve(
        spender, RoutePlanned(turn=1, mode=RouteMode.ENFORCED, chosen="m", budget=BudgetState.OK, reserved=reserved)
    )
    bill = UsageRecorded(
        model="m", input_tokens=CALL_TOKENS_MAX, output_tokens=0, cached_tokens=0, cost_usd=9.9, turn=1
    )
    ledger.foresee(Spent(spender, bill, 0))
    assert ledger.factor("m") == EstimateFactor(FACTOR_MAX, FACTOR_MAX)


class EndlessPrices:
    """Prices the plan as usual, and what was counted as nonsense."""

    def cost_nano_usd(self, model: str, usage: Usage) -> int | None:
        return float("inf") if usage == CALL else 1  # type: ignore[return-value]


async def test_an_outcome_that_cannot_be_recorded_ends_its_run(tmp_path: Path) -> None:
    workshop = priced(tmp_path, Metered())
    workshop.prices = EndlessPrices()
    async with workshop.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        events = await finished(engine, record)
        assert events[-1].type == "run.failed"
        await engine.sessions.delete(OWNER, record.session_id)


async def test_a_provider_that_does_not_count_is_stopped_by_a_budget_of_tokens(tmp_path: Path) -> None:
    budget = Budget(scope=BudgetScope.GLOBAL, period=BudgetPeriod.DAY, action=BudgetAction.DENY, limit_tokens=30_000)
    provider = Metered(Usage(input_tokens=-5, output_tokens=-5))
    async with priced(tmp_path, provider, budget).open() as engine:
        for _ in range(12):
            await finished(engine, await engine.runs.start(OWNER, ask("x" * 30_000)))
    assert provider.begun_count <= 3
