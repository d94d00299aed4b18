"""Makes the UsageRoutingPlan of a turn: the chosen model, its fallbacks, and the reservation.

Does not own: the demand of the turn, the state of models and budgets (engine.spend.route_planner).
A candidate with a reason against it is passed over. The first one without a reason is chosen, and the others are
fallbacks. Then budgets are applied. A used-up budget denies, asks, or lets only the cheapest model go on. If other
calls have reserved the rest of a budget, the turn waits until one of them is settled.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from palyra.core.budget import Amount, BudgetAction, BudgetScope, Standing, has_room
from palyra.core.events.model import (
    BudgetStanding,
    BudgetState,
    ModelError,
    Reservation,
    RouteCandidate,
    RouteMode,
    RoutePlanned,
)

NANO = 1_000_000_000
NOT_PERMITTED = "not_permitted"
# An estimate may be a quarter too high. Only what is clearly too long is passed over; the provider decides the rest.
WINDOW_SLACK = 1.25
_OWN_SCOPES = frozenset({BudgetScope.PRINCIPAL, BudgetScope.SESSION, BudgetScope.RUN})


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn asks of a model.

    Of `input_tokens`, `batch_tokens` are of texts that the model takes one by one: together they need no window.
    `needs_tools` says that tools would be offered. `must_use_tools` says that the turn must fail without them. `agent`
    is for the words of a failure.
    """

    turn: int
    agent: str = ""
    mode: RouteMode = RouteMode.ENFORCED
    input_tokens: int = 0
    batch_tokens: int = 0
    needs_images: bool = False
    needs_tools: bool = False
    must_use_tools: bool = False
    is_budget_approved: bool = False
    is_probe: bool = False


class ModelCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the route as it stands now. `cost_nano_usd` is the most the call may cost; an unknown cost is None.

    `is_proven` says that a call of this model has been settled before, so that its estimate is worth something.
    `denied_by` is the policy that does not permit it.
    """

    model: str
    is_known: bool = True
    health: str = "unknown"
    is_open: bool = False
    takes_images: bool = True
    takes_tools: bool = True
    window_tokens: int | None = None
    output_tokens: int = 0
    cost_nano_usd: int | None = None
    is_proven: bool = True
    denied_by: str | None = None


class Wait(msgspec.Struct, frozen=True):
    """There is no plan yet: calls in flight have reserved the rest of these budgets."""

    budgets: tuple[str, ...]


def plan_route(
    demand: Demand, candidates: Sequence[ModelCandidate], standings: Sequence[Standing]
) -> RoutePlanned | Wait:
    judged = _judge(demand, candidates, standings)
    base = RoutePlanned(
        turn=demand.turn,
        mode=demand.mode,
        chosen=None,
        budget=BudgetState.OK,
        candidates=tuple(_told(candidate, reasons) for candidate, reasons in judged),
        estimated_input_tokens=demand.input_tokens,
        budgets=tuple(_standing(standing) for standing in standings),
    )
    usable = [candidate for candidate, reasons in judged if not reasons]
    if demand.mode is RouteMode.ENFORCED:
        return _enforced(demand, base, usable, standings)
    return _advised(demand, base, candidates, usable, standings)


def _enforced(
    demand: Demand, base: RoutePlanned, usable: list[ModelCandidate], standings: Sequence[Standing]
) -> RoutePlanned | Wait:
    if not usable:
        return _nobody(demand, base)
    refused = _refusal(demand, base, usable[0], standings)
    if refused is not None:
        return refused
    cheaper = _downgraded(usable, standings)
    if cheaper is not None:
        if not cheaper:
            return _denied(base, _used_up(standings, BudgetAction.DOWNGRADE), "and the route has no cheaper model")
        crowded = _crowded(demand, cheaper[0], standings)
        return Wait(crowded) if crowded else _booked(demand, replace(base, reasons=("downgraded",)), cheaper, ())
    crowded = _crowded(demand, usable[0], standings)
    if crowded:
        return Wait(crowded)
    behind = [candidate for candidate in usable[1:] if not _crowded(demand, candidate, standings)]
    first = base.candidates[0].model if base.candidates else None
    reasons: tuple[str, ...] = ("first",) if usable[0].model == first else ("passed_over",)
    if demand.needs_images and not usable[0].takes_images:
        reasons = (*reasons, "images_left_out")
    return _booked(demand, replace(base, reasons=reasons), [usable[0]], behind)


def _advised(
    demand: Demand,
    base: RoutePlanned,
    candidates: Sequence[ModelCandidate],
    usable: list[ModelCandidate],
    standings: Sequence[Standing],
) -> RoutePlanned | Wait:
    """Calls the route's own first model, and records what the plan would have done.

    Budgets hold unless the mode is a dry run.
    """
    first = next((each for each in candidates if each.is_known and each.denied_by is None), None)
    if first is None:
        return _nobody(demand, base)
    advice = _enforced(replace(demand, mode=RouteMode.ENFORCED), base, usable, standings)
    suggested = advice.chosen if isinstance(advice, RoutePlanned) else first.model
    told = replace(base, suggested=suggested, reasons=(demand.mode.value,))
    if demand.mode is RouteMode.SUGGEST:
        refused = _refusal(demand, told, first, standings)
        if refused is not None:
            return refused
        if first.cost_nano_usd is None and any(standing.budget.needs_price for standing in standings):
            only = tuple(each for each in base.candidates if each.model == first.model)
            return _nobody(demand, replace(base, candidates=only))
        crowded = _crowded(demand, first, standings)
        if crowded:
            return Wait(crowded)
    message = advice.message if isinstance(advice, RoutePlanned) else ""
    return _booked(demand, replace(told, message=message), [first], ())


def _judge(
    demand: Demand, candidates: Sequence[ModelCandidate], standings: Sequence[Standing]
) -> list[tuple[ModelCandidate, tuple[str, ...]]]:
    """Returns each candidate with the reasons against it.

    If none is left, a model without tools is better than none, unless tools must be used. The same holds for a model
    that is told of images in words. Otherwise a session would be lost with its first image.
    """
    needs_price = any(standing.budget.needs_price for standing in standings)
    judged = [(each, tuple(_faults(demand, each, needs_price))) for each in candidates]
    if any(not reasons for _, reasons in judged):
        return judged
    spared = {"no_vision"} if demand.must_use_tools else {"no_vision", "no_tools"}
    return [(each, () if spared.issuperset(reasons) else reasons) for each, reasons in judged]


def _faults(demand: Demand, candidate: ModelCandidate, needs_price: bool) -> Iterable[str]:
    if not candidate.is_known:
        yield "unknown"
        return
    if candidate.denied_by is not None:
        yield NOT_PERMITTED
        return
    if candidate.is_open and not demand.is_probe:
        yield "circuit_open"
    if demand.needs_images and not candidate.takes_images:
        yield "no_vision"
    if demand.needs_tools and not candidate.takes_tools:
        yield "no_tools"
    window = candidate.window_tokens
    if window is not None and demand.input_tokens - demand.batch_tokens > window * WINDOW_SLACK:
        yield "window"
    if needs_price and candidate.cost_nano_usd is None:
        yield "price_unknown"


def _refusal(
    demand: Demand, base: RoutePlanned, first: ModelCandidate, standings: Sequence[Standing]
) -> RoutePlanned | None:
    denying = _used_up(standings, BudgetAction.DENY)
    if denying:
        return _denied(base, denying, "")
    asking = _used_up(standings, BudgetAction.ASK)
    if asking and not demand.is_budget_approved:
        message = f"The budget {_named(asking)} is used up. Allow lets this run, and this run alone, go on past it."
        return replace(base, chosen=first.model, budget=BudgetState.ASK, message=message)
    return None


def _denied(base: RoutePlanned, standings: list[Standing], more: str) -> RoutePlanned:
    words = f"The budget {_named(standings)} is used up{f', {more}' if more else ''}."
    advice = "Raise it in palyra.toml, or wait until its period ends; `palyra usage` shows what was spent."
    return replace(base, budget=BudgetState.DENY, message=f"{words} {advice}")


def _downgraded(usable: list[ModelCandidate], standings: Sequence[Standing]) -> list[ModelCandidate] | None:
    """Returns the cheapest model alone, if it is cheaper than the first; None while no budget asks for it."""
    if not _used_up(standings, BudgetAction.DOWNGRADE):
        return None
    priced = [each for each in usable if each.cost_nano_usd is not None]
    if not priced:
        return []
    cheapest = min(priced, key=_cost)
    first = usable[0].cost_nano_usd
    return [cheapest] if first is None or _cost(cheapest) < first else []


def _crowded(demand: Demand, candidate: ModelCandidate, standings: Sequence[Standing]) -> tuple[str, ...]:
    """Returns the budgets whose rest other calls have reserved. Used-up budgets were dealt with before."""
    amount = _amount(demand, candidate)
    return tuple(
        standing.budget.name
        for standing in standings
        if not standing.is_used_up and not has_room(standing, amount, candidate.is_proven)
    )


def _booked(
    demand: Demand, base: RoutePlanned, chosen: list[ModelCandidate], behind: Sequence[ModelCandidate]
) -> RoutePlanned:
    """Returns the plan with its reservation, which is enough for whichever of these models answers."""
    taking = [*chosen, *behind]
    is_priced = any(each.cost_nano_usd is not None for each in taking)
    reserved = Reservation(
        input_tokens=demand.input_tokens,
        output_tokens=max(each.output_tokens for each in taking),
        cost_usd=max(_cost(each) for each in taking) / NANO if is_priced else None,
    )
    return replace(base, chosen=chosen[0].model, fallbacks=tuple(each.model for each in behind), reserved=reserved)


def _nobody(demand: Demand, base: RoutePlanned) -> RoutePlanned:
    why = ", ".join(f"{each.model} ({', '.join(each.reasons)})" for each in base.candidates if not each.policy)
    denied = "".join(
        f' The model "{each.model}" is not allowed for agent "{demand.agent}" (policy: {each.policy}).'
        for each in base.candidates
        if each.policy
    )
    faults = {reason for each in base.candidates for reason in each.reasons}
    advice = "".join(f" {_ADVICE[fault]}" for fault in _ADVICE if fault in faults)
    others = f"No model can take this call: {why}." if why or not denied else ""
    message = f"{others}{denied}{advice}".strip()
    if faults == {"price_unknown"}:
        return replace(base, budget=BudgetState.DENY, message=message)
    code = ModelError.CONTEXT_LENGTH if faults == {"window"} else ModelError.NO_MODEL
    return replace(base, code=code, message=message)


_ADVICE = {
    NOT_PERMITTED: "Choose another model (`palyra models`), or have the policy changed.",
    "unknown": "`palyra models` lists those that are configured.",
    "circuit_open": "A model that failed repeatedly is tried again soon; `palyra models check` says what is wrong.",
    "no_vision": "The conversation holds images; configure a model with vision = true.",
    "no_tools": "The run must use tools; configure a model with tools = true.",
    "window": "The conversation is longer than the model's window; begin a new session, or route to a model with a larger one.",
    "price_unknown": "A budget in USD needs prices: set input_usd_per_mtok and output_usd_per_mtok of the model, or give the"
    " budget limit_tokens as well.",
}


def _told(candidate: ModelCandidate, reasons: tuple[str, ...]) -> RouteCandidate:
    cost = candidate.cost_nano_usd
    return RouteCandidate(
        model=candidate.model,
        reasons=reasons,
        health=candidate.health,
        estimated_cost_usd=None if cost is None else cost / NANO,
        policy=candidate.denied_by,
    )


def _standing(standing: Standing) -> BudgetStanding:
    budget, is_own = standing.budget, standing.budget.scope in _OWN_SCOPES
    return BudgetStanding(
        budget=budget.name,
        action=budget.action.value,
        is_used_up=standing.is_used_up,
        limit_usd=None if budget.limit_nano_usd is None else budget.limit_nano_usd / NANO,
        limit_tokens=budget.limit_tokens,
        spent_usd=standing.spent.nano_usd / NANO if is_own else None,
        spent_tokens=standing.spent.tokens if is_own else None,
        reserved_usd=standing.reserved.nano_usd / NANO if is_own else None,
        reserved_tokens=standing.reserved.tokens if is_own else None,
    )


def reserved_amount(plan: RoutePlanned) -> Amount:
    """Returns what the plan takes from every budget until the call is settled."""
    reserved = plan.reserved
    if reserved is None:
        return Amount()
    nano_usd = 0 if reserved.cost_usd is None else round(reserved.cost_usd * NANO)
    return Amount(nano_usd, reserved.input_tokens + reserved.output_tokens)


def _amount(demand: Demand, candidate: ModelCandidate) -> Amount:
    return Amount(candidate.cost_nano_usd or 0, demand.input_tokens + candidate.output_tokens)


def _used_up(standings: Sequence[Standing], action: BudgetAction) -> list[Standing]:
    return [standing for standing in standings if standing.budget.action is action and standing.is_used_up]


def _named(standings: list[Standing]) -> str:
    return " and ".join(f"{standing.budget.name} ({_of(standing)})" for standing in standings)


def _of(standing: Standing) -> str:
    """Says what the budget allows, and what is spent of it unless that would reveal other principals' spend."""
    budget, spent, is_own = standing.budget, standing.spent, standing.budget.scope in _OWN_SCOPES
    words = []
    if budget.limit_nano_usd is not None:
        of = f"${spent.nano_usd / NANO:.2f} of " if is_own else ""
        words.append(f"{of}${budget.limit_nano_usd / NANO:.2f}")
    if budget.limit_tokens is not None:
        of = f"{spent.tokens:,} of " if is_own else ""
        words.append(f"{of}{budget.limit_tokens:,} tokens")
    return ", ".join(words)


def _cost(candidate: ModelCandidate) -> int:
    return candidate.cost_nano_usd or 0
