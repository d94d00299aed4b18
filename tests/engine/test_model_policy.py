"""Policies govern models: the plan says who is not permitted, nobody is called around it, and service runs obey."""

from pathlib import Path

import pytest

from palyra.adapters.providers.prepared_turns import PreparedFailure, Turn
from palyra.adapters.providers.route_table import ModelRoute
from palyra.core.agents import AgentSpec
from palyra.core.events import Event
from palyra.core.events.model import ModelError, ModelOutput, RouteMode, RoutePlanned
from palyra.core.events.run import RunFailed
from palyra.core.events.tool import Verdict
from palyra.core.service_runs import SESSION_SUMMARY, ServiceRequest
from palyra.core.trust import Trust
from palyra.engine.api.policy_explainer import ModelExplainRequest
from tests.support.asking import ask, finished, says
from tests.support.delegating import children, delegates, delegating, events_of
from tests.support.engines import OWNER, Workshop
from tests.support.policies import with_policies
from tests.support.scripts import play_turns

pytestmark = pytest.mark.anyio

FAILING = Turn(failure=PreparedFailure(ModelError.OVERLOADED, "Look at the status page."))


def forbid(condition: str) -> str:
    return f'@id("models_by_agent") forbid (principal, action == Action::"use_model", resource) when {{ {condition} }};'


def three_models(root: Path, condition: str, first: Turn | None = None) -> Workshop:
    workshop = Workshop(root, [])
    turns = {"first": first or says("first"), "second": says("second"), "third": says("third")}
    workshop.providers = {name: play_turns(*[turn] * 9) for name, turn in turns.items()}
    workshop.route = ("first", "second", "third")
    workshop.policy = with_policies(forbid(condition))
    workshop.agents["intern"] = AgentSpec(name="intern", workspace=(str(workshop.workspace),))
    return workshop


def plans(events: list[Event]) -> list[RoutePlanned]:
    return [event.data for event in events if isinstance(event.data, RoutePlanned)]


def answered_by(events: list[Event]) -> list[str]:
    """Each model says its name."""
    return [event.data.text for event in events if isinstance(event.data, ModelOutput)]


async def test_model_that_is_not_permitted_is_no_candidate_and_the_plan_names_the_policy(tmp_path: Path) -> None:
    workshop = three_models(tmp_path, 'resource == Model::"first" && context.agent == Agent::"intern"')
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask(agent="intern")))
        free = await finished(engine, await engine.runs.start(OWNER, ask()))
    (plan,) = plans(events)
    assert (plan.chosen, plan.fallbacks) == ("second", ("third",))
    assert (plan.candidates[0].reasons, plan.candidates[0].policy) == (("not_permitted",), "mine/models_by_agent")
    assert answered_by(events) == ["second"]
    assert answered_by(free) == ["first"]


async def test_failover_skips_a_model_that_is_not_permitted(tmp_path: Path) -> None:
    async with three_models(tmp_path, 'resource == Model::"second"', FAILING).open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
    assert plans(events)[0].fallbacks == ("third",)
    assert answered_by(events) == ["third"]


async def test_run_without_a_permitted_model_fails_and_says_what_to_do(tmp_path: Path) -> None:
    async with three_models(tmp_path, 'context.agent == Agent::"intern"').open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask(agent="intern", model="first")))
    failed = events[-1].data
    assert isinstance(failed, RunFailed)
    assert failed.message == (
        'The model "first" is not allowed for agent "intern" (policy: mine/models_by_agent). Choose another model'
        " (`palyra models`), or have the policy changed."
    )
    assert plans(events)[0].chosen is None
    assert answered_by(events) == []


@pytest.mark.parametrize("mode", [RouteMode.SUGGEST, RouteMode.DRY_RUN])
async def test_mode_that_only_advises_calls_nobody_who_is_not_permitted(tmp_path: Path, mode: RouteMode) -> None:
    workshop = three_models(tmp_path, 'resource == Model::"first"')
    workshop.routes = {"": ModelRoute(workshop.route, mode)}
    async with workshop.open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
    assert answered_by(events) == ["second"]


