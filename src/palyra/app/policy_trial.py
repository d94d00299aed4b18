"""Trials of policies: the form of a file of cases, and judging each case.

Does not own: what the answers should be.
A case names a tool of the catalog with arguments, and the tool tells what the call would touch. Or it describes a tool
that does not exist yet (`runtime`, `capabilities`, …) and tells that itself. Or it names a model. Nothing is executed.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.core.agents import AgentSpec
from palyra.core.errors import Invalid, NotFound
from palyra.core.events.tool import EffectClass, ParallelClass, Risk, Verdict
from palyra.core.ids import SessionId, StreamId, parse_principal
from palyra.core.tools import CallNature, Capability, Runtime, ToolSpec
from palyra.ports.policy import ModelQuestion, Policy, PolicyAnswer, PolicyQuestion
from palyra.ports.tools import Catalog

CASES_BYTES_MAX = 1024 * 1024
CASES_MAX = 2000
_SESSION = SessionId(StreamId("0" * 26))

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Described(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call would do, for tools that cannot be asked."""

    runtime: Runtime = Runtime.INTERNAL
    capabilities: frozenset[Capability] = frozenset()
    effect_class: EffectClass = EffectClass.ONCE
    risk: Risk = Risk.MEDIUM
    paths: tuple[str, ...] = ()
    host: str | None = None
    commands: tuple[str, ...] = ()
    in_workspace: bool = True


class PolicyCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call, or the use of one model, and the expected verdict. `rule` is set only if it matters which policy decides.

    `provider` and `is_named` belong to a model. `channel` is then the origin of the run.
    """

    expect: Verdict
    tool: Name | None = None
    model: Name | None = None
    provider: str = ""
    is_named: bool = False
    name: str = ""
    rule: str | None = None
    arguments: dict[str, object] = {}
    principal: str = "user:owner"
    agent: str | None = None
    channel: str = "http"
    skills: tuple[str, ...] = ()
    taint: tuple[str, ...] = ()
    budget_left_usd: float | None = None
    call: Described | None = None


class Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    case: Annotated[tuple[PolicyCase, ...], Meta(min_length=1, max_length=CASES_MAX)]


class CaseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ok: bool
    expected: str
    verdict: str
    rule: str
    reason: str


def read_cases(path: Path) -> tuple[PolicyCase, ...]:
    try:
        with path.open("rb") as file:
            body = file.read(CASES_BYTES_MAX + 1)
    except OSError as cause:
        raise NotFound("cases_unreadable", f"{path} cannot be read: {cause.strerror}") from cause
    if len(body) > CASES_BYTES_MAX:
        raise Invalid("cases_too_long", f"{path} has more than {CASES_BYTES_MAX} bytes; make it several files")
    try:
        return msgspec.convert(tomllib.loads(body.decode("utf-8")), Cases).case
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as cause:
        raise Invalid("cases_invalid", f"{path}: {cause}; see docs/policy.md for the form") from cause


def try_case(case: PolicyCase, number: int, policy: Policy, context: "TrialContext") -> CaseOutcome:
    if case.model is not None and case.tool is None:
        answer = policy.permit_model(context.model_question(case, case.model))
    elif case.tool is not None and case.model is None:
        answer = policy.judge(context.question(case, case.tool))
    else:
        raise Invalid("cases_invalid", f"case {number} must name a tool or a model; see docs/policy.md for the form")
    is_met = answer.verdict is case.expect and case.rule in (None, answer.rule)
    expected = case.expect.value if case.rule is None else f"{case.expect.value} by {case.rule}"
    return _outcome(case.name or f"{number}: {case.tool or case.model}", is_met, expected, answer)


class TrialContext:
    """The tools and agents that a case may name."""

    def __init__(self, catalog: Catalog, agents: Mapping[str, AgentSpec], default_agent: str) -> None:
        self._catalog = catalog
        self._agents = agents
        self._default_agent = default_agent

    def question(self, case: PolicyCase, tool: str) -> PolicyQuestion:
        agent = self._agent(case)
        spec, nature = self._call(case, tool, agent)
        return PolicyQuestion(
            principal=parse_principal(case.principal),
            agent=agent.name,
            session_id=_SESSION,
            channel=case.channel,
            skills=case.skills,
            budget_left_usd=case.budget_left_usd,
            spec=spec,
            arguments=case.arguments,
            nature=nature,
            taint=case.taint,
        )

    def model_question(self, case: PolicyCase, model: str) -> ModelQuestion:
        return ModelQuestion(
            principal=parse_principal(case.principal),
            agent=self._agent(case).name,
            model=model,
            provider=case.provider,
            origin=case.channel,
            taint=case.taint,
            is_named=case.is_named,
            budget_left_usd=case.budget_left_usd,
        )

    def _agent(self, case: PolicyCase) -> AgentSpec:
        agent = self._agents.get(case.agent or self._default_agent)
        if agent is None:
            raise NotFound("agent_unknown", f"there is no agent {case.agent!r}; see [[agent]] in palyra.toml")
        return agent

    def _call(self, case: PolicyCase, name: str, agent: AgentSpec) -> tuple[ToolSpec, CallNature]:
        if case.call is not None:
            return _described(name, case.call)
        tool = self._catalog.find(name)
        if tool is None:
            message = f"there is no tool {name!r} here; describe what it does under [case.call]"
            raise NotFound("tool_unknown", message)
        return tool.spec, tool.nature(case.arguments, agent.workspace)


def _described(tool: str, call: Described) -> tuple[ToolSpec, CallNature]:
    spec = ToolSpec(
        name=tool,
        description="",
        input_schema={},
        capabilities=call.capabilities,
        effect_class=call.effect_class,
        risk=call.risk,
        runtime=call.runtime,
    )
    nature = CallNature(
        effect_class=call.effect_class,
        parallel_class=ParallelClass.NEVER,
        paths=call.paths,
        host=call.host,
        is_in_workspace=call.in_workspace,
        commands=call.commands,
    )
    return spec, nature


def _outcome(name: str, is_met: bool, expected: str, answer: PolicyAnswer) -> CaseOutcome:
    return CaseOutcome(
        name=name, ok=is_met, expected=expected, verdict=answer.verdict.value, rule=answer.rule, reason=answer.reason
    )
