"""Judges a reference as the tool call it stands for, with its sender as principal.

Owns: the gate's checks in the gate's order: catalog, agent, open skills, schema, policy.
Does not own: the rules behind them (the policy), nor calls of a model (gate).
A reference asks nobody, so a call that would ask is refused. Earlier answers of a person are not looked at: they were
given for what a model wanted to do.
Invariant: every refusal names its rule.
"""

from dataclasses import dataclass

import msgspec

from palyra.core.agents import AgentSpec, may_use
from palyra.core.events.tool import OpenedSkill, Verdict
from palyra.core.ids import Principal, SessionId
from palyra.core.references.calls import StandInCall
from palyra.core.skills import narrowing_skill
from palyra.core.tools import CallNature
from palyra.core.trust import Trust
from palyra.engine.session.gate import SCHEMA_ERRORS_SHOWN_MAX, why_missing
from palyra.ports.policy import Policy, PolicyAnswer, PolicyQuestion
from palyra.ports.schemas import SchemaCheck
from palyra.ports.tools import Catalog

DENIED = "denied"
NEEDS_APPROVAL = "needs_approval"
OUTSIDE = "outside_workspace"


class ReferenceSender(msgspec.Struct, frozen=True, kw_only=True):
    """Whose message it is, and where it was said. `trust` is the message's; `taint` the session's before it."""

    principal: Principal
    agent: AgentSpec
    session_id: SessionId
    trust: Trust
    taint: tuple[str, ...] = ()
    channel: str = ""
    skills: tuple[OpenedSkill, ...] = ()
    budget_left_usd: float | None = None


class ReferenceVerdict(msgspec.Struct, frozen=True):
    """`code` is None if the reference may be read. `trust` is what the tool's output has."""

    trust: Trust = Trust.EXTERNAL
    code: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceJudge:
    catalog: Catalog
    schemas: SchemaCheck
    policy: Policy

    def judge(self, call: StandInCall, sender: ReferenceSender) -> ReferenceVerdict:
        tool = self.catalog.find(call.tool)
        if tool is None:
            return _denied(*why_missing(self.catalog, call.tool))
        if not may_use(sender.agent, call.tool):
            return _denied("tool_not_allowed", f"The agent {sender.agent.name} may not use {call.tool}.")
        skill = narrowing_skill(sender.skills, tool.spec)
        if skill is not None:
            return _denied("skill_narrows", f"The skill {skill}, which is open, does not allow {call.tool}.")
        errors = self.schemas.errors(tool.spec.input_schema, call.arguments)
        if errors:
            return _denied("schema", "; ".join(errors[:SCHEMA_ERRORS_SHOWN_MAX]))
        nature = tool.nature(call.arguments, sender.agent.workspace)
        answer = self.policy.judge(
            PolicyQuestion(
                principal=sender.principal,
                agent=sender.agent.name,
                session_id=sender.session_id,
                channel=sender.channel,
                skills=tuple(skill.name for skill in sender.skills),
                spec=tool.spec,
                arguments=call.arguments,
                nature=nature,
                taint=sender.taint,
                # The sender wrote the address, in a text that is not from outside. So it carries nothing out.
                is_known_address=nature.address is not None,
                budget_left_usd=sender.budget_left_usd,
            )
        )
        return _settled(answer, nature, tool.spec.output_trust)


def _settled(answer: PolicyAnswer, nature: CallNature, trust: Trust) -> ReferenceVerdict:
    match answer.verdict:
        case Verdict.ALLOW:
            return ReferenceVerdict(trust=trust)
        case Verdict.ASK:
            reason = f"{answer.reason} (rule {answer.rule}); a reference asks nobody. Let the agent do it, and answer."
            return ReferenceVerdict(code=NEEDS_APPROVAL, reason=reason)
        case Verdict.DENY:
            refusal = _denied(answer.rule, answer.reason)
            return refusal if nature.is_in_workspace else ReferenceVerdict(code=OUTSIDE, reason=refusal.reason)


def _denied(rule: str, reason: str) -> ReferenceVerdict:
    return ReferenceVerdict(code=DENIED, reason=f"{reason} (rule {rule})")
