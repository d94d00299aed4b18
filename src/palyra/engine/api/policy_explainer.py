"""Explains how a call or the use of a model would be judged now, and by which policies.

Does not own: judging a real call (gate), grants.
Invariants: the checks run in the gate's order. Nothing is executed, recorded or granted. Earlier answers are ignored.
"""

from dataclasses import dataclass

import msgspec

from palyra.core.agents import AgentSpec, may_use
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Verdict
from palyra.core.ids import Principal, SessionId
from palyra.core.skills import narrowing_skill
from palyra.core.taint import labels
from palyra.engine.agents import AgentDirectory
from palyra.engine.api.sessions import SessionService
from palyra.engine.api.skills import opened_skills
from palyra.engine.api.taint import read_taint
from palyra.engine.new_ids import IdSource
from palyra.engine.session.call_nature import NATURE_REASON, NATURE_RULE, ask_nature
from palyra.engine.session.file_taint import carried_taint
from palyra.engine.session.gate import SCHEMA_ERRORS_SHOWN_MAX, why_missing
from palyra.ports.policy import ModelQuestion, Policy, PolicyAnswer, PolicyQuestion
from palyra.ports.router import Router
from palyra.ports.schemas import SchemaCheck
from palyra.ports.skills import Skills
from palyra.ports.tools import Catalog
from palyra.ports.views import ProvenanceViews

CHANNEL = "http"
UNKNOWN_MODEL = "unknown_model"


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`taint` and `agent` default to the session's, if there is one. `skills` are treated as open."""

    tool: str
    arguments: JsonObject
    agent: str | None = None
    session_id: SessionId | None = None
    taint: tuple[str, ...] | None = None
    skills: tuple[str, ...] = ()


class ModelExplainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`taint` and `agent` default to the session's, if there is one. `is_named`: as if the run had asked for the model."""

    model: str
    agent: str | None = None
    session_id: SessionId | None = None
    taint: tuple[str, ...] | None = None
    is_named: bool = False


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Verdict
    rule: str
    policies: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyExplainer:
    sessions: SessionService
    agents: AgentDirectory
    catalog: Catalog
    schemas: SchemaCheck
    policy: Policy
    skills: Skills
    provenance: ProvenanceViews
    ids: IdSource
    router: Router

    async def explain(self, principal: Principal, request: ExplainRequest) -> Explanation:
        agent, taint = await self._agent_and_taint(principal, request)
        tool = self.catalog.find(request.tool)
        if tool is None:
            return _refused(*why_missing(self.catalog, request.tool))
        if not may_use(agent, request.tool):
            return _refused("tool_not_allowed", f"The agent {agent.name} may not use {request.tool}.")
        skill = narrowing_skill(await opened_skills(self.skills, agent, request.skills), tool.spec)
        if skill is not None:
            return _refused("skill_narrows", f"The skill {skill} does not allow {request.tool}.")
        errors = self.schemas.errors(tool.spec.input_schema, request.arguments)
        if errors:
            return _refused("schema", "; ".join(errors[:SCHEMA_ERRORS_SHOWN_MAX]))
        nature = await ask_nature(tool, request.arguments, agent.workspace)
        if nature is None:
            return _refused(NATURE_RULE, NATURE_REASON)
        carried = await carried_taint(self.provenance, nature.carried, request.tool, frozenset())
        question = PolicyQuestion(
            principal=principal,
            agent=agent.name,
            session_id=request.session_id or self.ids.session_id(),
            channel=CHANNEL,
            skills=request.skills,
            spec=tool.spec,
            arguments=request.arguments,
            nature=nature,
            taint=tuple(dict.fromkeys((*taint, *carried))),
        )
        return _told(self.policy.judge(question))

    async def explain_model(self, principal: Principal, request: ModelExplainRequest) -> Explanation:
        agent, taint = await self._agent_and_taint(principal, request)
        card = next((card for card in self.router.models() if card.name == request.model), None)
        if card is None:
            return _refused(
                UNKNOWN_MODEL, f"There is no model {request.model!r}; `palyra models` lists those there are."
            )
        question = ModelQuestion(
            principal=principal,
            agent=agent.name,
            model=card.name,
            provider=card.provider,
            origin=CHANNEL,
            taint=taint,
            is_named=request.is_named,
        )
        return _told(self.policy.permit_model(question))

    async def _agent_and_taint(
        self, principal: Principal, request: ExplainRequest | ModelExplainRequest
    ) -> tuple[AgentSpec, tuple[str, ...]]:
        """Raises NotFound if the session is not the principal's, and Invalid if there is no such agent."""
        if request.session_id is None:
            return self.agents.find(request.agent), request.taint or ()
        row = await self.sessions.get(principal, request.session_id)
        agent = self.agents.find(request.agent or row.agent)
        if request.taint is not None:
            return agent, request.taint
        return agent, labels(await read_taint(self.provenance, request.session_id))


def _told(answer: PolicyAnswer) -> Explanation:
    policies = answer.snapshot.policies if answer.snapshot is not None else (answer.rule,)
    return Explanation(verdict=answer.verdict, rule=answer.rule, policies=policies, reason=answer.reason)


def _refused(rule: str, reason: str) -> Explanation:
    return Explanation(verdict=Verdict.DENY, rule=rule, policies=(), reason=reason)
