"""Cedar and models: which may be used, by whom, and that nothing is permitted by accident."""

import re
from pathlib import Path

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.adapters.policy.cedar import POLICY_ERROR, BundledPolicies, CedarPolicy
from palyra.adapters.policy.context import MODEL_MEMBERS, model_request
from palyra.adapters.policy.folder import PolicyFolder
from palyra.adapters.policy.policy_set import PoliciesInvalid, bundled_policies, entities, schema
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal
from palyra.ports.policy import ModelQuestion
from tests.support.policies import put_policy, question, with_policies

ALLOW, DENY = Verdict.ALLOW, Verdict.DENY
DOCS = Path(__file__).resolve().parents[2] / "docs" / "policy.md"
ASKED = ModelQuestion(principal=Principal("user:alice"), agent="main", model="gpt-5", provider="openai", origin="http")
BY_AGENT = """
@id("models_by_agent")
@says("The intern uses the small models.")
forbid (principal, action == Action::"use_model", resource)
when { context.agent == Agent::"intern" }
unless { context.model like "small-*" };
"""

model_questions = st.builds(
    ModelQuestion,
    principal=st.sampled_from([Principal("user:alice"), Principal("user:owner")]),
    agent=st.text(),
    model=st.text(),
    provider=st.text(),
    origin=st.text(),
    taint=st.lists(st.text(), max_size=3).map(tuple),
    is_named=st.booleans(),
    budget_left_usd=st.none() | st.floats(0, 1000),
)


def test_every_model_is_permitted_by_default() -> None:
    answer = CedarPolicy().permit_model(ASKED)
    assert (answer.verdict, answer.rule) == (ALLOW, "any_model")
    assert answer.snapshot is not None


@pytest.mark.parametrize(
    ("change", "verdict"),
    [({}, ALLOW), ({"agent": "intern"}, DENY), ({"agent": "intern", "model": "small-1"}, ALLOW)],
)
def test_policy_takes_models_from_an_agent_and_names_itself(change: dict[str, object], verdict: Verdict) -> None:
    answer = with_policies(BY_AGENT).permit_model(replace(ASKED, **change))
    assert answer.verdict is verdict
    if verdict is DENY:
        assert (answer.rule, answer.reason) == ("mine/models_by_agent", "The intern uses the small models.")


@pytest.mark.parametrize(
    ("condition", "change"),
    [
        ('principal == Principal::"user:alice"', {"principal": Principal("user:bob")}),
        ('resource == Model::"gpt-5"', {"model": "other"}),
        ('context.provider == "openai"', {"provider": "here"}),
        ('context.origin == "http"', {"origin": "cli"}),
        ('context.taint.contains("http:evil.example")', {"taint": ()}),
        ("context.is_named", {"is_named": False}),
        ("context has budget_left_cents && context.budget_left_cents < 100", {"budget_left_usd": 1.0}),
        ("context.now_ms > 0", None),
    ],
)
def test_policy_can_look_at_every_fact_of_the_use(condition: str, change: dict[str, object] | None) -> None:
    text = f'@id("x") forbid (principal, action == Action::"use_model", resource) when {{ {condition} }};'
    asked = replace(ASKED, taint=("http:evil.example",), is_named=True, budget_left_usd=0.5)
    policy = with_policies(text)
    assert policy.permit_model(asked).rule == "mine/x"
    if change is not None:
        assert policy.permit_model(replace(asked, **change)).verdict is ALLOW


def test_policy_that_cannot_be_evaluated_denies_in_its_own_name() -> None:
    """Cedar itself would skip it."""
    too_large = "context.now_ms * 9223372036854775807 < 0"
    text = f'@id("sums") forbid (principal, action == Action::"use_model", resource) when {{ {too_large} }};'
    answer = with_policies(text).permit_model(ASKED)
    assert (answer.verdict, answer.rule) == (DENY, "mine/sums")
    assert "could not be evaluated" in answer.reason


@pytest.mark.parametrize("error", [KeyError, TypeError, ValueError, RecursionError, OSError])
def test_error_of_our_own_denies(error: type[Exception]) -> None:
    class Broken(BundledPolicies):
        def current(self):  # type: ignore[no-untyped-def]
            raise error("inside")

    answer = CedarPolicy(Broken()).permit_model(ASKED)
    assert (answer.verdict, answer.rule) == (DENY, POLICY_ERROR)
    assert CedarPolicy().permit_model(None).verdict is DENY  # type: ignore[arg-type]


@given(model_questions)
def test_no_question_raises_and_the_whole_context_fits_the_schema(asked: ModelQuestion) -> None:
    assert CedarPolicy().permit_model(asked).verdict in (ALLOW, DENY)
    request = model_request(asked, 1, MODEL_MEMBERS)
    result = cedarpy.is_authorized(request, bundled_policies().models, entities(), schema())
    assert result.diagnostics.errors == []
    assert result.allowed


def test_policies_about_calls_say_nothing_about_models_and_the_reverse() -> None:
    no_calls = with_policies('@id("no") forbid (principal, action == Action::"call", resource);')
    assert no_calls.permit_model(ASKED).verdict is ALLOW
    no_models = with_policies('@id("no") forbid (principal, action == Action::"use_model", resource);')
    assert no_models.permit_model(ASKED).rule == "mine/no"
    assert no_models.judge(question()).verdict is ALLOW


def test_policy_about_everything_is_about_models_too() -> None:
    policy = with_policies('@id("out") forbid (principal == Principal::"user:alice", action, resource);')
    assert policy.permit_model(ASKED).rule == "mine/out"


def test_member_that_a_use_does_not_have_is_refused_when_it_is_read() -> None:
    with pytest.raises(PoliciesInvalid, match="capabilities"):
        with_policies(
            'forbid (principal, action == Action::"use_model", resource) when { context.capabilities.isEmpty() };'
        )


def test_broken_policies_at_the_start_permit_no_model(tmp_path: Path) -> None:
    root = tmp_path / "policies"
    put_policy(root, "forbid (principal, action, resource) when { context.hots };")
    answer = CedarPolicy(PolicyFolder(root)).permit_model(ASKED)
    assert (answer.verdict, answer.rule) == (DENY, "models_broken")


def test_verdicts_are_kept_for_uses_that_look_alike() -> None:
    policy = with_policies(BY_AGENT)
    answers = [policy.permit_model(replace(ASKED, budget_left_usd=left)) for left in (None, 1.0, 2.0)]
    assert answers[0] is answers[1] is answers[2]
    assert len(policy.models) == 1
    policy.permit_model(replace(ASKED, agent="intern"))
    assert len(policy.models) == 2


def test_example_in_the_documentation_holds() -> None:
    section = DOCS.read_text("utf-8").partition("## Models")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```cedar\n(.*?)```", section, re.DOTALL)
    policy = with_policies(example, "models")
    intern = replace(ASKED, agent="intern")
    assert policy.permit_model(intern).rule == "models/models_by_agent"
    assert policy.permit_model(replace(intern, model="small")).verdict is ALLOW
    assert policy.permit_model(replace(ASKED, taint=("http:evil.example",))).rule == "models/outside_stays_here"
    assert policy.permit_model(replace(ASKED, taint=("http:evil.example",), provider="ollama")).verdict is ALLOW
    assert policy.permit_model(replace(ASKED, is_named=True, budget_left_usd=0.5)).rule == "models/no_wishes_at_the_end"
    assert policy.permit_model(replace(ASKED, is_named=True, budget_left_usd=5.0)).verdict is ALLOW
