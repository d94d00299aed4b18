"""The gate judges every proposed tool call.

Owns: the order of its checks: catalog, agent, delegation, open skills, schema, policy, refusals, doubt, grants, whether
anybody can be asked.
Does not own: the rules behind the checks (core.grants, the policy), finding earlier answers (earlier_answers).
Invariants: every denial names its rule, and an error inside is a denial (L6). A refusal wins over a grant and over a
policy that allows.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from palyra.core.addresses import is_known_address
from palyra.core.agents import AgentSpec, may_use
from palyra.core.budget import left_usd
from palyra.core.caller_tools import CALLER_REASON, CALLER_RULE
from palyra.core.context.window import Window
from palyra.core.delegation import agents_above, channel_of, is_born_tainted, narrowing_ancestor
from palyra.core.events.tool import EffectClass, Grant, ParallelClass, Refusal, Risk, ToolJudged, Verdict
from palyra.core.grants import REFUSED_BEFORE, GrantCase
from palyra.core.ids import Principal, SessionId
from palyra.core.offers import CallShape, make_options
from palyra.core.run.call import Call
from palyra.core.run.questions import UNCERTAIN_REPEAT
from palyra.core.run.state import Run, has_caller_tool
from palyra.core.skills import narrowing_skill
from palyra.core.taint import taint_elsewhere
from palyra.core.tools import CallNature, Runtime, Trait, spec_digest
from palyra.core.writes import SealSecret
from palyra.engine.session.call_nature import NATURE_REASON, NATURE_RULE, ask_nature
from palyra.engine.session.earlier_answers import AnswerPlace, EarlierAnswers, FoundRefusal
from palyra.engine.session.file_taint import carried_taint
from palyra.engine.session.pending_commit import PendingCommit, taint_labels
from palyra.engine.session.real_arguments import ArgumentRestorer, RealArguments, has_markers
from palyra.engine.spend.ledger import Ledger, spender_of
from palyra.ports.clock import Clock
from palyra.ports.policy import Policy, PolicyAnswer, PolicyQuestion
from palyra.ports.schemas import SchemaCheck
from palyra.ports.tools import Catalog
from palyra.ports.views import ProvenanceViews

SCHEMA_ERRORS_SHOWN_MAX = 5
WITH_NETWORK = "with a way to the network, to public addresses only"
_STRICTNESS = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}
HIDES = (
    "Something in the arguments is kept out of sight as a secret, and is more than a key or a token: nobody could judge what "
    "the call would do. Write keys with fs.write, and name the file."
)


class GateCase(msgspec.Struct, frozen=True, kw_only=True):
    """Whose call it is and where, beyond the call itself. `hears_addresses`: an address may count as a given one."""

    session_id: SessionId
    principal: Principal
    agent: AgentSpec
    reset_seq: int
    doubts: frozenset[str]
    taint: tuple[str, ...] = ()
    vouched: frozenset[str] = frozenset()
    window: Window = Window()
    sealed: tuple[SealSecret, ...] = ()
    hears_addresses: bool = True


def gate_case(pending: PendingCommit, run: Run, agent: AgentSpec) -> GateCase:
    state = pending.state
    return GateCase(
        session_id=state.session_id,
        principal=run.principal,
        agent=agent,
        reset_seq=state.reset_seq,
        doubts=state.doubts | run.doubts,
        taint=taint_labels(state, run),
        vouched=frozenset(each.source for each in state.taint if each.is_trusted),
        window=state.window,
        sealed=tuple(write for write in pending.writes if isinstance(write, SealSecret)),
        # Every child would bring visits of its own, and a tainted parent could tell something by each.
        hears_addresses=not is_born_tainted(run.lineage, state.taint),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    catalog: Catalog
    schemas: SchemaCheck
    policy: Policy
    restorer: ArgumentRestorer
    earlier: EarlierAnswers
    ledger: Ledger
    provenance: ProvenanceViews
    clock: Clock
    approval_timeout_ms: int

    async def judge(self, run: Run, call: Call, case: GateCase) -> ToolJudged:
        if has_caller_tool(run, call.tool):
            return self._judge_callers(call)
        tool = self.catalog.find(call.tool)
        if tool is None:
            return _refuse(call, *why_missing(self.catalog, call.tool))
        if not may_use(case.agent, call.tool):
            return _refuse(call, "tool_not_allowed", f"The agent {case.agent.name} may not use {call.tool}.")
        above = narrowing_ancestor(run.lineage, tool.spec)
        if above is not None:
            reason = f"The run was delegated by the agent {above}, which may not use {call.tool}."
            return _refuse(call, "delegation_narrows", reason)
        if run.lineage and Trait.OUTLIVES_RUN in tool.spec.traits:
            reason = f"A delegated run may not use {call.tool}: what it makes would outlive its task."
            return _refuse(call, "delegated_run", reason)
        skill = narrowing_skill(run.skills, tool.spec)
        if skill is not None:
            return _refuse(call, "skill_narrows", f"The skill {skill}, which is open, does not allow {call.tool}.")
        if isinstance(call.arguments, str):
            return _refuse(
                call,
                "arguments_invalid",
                "The arguments are no JSON object that every reader keeps exactly, or are too long: write less at a time.",
            )
        # The real arguments are judged, because a marker could hide anything.
        real = await self.restorer.restore(run.run_id, call.arguments, case.sealed)
        if real.values and tool.spec.runtime in (Runtime.INTERNAL, Runtime.SHELL) and real.hides(call.arguments):
            return _refuse(call, "secret_hides", HIDES)
        errors = self.schemas.errors(tool.spec.input_schema, real.arguments)
        if errors:
            return _refuse(call, "schema", real.mask("; ".join(errors[:SCHEMA_ERRORS_SHOWN_MAX])))
        nature = await ask_nature(tool, real.arguments, case.agent.workspace)
        if nature is None:
            return _refuse(call, NATURE_RULE, NATURE_REASON)
        # What it carries from one file into another is judged as if the session had read it (L8).
        carried = await carried_taint(self.provenance, nature.carried, call.tool, case.vouched)
        spender = spender_of(run, case.session_id)
        standings = await self.ledger.standings(spender, self.clock.now_ms(), ())
        question = PolicyQuestion(
            principal=case.principal,
            agent=case.agent.name,
            session_id=case.session_id,
            channel=channel_of(run),
            skills=tuple(skill.name for skill in run.skills),
            spec=tool.spec,
            arguments=call.arguments,
            nature=nature,
            taint=tuple(dict.fromkeys((*case.taint, *carried))),
            is_known_address=case.hears_addresses
            and is_known_address(nature.address, case.window, self._reads_outside, call.call_id, run.calls),
            budget_left_usd=left_usd(standings),
        )
        settled = await self._settle(run, call, case, question)
        judged = self._judged(call, settled, question, real)
        is_above = judged.verdict is Verdict.ALLOW and judged.grant_id is None
        if judged.has_network and is_above and not self._permit_network(run, question):
            return replace(judged, has_network=False)
        return judged

    def _judge_callers(self, call: Call) -> ToolJudged:
        """Nothing of it runs here: the caller gets its own call, and may do with it as it likes."""
        return ToolJudged(
            call_id=call.call_id,
            verdict=Verdict.ALLOW,
            rule=CALLER_RULE,
            reason=CALLER_REASON,
            parallel_class=ParallelClass.READ_ONLY_SAFE,
            risk=Risk.LOW,
            expires_in_ms=self.approval_timeout_ms,
            is_callers=True,
        )

    def _permit_network(self, run: Run, question: PolicyQuestion) -> bool:
        return all(map(self.policy.permits_network, _for_each_agent(run, question)))

    def _reads_outside(self, name: str) -> bool:
        """A tool that no longer exists says nothing about its earlier results, so it makes none of them trusted."""
        tool = self.catalog.find(name)
        return tool is not None and Trait.READS_OUTSIDE in tool.spec.traits

    async def _settle(self, run: Run, call: Call, case: GateCase, question: PolicyQuestion) -> "_Settled":
        answer = self._ask_policy(run, question)
        if answer.verdict is Verdict.DENY:
            return _Settled(answer)
        wanted, place = self._wanted(run, case, question), _place_of(run, case)
        refused = await self.earlier.find_refusal(wanted, place)
        if refused is not None:
            return _Settled(_refused_before(refused, answer), refusal=refused.refusal)
        if call.digest in case.doubts or await self._is_doubted_elsewhere(call, case, question.nature):
            reason = "The same call is uncertain: nobody knows whether it took effect. A person must look first."
            doubted = PolicyAnswer(verdict=Verdict.ASK, rule=UNCERTAIN_REPEAT, reason=reason, snapshot=answer.snapshot)
            return _Settled(_askable(run, doubted))
        if answer.verdict is Verdict.ALLOW:
            return _Settled(answer)
        # A person answers each critical call; no earlier yes covers it.
        grant = await self.earlier.find_grant(wanted, place) if question.spec.risk is not Risk.CRITICAL else None
        if grant is not None:
            reason = f"Covered by grant {grant.grant_id}."
            allowed = PolicyAnswer(verdict=Verdict.ALLOW, rule="grant", reason=reason, snapshot=answer.snapshot)
            return _Settled(allowed, grant)
        clean = self._ask_policy(run, replace(question, taint=())) if question.taint else answer
        # A source that the session has not met cannot be trusted in it.
        is_met = set(question.taint) <= set(case.taint)
        return _Settled(_askable(run, answer), is_taint_alone=is_met and clean.verdict is Verdict.ALLOW)

    async def _is_doubted_elsewhere(self, call: Call, case: GateCase, nature: CallNature) -> bool:
        """A parent or a sibling must not repeat what is uncertain in a session of its own (L2)."""
        if nature.effect_class is not EffectClass.ONCE:
            return False
        return await self.earlier.is_doubted(case.principal, call.digest)

    def _ask_policy(self, run: Run, question: PolicyQuestion) -> PolicyAnswer:
        """Returns the strictest answer of those for the run's own agent and for each agent above it.

        Otherwise an agent could do by delegation what a policy forbids it.
        """
        answers = [self.policy.judge(each) for each in _for_each_agent(run, question)]
        return max(answers, key=lambda answer: _STRICTNESS[answer.verdict])

    def _wanted(self, run: Run, case: GateCase, question: PolicyQuestion) -> GrantCase:
        return GrantCase(
            tool=question.spec.name,
            arguments=question.arguments,
            taint=taint_elsewhere(question.spec, question.taint),
            principal=case.principal,
            agent=case.agent.name,
            now_ms=self.clock.now_ms(),
            command_words=question.nature.command_words,
            has_secrets=has_markers(question.arguments),
            agents_above=agents_above(run),
        )

    def _may_reach(self, settled: "_Settled", question: PolicyQuestion) -> bool:
        """A person who allows the call allows its network too, since the card says so. A policy must say so itself."""
        is_persons = settled.answer.verdict is Verdict.ASK or settled.grant is not None
        return question.spec.runtime is Runtime.SHELL and (is_persons or self.policy.permits_network(question))

    def _judged(self, call: Call, settled: "_Settled", question: PolicyQuestion, real: RealArguments) -> ToolJudged:
        """Records and shows markers in place of the secrets in the real arguments (L5)."""
        answer, spec, nature = settled.answer, question.spec, _masked(question.nature, real)
        is_ask = answer.verdict is Verdict.ASK
        has_network = question.nature.wants_network and self._may_reach(settled, question)
        shape = CallShape(
            traits=spec.traits,
            runtime=spec.runtime,
            command_words=nature.command_words,
            risk=spec.risk,
            taint=taint_elsewhere(spec, question.taint),
            is_taint_alone=settled.is_taint_alone,
        )
        return ToolJudged(
            call_id=call.call_id,
            verdict=answer.verdict,
            rule=answer.rule,
            reason=answer.reason,
            effect_class=nature.effect_class,
            parallel_class=nature.parallel_class,
            risk=spec.risk,
            paths=nature.paths,
            taint=question.taint,
            policy=answer.snapshot,
            grant_id=settled.grant.grant_id if settled.grant else None,
            refused_by=settled.refusal.refusal_id if settled.refusal else None,
            preview=_shown(nature.preview, question, has_network) if is_ask else None,
            options=make_options(call.tool, question.arguments, shape) if is_ask else (),
            expires_in_ms=self.approval_timeout_ms if is_ask else None,
            writes=nature.writes,
            host=nature.host,
            commands=nature.commands,
            command_words=nature.command_words,
            has_network=has_network,
            tool_sha256=spec_digest(spec),
            starts_run=Trait.STARTS_RUN in spec.traits,
        )


def _for_each_agent(run: Run, question: PolicyQuestion) -> tuple[PolicyQuestion, ...]:
    return (question, *(replace(question, agent=agent) for agent in agents_above(run)))


def _shown(preview: str | None, question: PolicyQuestion, has_network: bool) -> str | None:
    """Adds to the preview what the words of a command do not say."""
    if Trait.OUTLIVES_RUN in question.spec.traits:
        preview = f"As the agent {question.agent}.\n{preview or ''}"
    return f"{WITH_NETWORK}\n{preview or ''}" if has_network else preview


def _masked(nature: CallNature, real: RealArguments) -> CallNature:
    if not real.values:
        return nature
    return replace(
        nature,
        paths=tuple(map(real.mask, nature.paths)),
        host=real.mask(nature.host) if nature.host is not None else None,
        address=real.mask(nature.address) if nature.address is not None else None,
        commands=tuple(map(real.mask, nature.commands)),
        command_words=tuple(tuple(map(real.mask, words)) for words in nature.command_words),
        preview=real.mask(nature.preview) if nature.preview is not None else None,
        writes=tuple(replace(file, path=real.mask(file.path)) for file in nature.writes),
    )


class _Settled(msgspec.Struct, frozen=True):
    answer: PolicyAnswer
    grant: Grant | None = None
    refusal: Refusal | None = None
    is_taint_alone: bool = False


TOOL_AWAY = frozenset({"tool_unavailable", "unknown_tool"})  # The rules of a tool that is not here, maybe for a moment.


def why_missing(catalog: Catalog, tool: str) -> tuple[str, str]:
    """Returns the rule and the reason for refusing a call of a tool that is not here."""
    for missing in catalog.missing():
        if fnmatchcase(tool, missing.name):
            return "tool_unavailable", f"{tool} is not available: {missing.reason}"
    return "unknown_tool", f"There is no tool {tool!r}."


def _askable(run: Run, answer: PolicyAnswer) -> PolicyAnswer:
    if run.can_ask:
        return answer
    reason = f"{answer.reason} It would need a person's approval, and this run has nobody to ask."
    return PolicyAnswer(verdict=Verdict.DENY, rule="nobody_to_ask", reason=reason, snapshot=answer.snapshot)


def _place_of(run: Run, case: GateCase) -> AnswerPlace:
    above = tuple(each.session_id for each in run.lineage)
    return AnswerPlace(session_id=case.session_id, reset_seq=case.reset_seq, sessions_above=above)


def _refused_before(found: FoundRefusal, answer: PolicyAnswer) -> PolicyAnswer:
    said = f": {found.said.rstrip('.')}" if found.said else ""
    reason = f"A person refused such calls{said}. Do not try this again; do something else, or say why you need it."
    return PolicyAnswer(verdict=Verdict.DENY, rule=REFUSED_BEFORE, reason=reason, snapshot=answer.snapshot)


def _refuse(call: Call, rule: str, reason: str) -> ToolJudged:
    return ToolJudged(
        call_id=call.call_id, verdict=Verdict.DENY, rule=rule, reason=reason, effect_class=EffectClass.ONCE
    )