async def test_policy_sees_who_named_the_model_and_where_the_run_came_from(tmp_path: Path) -> None:
    condition = 'context.is_named && context.origin == "test" && principal == Principal::"user:owner"'
    async with three_models(tmp_path, condition).open() as engine:
        named = await finished(engine, await engine.runs.start(OWNER, ask(model="second")))
        unnamed = await finished(engine, await engine.runs.start(OWNER, ask()))
    assert (named[-1].type, unnamed[-1].type) == ("run.failed", "run.done")


async def test_content_from_outside_takes_a_model_away(tmp_path: Path) -> None:
    workshop = three_models(tmp_path, 'resource == Model::"first" && !context.taint.isEmpty()')
    async with workshop.open() as engine:
        clean = await finished(engine, await engine.runs.start(OWNER, ask()))
        tainted = await finished(engine, await engine.runs.start(OWNER, ask(trust=Trust.EXTERNAL)))
    assert answered_by(clean) == ["first"]
    assert answered_by(tainted) == ["second"]


async def test_policy_that_cannot_be_evaluated_leaves_no_model(tmp_path: Path) -> None:
    async with three_models(tmp_path, "context.now_ms * 9223372036854775807 < 0").open() as engine:
        events = await finished(engine, await engine.runs.start(OWNER, ask()))
    assert events[-1].type == "run.failed"
    assert {each.policy for each in plans(events)[0].candidates} == {"mine/models_by_agent"}


@pytest.mark.parametrize(
    "condition", ['context.agent == Agent::"service:session.summary"', 'context.agent == Agent::"intern"']
)
async def test_service_run_obeys_for_itself_and_for_the_agent_that_it_serves(tmp_path: Path, condition: str) -> None:
    async with three_models(tmp_path, condition).open() as engine:
        request = ServiceRequest(spec=SESSION_SUMMARY, principal=OWNER, text="Sum up.", serves_agent="intern")
        outcome = await engine.services.perform(request)
    assert outcome.answer is None
    assert "is not allowed" in outcome.message


async def test_delegated_run_may_not_use_what_the_agent_above_may_not(tmp_path: Path) -> None:
    made = delegating(
        tmp_path, ("^go$", (delegates("look", agent="free"), says("Done."))), ("^look$", (says("Seen."),))
    )
    made.agents["free"] = AgentSpec(name="free", workspace=(str(made.workspace),))
    made.providers, made.route = {"first": made.provider, "second": made.provider}, ("first", "second")
    made.policy = with_policies(forbid('context.agent == Agent::"main" && resource == Model::"first"'))
    async with made.open() as engine:
        record = await engine.runs.start(OWNER, ask())
        await finished(engine, record)
        (child,) = await children(engine, record.id)
        plan = plans(await events_of(engine, child))[0]
    assert child.agent == "free"
    assert (plan.chosen, plan.candidates[0].policy) == ("second", "mine/models_by_agent")


async def test_explanation_of_a_model_is_what_the_plan_would_say(tmp_path: Path) -> None:
    workshop = three_models(tmp_path, 'context.agent == Agent::"intern" && context.is_named')
    async with workshop.open() as engine:
        asked = ModelExplainRequest(model="first", agent="intern", is_named=True)
        told = await engine.explaining.explain_model(OWNER, asked)
        assert (told.verdict, told.rule, told.policies) == (
            Verdict.DENY,
            "mine/models_by_agent",
            ("mine/models_by_agent",),
        )
        told = await engine.explaining.explain_model(OWNER, ModelExplainRequest(model="first", agent="intern"))
        assert (told.verdict, told.rule) == (Verdict.ALLOW, "any_model")
        told = await engine.explaining.explain_model(OWNER, ModelExplainRequest(model="gone"))
        assert (told.verdict, told.rule) == (Verdict.DENY, "unknown_model")
