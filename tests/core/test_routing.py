"""The UsageRoutingPlan: who is passed over and why, what budgets do, and what each mode carries out."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.budget import Amount, Budget, BudgetAction, BudgetPeriod, BudgetScope, Standing
from palyra.core.events.model import BudgetState, ModelError, RouteMode, RoutePlanned
from palyra.core.routing import Demand, ModelCandidate, Wait, plan_route, reserved_amount

USD = 1_000_000_000
DEAR = ModelCandidate(model="dear", output_tokens=100, cost_nano_usd=USD // 2)
CHEAP = ModelCandidate(model="cheap", output_tokens=100, cost_nano_usd=USD // 100)
FREE = ModelCandidate(model="free", output_tokens=100, cost_nano_usd=0)
UNPRICED = ModelCandidate(model="unpriced", output_tokens=100)
TURN = Demand(turn=1, input_tokens=50)


class Limits(NamedTuple):
    usd: int | None = USD
    tokens: int | None = None


def budget(
    action: BudgetAction = BudgetAction.DENY, spent: int = 0, reserved: int = 0, limits: Limits | None = None
) -> Standing:
    usd, tokens = limits or Limits()
    rule = Budget(
        scope=BudgetScope.PRINCIPAL,
        period=BudgetPeriod.DAY,
        action=action,
        limit_nano_usd=usd,
        limit_tokens=tokens,
    )
    return Standing(budget=rule, spent=Amount(spent), reserved=Amount(reserved))


def planned(plan: RoutePlanned | Wait) -> RoutePlanned:
    assert isinstance(plan, RoutePlanned), plan
    return plan


def test_the_first_is_chosen_and_the_others_stand_behind_it() -> None:
    plan = planned(plan_route(TURN, [CHEAP, DEAR], ()))
    assert (plan.chosen, plan.fallbacks, plan.reasons, plan.budget) == ("cheap", ("dear",), ("first",), BudgetState.OK)
    assert reserved_amount(plan) == Amount(USD // 2, 150)
    assert [each.estimated_cost_usd for each in plan.candidates] == [0.01, 0.5]


@pytest.mark.parametrize(
    ("fault", "demand", "reason"),
    [
        (ModelCandidate(model="bad", is_known=False), TURN, "unknown"),
        (ModelCandidate(model="bad", is_open=True), TURN, "circuit_open"),
        (ModelCandidate(model="bad", takes_images=False), Demand(turn=1, needs_images=True), "no_vision"),
        (ModelCandidate(model="bad", takes_tools=False), Demand(turn=1, needs_tools=True), "no_tools"),
        (ModelCandidate(model="bad", window_tokens=10), TURN, "window"),
    ],
)
def test_who_cannot_take_the_turn_is_passed_over(fault: ModelCandidate, demand: Demand, reason: str) -> None:
    plan = planned(plan_route(demand, [fault, CHEAP], ()))
    assert (plan.chosen, plan.reasons) == ("cheap", ("passed_over",))
    assert plan.candidates[0].reasons == (reason,)


DENIED = ModelCandidate(model="gpt-5", denied_by="models_by_agent", output_tokens=100, cost_nano_usd=0)


@pytest.mark.parametrize("mode", RouteMode)
def test_who_is_not_permitted_is_never_chosen_and_the_policy_is_named(mode: RouteMode) -> None:
    plan = planned(plan_route(Demand(turn=1, mode=mode), [DENIED, CHEAP, DENIED], ()))
    assert (plan.chosen, plan.fallbacks) == ("cheap", ())
    assert (plan.candidates[0].reasons, plan.candidates[0].policy) == (("not_permitted",), "models_by_agent")
    assert plan.candidates[1].policy is None


@pytest.mark.parametrize("mode", RouteMode)
def test_where_nobody_is_permitted_the_failure_names_model_agent_and_policy(mode: RouteMode) -> None:
    demand = Demand(turn=1, mode=mode, agent="intern", needs_tools=True, is_probe=True)
    plan = planned(plan_route(demand, [DENIED], ()))
    assert (plan.chosen, plan.code) == (None, ModelError.NO_MODEL)
    assert plan.message == (
        'The model "gpt-5" is not allowed for agent "intern" (policy: models_by_agent). Choose another model'
        " (`palyra models`), or have the policy changed."
    )


def test_a_failure_for_several_reasons_tells_each() -> None:
    broken = ModelCandidate(model="bad", is_open=True)
    message = planned(plan_route(Demand(turn=1, agent="intern"), [DENIED, broken], ())).message
    assert message.startswith('No model can take this call: bad (circuit_open). The model "gpt-5" is not allowed')


def test_a_model_without_tools_is_better_than_none_unless_tools_must_be_used() -> None:
    plain = ModelCandidate(model="plain", takes_tools=False)
    assert planned(plan_route(Demand(turn=1, needs_tools=True), [plain], ())).chosen == "plain"
    must = Demand(turn=1, needs_tools=True, must_use_tools=True)
    refused = planned(plan_route(must, [plain], ()))
    assert (refused.chosen, refused.code) == (None, ModelError.NO_MODEL)
    assert "tools = true" in refused.message


def test_a_conversation_too_long_for_every_model_is_a_matter_of_context() -> None:
    plan = planned(plan_route(TURN, [ModelCandidate(model="a", window_tokens=10)], ()))
    assert (plan.chosen, plan.code) == (None, ModelError.CONTEXT_LENGTH)


def test_a_model_of_unknown_price_is_no_candidate_under_a_budget_in_usd() -> None:
    plan = planned(plan_route(TURN, [UNPRICED, CHEAP], [budget()]))
    assert (plan.chosen, plan.candidates[0].reasons) == ("cheap", ("price_unknown",))
    alone = planned(plan_route(TURN, [UNPRICED], [budget()]))
    assert (alone.chosen, alone.budget) == (None, BudgetState.DENY)
    assert "input_usd_per_mtok" in alone.message


def test_a_budget_with_tokens_too_lets_a_model_of_unknown_price_go_on() -> None:
    both = budget(limits=Limits(tokens=1_000))
    assert planned(plan_route(TURN, [UNPRICED], [both])).chosen == "unpriced"
    assert planned(plan_route(TURN, [UNPRICED], [budget(limits=Limits(None, 1_000))])).chosen == "unpriced"


def test_a_budget_that_is_used_up_denies_with_what_to_do() -> None:
    plan = planned(plan_route(TURN, [CHEAP], [budget(spent=USD)]))
    assert (plan.chosen, plan.budget, plan.reserved) == (None, BudgetState.DENY, None)
    assert "principal/day" in plan.message


def test_a_budget_may_ask_and_an_answer_lets_the_run_go_on() -> None:
    asking = [budget(BudgetAction.ASK, spent=USD)]
    assert planned(plan_route(TURN, [CHEAP], asking)).budget is BudgetState.ASK
    approved = Demand(turn=1, input_tokens=50, is_budget_approved=True)
    assert planned(plan_route(approved, [CHEAP], asking)).budget is BudgetState.OK
    both = [*asking, budget(spent=USD)]
    assert planned(plan_route(approved, [CHEAP], both)).budget is BudgetState.DENY


def test_past_a_budget_that_downgrades_the_cheapest_goes_on_alone() -> None:
    past = [budget(BudgetAction.DOWNGRADE, spent=USD)]
    plan = planned(plan_route(TURN, [DEAR, CHEAP], past))
    assert (plan.chosen, plan.fallbacks, plan.reasons) == ("cheap", (), ("downgraded",))
    assert planned(plan_route(TURN, [CHEAP, DEAR], past)).budget is BudgetState.DENY
    assert planned(plan_route(TURN, [DEAR], past)).budget is BudgetState.DENY
    assert planned(plan_route(TURN, [DEAR, CHEAP], [budget(BudgetAction.DOWNGRADE)])).chosen == "dear"


def test_what_others_reserved_makes_a_turn_wait_and_what_is_spent_does_not() -> None:
    assert plan_route(TURN, [DEAR], [budget(reserved=USD * 6 // 10)]) == Wait(("principal/day",))
    assert planned(plan_route(TURN, [DEAR], [budget(reserved=USD // 2)])).chosen == "dear"
    assert planned(plan_route(TURN, [DEAR], [budget(spent=USD - 1)])).chosen == "dear"


def test_a_fallback_that_has_no_room_is_left_out_of_the_reservation() -> None:
    plan = planned(plan_route(TURN, [CHEAP, DEAR], [budget(reserved=USD * 6 // 10)]))
    assert (plan.chosen, plan.fallbacks) == ("cheap", ())
    assert reserved_amount(plan).nano_usd == USD // 100


def test_suggesting_calls_the_first_and_says_what_it_would_have_done() -> None:
    demand = Demand(turn=1, input_tokens=50, mode=RouteMode.SUGGEST)
    broken = ModelCandidate(model="broken", is_open=True, cost_nano_usd=1)
    plan = planned(plan_route(demand, [broken, CHEAP], ()))
    assert (plan.chosen, plan.suggested, plan.fallbacks) == ("broken", "cheap", ())
    assert planned(plan_route(demand, [CHEAP], [budget(spent=USD)])).budget is BudgetState.DENY


def test_a_dry_run_changes_nothing_and_still_tells() -> None:
    demand = Demand(turn=1, input_tokens=50, mode=RouteMode.DRY_RUN)
    plan = planned(plan_route(demand, [DEAR, CHEAP], [budget(spent=USD)]))
    assert (plan.chosen, plan.budget, plan.suggested) == ("dear", BudgetState.OK, None)
    assert "used up" in plan.message
    assert plan.budgets[0].is_used_up


def test_what_others_spent_is_not_told() -> None:
    shared = Standing(budget=Budget(scope=BudgetScope.GLOBAL, limit_nano_usd=USD), spent=Amount(5, 7))
    told = planned(plan_route(TURN, [CHEAP], [shared, budget(spent=5)])).budgets
    assert [(each.budget, each.spent_usd) for each in told] == [("global", None), ("principal/day", 5e-9)]


candidates = st.builds(
    ModelCandidate,
    model=st.sampled_from(["a", "b", "c", "d"]),
    is_known=st.booleans(),
    is_open=st.booleans(),
    takes_images=st.booleans(),
    takes_tools=st.booleans(),
    window_tokens=st.none() | st.integers(1, 200),
    output_tokens=st.integers(0, 100),
    cost_nano_usd=st.none() | st.integers(0, 3 * USD),
    is_proven=st.booleans(),
)
demands = st.builds(
    Demand,
    turn=st.just(1),
    mode=st.sampled_from(RouteMode),
    input_tokens=st.integers(0, 300),
    needs_images=st.booleans(),
    needs_tools=st.booleans(),
    must_use_tools=st.booleans(),
    is_budget_approved=st.booleans(),
)
standings = st.builds(
    Standing,
    budget=st.builds(
        Budget,
        scope=st.sampled_from(BudgetScope),
        action=st.sampled_from(BudgetAction),
        limit_nano_usd=st.none() | st.integers(0, 2 * USD),
        limit_tokens=st.none() | st.integers(1, 500),
    ),
    spent=st.builds(Amount, st.integers(0, 2 * USD), st.integers(0, 500)),
    reserved=st.builds(Amount, st.integers(0, 2 * USD), st.integers(0, 500)),
)


@given(demands, st.lists(candidates, max_size=4), st.lists(standings, max_size=3))
def test_no_plan_breaks_a_budget(demand: Demand, offered: list[ModelCandidate], held: list[Standing]) -> None:
    plan = plan_route(demand, offered, held)
    if isinstance(plan, Wait):
        assert any(standing.is_reserved for standing in held)
        return
    is_called = plan.chosen is not None and plan.budget is BudgetState.OK
    assert is_called == (plan.reserved is not None)
    if not is_called or demand.mode is RouteMode.DRY_RUN:
        return
    refusing = {BudgetAction.DENY} | (set() if demand.is_budget_approved else {BudgetAction.ASK})
    assert not any(standing.is_used_up and standing.budget.action in refusing for standing in held)
    if any(standing.budget.needs_price for standing in held):
        assert plan.reserved is not None
        assert plan.reserved.cost_usd is not None
