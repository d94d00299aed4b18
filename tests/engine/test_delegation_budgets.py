"""Budgets and delegation (L9): a child has a share, and what it spends counts for every run above it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.prices.tables import PricedModel, PriceTables
from palyra.adapters.providers.prepared_turns import Turn
from palyra.core.agents import AgentSpec
from palyra.core.budget import Budget, BudgetPeriod, BudgetScope
from palyra.core.events import Event
from palyra.core.events.model import RoutePlanned, Usage
from palyra.core.trust import Trust
from palyra.engine.api.requests import RunRecord
from palyra.engine.engine import Engine
from tests.support.asking import ask, calls, finished, says
from tests.support.delegating import accepted, child_begun, children, codes, delegates, delegating, events_of, run
from tests.support.engines import OWNER, Workshop

pytestmark = pytest.mark.anyio

USD = 1_000_000_000
CENTS = Usage(input_tokens=40_000, output_tokens=0)  # $0.04 at the price below.


def paid(turn: Turn) -> Turn:
    return replace(turn, usage=CENTS)


def priced(root: Path, *scripts: tuple[str, tuple[Turn, ...]], budgets: tuple[Budget, ...] = ()) -> Workshop:
    made = delegating(root, *((when, tuple(map(paid, turns))) for when, turns in scripts))
    listing = PricedModel(kind="scripted", id="scripted", input_usd_per_mtok=1.0, output_usd_per_mtok=1.0)
    made.prices = PriceTables({"scripted": listing})
    made.budgets = budgets
    return made


def budget(scope: BudgetScope, usd: float, period: BudgetPeriod = BudgetPeriod.NONE) -> Budget:
    return Budget(scope=scope, period=period, limit_nano_usd=round(usd * USD))


def names_used_up(events: list[Event]) -> set[str]:
    plans = [event.data for event in events if isinstance(event.data, RoutePlanned)]
    return {each.budget for plan in plans for each in plan.budgets if each.is_used_up}


LOOKS = tuple(calls("time.now", timezone=zone) for zone in ("UTC", "Europe/Berlin", "Asia/Tokyo", "Asia/Kolkata"))
LONG = ("^look", (*LOOKS, says("Seen.")))


async def spent_usd(engine: Engine, record: RunRecord) -> float:
    tree = await engine.trees.get(OWNER, record.id)
    assert tree.total.cost_usd is not None
    return tree.total.cost_usd


async def test_budget_usd_caps_the_child_by_at_most_one_request(tmp_path: Path) -> None:
    made = priced(tmp_path, ("^go$", (delegates("look", budget_usd=0.1), says("Done."))), LONG)
    async with made.open() as engine:
        record, events = await run(engine)
        (child,) = await children(engine, record.id)
        tape = await events_of(engine, child)
        assert codes(events) == ["child_budget"]
        assert names_used_up(tape) == {"delegation"}
        assert 0.1 <= child.cost_nano_usd / USD <= 0.14 + 1e-9
        assert record.state == "done"


async def test_a_cap_holds_for_the_childs_own_children(tmp_path: Path) -> None:
    made = priced(
        tmp_path,
        ("^go$", (delegates("middle", budget_usd=0.1), says("Done."))),
        ("^middle$", (delegates("look 1", "look 2"), says("Passed on."))),
        LONG,
    )
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        below = await children(engine, child.id)
        assert sum(row.cost_nano_usd for row in (child, *below)) / USD <= 0.14 + 1e-9
        assert all(row.reason is not None and row.reason.value == "budget" for row in (child, *below))


async def test_without_a_cap_a_child_gets_a_share_of_what_is_left(tmp_path: Path) -> None:
    made = priced(
        tmp_path,
        ("^go$", (delegates("look"), says("Done."))),
        LONG,
        budgets=(budget(BudgetScope.RUN, 1.04), budget(BudgetScope.PRINCIPAL, 9.0)),
    )
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        assert accepted(await events_of(engine, child)).budget_nano_usd == round(0.2 * USD)


async def test_without_budgets_nothing_is_capped(tmp_path: Path) -> None:
    made = priced(tmp_path, ("^go$", (delegates("look"), says("Done."))), LONG)
    async with made.open() as engine:
        record, _ = await run(engine)
        (child,) = await children(engine, record.id)
        assert accepted(await events_of(engine, child)).budget_nano_usd is None
        assert child.state.value == "done"


@pytest.mark.parametrize("scope", [BudgetScope.RUN, BudgetScope.SESSION, BudgetScope.AGENT, BudgetScope.CHANNEL])
async def test_what_children_spend_counts_for_their_parent(tmp_path: Path, scope: BudgetScope) -> None:
    """$0.04 for the first turn, and $0.20 for the child: the second turn finds the budget used up."""
    made = priced(
        tmp_path,
        ("^go$", (delegates("look", agent="helper", budget_usd=5), says("Done."))),
        LONG,
        budgets=(budget(scope, 0.22),),
    )
    made.agents = {name: AgentSpec(name=name, workspace=(str(made.workspace),)) for name in ("main", "helper")}
    async with made.open() as engine:
        record, _ = await run(engine)
        assert (record.state, record.reason) == ("failed", "budget")
        assert await spent_usd(engine, record) == pytest.approx(0.24)


@pytest.mark.parametrize("scope", [BudgetScope.RUN, BudgetScope.SESSION, BudgetScope.AGENT, BudgetScope.CHANNEL])
async def test_a_restart_counts_what_children_spent(tmp_path: Path, scope: BudgetScope) -> None:
    turns = (delegates("look", agent="helper", budget_usd=5), calls("mark.send", text="mail"), says("Done."))
    made = priced(tmp_path, ("^go$", turns), LONG)
    made.agents = {name: AgentSpec(name=name, workspace=(str(made.workspace),)) for name in ("main", "helper")}
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await child_begun(engine, record.id)
        async for frame in await engine.runs.follow(OWNER, record.id, None):
            if frame.type == "run.waiting":
                break
    made.budgets = (budget(scope, 0.27),)  # $0.28 are spent: two turns of the parent and five of the child.
    async with made.open() as engine:
        await engine.runs.send_input(OWNER, record.id, "go", Trust.OPERATOR)
        await finished(engine, record)
        assert (await engine.runs.get(OWNER, record.id)).reason == "budget"


async def test_children_side_by_side_overshoot_the_parents_budget_by_one_request(tmp_path: Path) -> None:
    looks = tuple(f"look {number}" for number in range(4))
    made = priced(
        tmp_path,
        ("^go$", (delegates(*looks, budget_usd=5), says("Done."))),
        LONG,
        budgets=(budget(BudgetScope.RUN, 0.3),),
    )
    async with made.open() as engine:
        record, _ = await run(engine)
        assert record.reason == "budget"
        assert 0.3 <= await spent_usd(engine, record) <= 0.34 + 1e-9


async def test_a_model_without_a_price_is_not_called_under_a_cap(tmp_path: Path) -> None:
    made = delegating(
        tmp_path, ("^go$", (delegates("look", budget_usd=1), says("Done."))), ("^look$", (says("Seen."),))
    )
    async with made.open() as engine:
        _, events = await run(engine)
        assert codes(events) == ["child_budget"]
