"""Plans which model takes a turn, and reserves its cost (L9).

Owns: gathering what a route plan depends on, and asking the policy for each model. Does not own: the plan's rules
(core.routing).
"""

from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.budget import left_usd
from palyra.core.context.prompt import has_images
from palyra.core.delegation import agents_above, channel_of
from palyra.core.events.model import BudgetState, RoutePlanned, Usage
from palyra.core.events.tool import Verdict
from palyra.core.ids import SessionId
from palyra.core.routing import Demand, ModelCandidate, Wait, plan_route
from palyra.core.run.effects import PlanRoute
from palyra.core.run.state import Run
from palyra.core.service_runs import ServiceSpec, find_service
from palyra.engine.agents import AgentDirectory
from palyra.engine.hub import Hub, LiveFrame
from palyra.engine.session.pending_commit import PendingCommit, taint_labels
from palyra.engine.session.prompt_base import PromptBases
from palyra.engine.spend.ledger import EstimateFactor, Ledger, spender_of
from palyra.ports.clock import Clock
from palyra.ports.policy import ModelQuestion, Policy
from palyra.ports.prices import Prices
from palyra.ports.router import RouteOption, Router

OUTPUT_TOKENS_MAX = 16_384  # The output limit of one call if the model's configuration names none.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePlanner:
    agents: AgentDirectory
    prompts: PromptBases
    router: Router
    prices: Prices
    ledger: Ledger
    hub: Hub
    clock: Clock
    policy: Policy
    approval_timeout_ms: int

    async def plan(self, pending: PendingCommit, run: Run, effect: PlanRoute) -> RoutePlanned | None:
        """Returns None while other calls hold the rest of a budget; the session is woken when there may be room."""
        ledger, state = self.ledger, pending.state
        now_ms = self.clock.now_ms()
        spender = spender_of(run, state.session_id)
        standings = await ledger.standings(spender, now_ms, pending.spends)
        demand, candidates = self._question(pending, run, effect, left_usd(standings))
        is_turn = ledger.is_open(spender) and not ledger.is_behind(spender)
        plan = plan_route(demand, candidates, standings) if is_turn else Wait(())
        if isinstance(plan, Wait):
            ledger.wait(spender, plan.budgets)
            self._tell_waiting(state.session_id, run, plan)
            return None
        if plan.reserved is not None:
            ledger.reserve(spender, plan)
        if plan.budget is BudgetState.ASK:
            return replace(plan, expires_in_ms=self.approval_timeout_ms)
        return plan

    def _question(
        self, pending: PendingCommit, run: Run, effect: PlanRoute, budget_left_usd: float | None
    ) -> tuple[Demand, list[ModelCandidate]]:
        agent, service = self.agents.of_run(run.agent), find_service(run.agent)
        base = self.prompts.of(agent, run.skills, run.lineage)
        input_tokens = run.batch_tokens + (run.context.input_tokens if run.context is not None else 0)
        routes = self.router.options(agent.route, run.model)
        # After half an answer, the next model of the route comes first.
        turned = run.interruptions_count % len(routes.options) if routes.options else 0
        options = (*routes.options[turned:], *routes.options[:turned])
        demand = Demand(
            turn=effect.turn,
            agent=run.agent,
            mode=routes.mode,
            input_tokens=input_tokens,
            batch_tokens=run.batch_tokens,
            needs_images=has_images(pending.state.window),
            needs_tools=bool(base.tools),
            must_use_tools=bool(run.must_call),
            is_budget_approved=effect.is_budget_approved,
            is_probe=service is not None and service.is_probe,
        )
        asked = ModelQuestion(
            principal=run.principal,
            agent=run.agent,
            model="",
            provider="",
            origin=channel_of(run),
            taint=taint_labels(pending.state, run),
            is_named=run.model is not None,
            budget_left_usd=budget_left_usd,
        )
        candidates = [self._candidate(option, input_tokens, service) for option in options]
        return demand, [
            self._permitted(one, option, asked, run) for one, option in zip(candidates, options, strict=True)
        ]

    def _permitted(
        self, candidate: ModelCandidate, option: RouteOption, asked: ModelQuestion, run: Run
    ) -> ModelCandidate:
        """Asks for every agent that the run works for: none may do by another what it may not do itself."""
        if option.known is None:
            return candidate
        asked = replace(asked, model=option.model, provider=option.known.provider)
        served = () if run.serves_agent is None else (run.serves_agent,)
        for agent in (run.agent, *served, *agents_above(run)):
            answer = self.policy.permit_model(replace(asked, agent=agent))
            if answer.verdict is not Verdict.ALLOW:
                return replace(candidate, denied_by=answer.rule)
        return candidate

    def _candidate(self, option: RouteOption, input_tokens: int, service: ServiceSpec | None) -> ModelCandidate:
        known = option.known
        if known is None:
            return ModelCandidate(model=option.model, is_known=False)
        factor = self.ledger.factor(option.model)
        scale = factor or EstimateFactor()
        output_tokens = known.max_output_tokens or OUTPUT_TOKENS_MAX
        if service is not None:
            output_tokens = min(output_tokens, service.max_output_tokens)
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        cost = self.prices.cost_nano_usd(option.model, usage)
        return ModelCandidate(
            model=option.model,
            health=known.health,
            is_open=option.is_open,
            takes_images=known.vision,
            takes_tools=known.tools,
            window_tokens=known.window_tokens,
            output_tokens=round((input_tokens + output_tokens) * scale.tokens) - input_tokens,
            cost_nano_usd=None if cost is None else round(cost * scale.usd),
            is_proven=factor is not None,
        )

    def _tell_waiting(self, session_id: SessionId, run: Run, wait: Wait) -> None:
        which = f" {' and '.join(wait.budgets)}" if wait.budgets else ""
        message = f"Waiting until other calls are settled: the rest of the budget{which} is reserved."
        data: dict[str, object] = {"phase": "budget", "message": message}
        self.hub.live(LiveFrame(session_id, run.run_id, "progress", data))
