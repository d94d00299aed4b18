"""Turns answers to approvals into facts.

Owns: a person's answer with the grant or refusal it gives, and a question that an earlier one answers.
Does not own: what an answer does to a run (core.run), what an answer covers (core.grants), judging (gate, draft_gate).
Invariant: a yes counts only if what holds at its moment (policies, agent, skills) does not deny what it allows.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from palyra.core.drafts.changes import unmatched
from palyra.core.errors import Conflict, Invalid, Unauthorized, Unavailable
from palyra.core.events import Draft
from palyra.core.events.session import SourceTrusted
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Grant,
    Refusal,
    Scope,
    ToolJudged,
    Verdict,
)
from palyra.core.grants import REFUSED_BEFORE, GrantTerms, choose_option, decisions_for, make_grant, make_refusal
from palyra.core.ids import GrantId
from palyra.core.projections.rows import RunRow
from palyra.core.run.due_end import RULES
from palyra.core.run.questions import SUPERSEDED_BY_POLICY
from palyra.core.run.state import OpenQuestion, Run, find_call, is_expired
from palyra.core.run.states import is_terminal
from palyra.core.trust import Trust
from palyra.engine.agents import AgentDirectory
from palyra.engine.session.commands import AnswerQuestion
from palyra.engine.session.draft_gate import DraftGate
from palyra.engine.session.drafts import engine_draft
from palyra.engine.session.earlier_answers import AnswerPlace
from palyra.engine.session.gate import TOOL_AWAY, Gate, gate_case
from palyra.engine.session.pending_commit import PendingCommit, SessionState
from palyra.ports.clock import Clock

_STATUS = {
    Decision.ALLOW: ApprovalStatus.ALLOWED,
    Decision.RETRY: ApprovalStatus.ALLOWED,
    Decision.DONE: ApprovalStatus.ALLOWED,
    Decision.DENY: ApprovalStatus.DENIED,
    Decision.GIVE_UP: ApprovalStatus.DENIED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBuilder:
    """`fold_run` reads a finished run from its tape; `look_at_clock` makes deadlines be checked now."""

    gate: Gate
    draft_gate: DraftGate
    agents: AgentDirectory
    clock: Clock
    fold_run: Callable[[RunRow], Awaitable[Run | None]]
    look_at_clock: Callable[[], None]

    async def answer(self, pending: PendingCommit, command: AnswerQuestion) -> tuple[Run, Draft]:
        """Returns the run, and the fact of the person's answer. A question that is already decided is a Conflict.

        A yes to what is denied by now ends the question too, with the rule that denies, and nothing runs.
        """
        state = pending.state
        live = [run for run in (state.active, *state.queued) if run and run.run_id == command.run.id]
        run = live[0] if live else await self.fold_run(command.run)
        asked = [question for question in run.questions if question.approval_id == command.approval_id] if run else []
        if run is None or not asked:
            raise Conflict(
                "approval_decided", f"approval {command.approval_id} has been decided already", is_retryable=False
            )
        if is_expired(asked[0], self.clock.now_ms()):
            self.look_at_clock()
            raise Conflict("approval_expired", f"approval {command.approval_id} has expired", is_retryable=False)
        if is_terminal(run.state) and command.answer.decision is Decision.RETRY:
            message = f"run {run.run_id} is over; start a new run to do it again, or answer done or give_up"
            raise Conflict("run_ended", message, is_retryable=False)
        _require_offered(command)
        refusal = self._refusal(command, run.agent)
        if refusal is not None:
            place = AnswerPlace(session_id=command.run.session_id, reset_seq=state.reset_seq)
            await self.gate.earlier.require_room(refusal, place, self.clock.now_ms())
        without = _paths_left_out(run, asked[0], command.answer.without)
        denying = await self._denying_rule(pending, run, asked[0], command)
        data = ApprovalResolved(
            approval_id=command.approval_id,
            status=_STATUS[command.answer.decision],
            decision=command.answer.decision,
            decided_by=command.principal,
            digest=command.request.digest,
            scope=command.answer.scope,
            grant=self._grant(command, run.agent),
            reason=command.answer.reason,
            end_run=command.answer.end_run,
            without=without,
            refusal=refusal,
        )
        data = data if denying is None else _superseded(asked[0], denying)
        now_ms = self.clock.now_ms()
        return run, Draft(data=data, actor=command.principal, trust=Trust.OPERATOR, at_ms=now_ms, run_id=run.run_id)

    async def _denying_rule(
        self, pending: PendingCommit, run: Run, question: OpenQuestion, command: AnswerQuestion
    ) -> str | None:
        """Returns the rule that denies by now what a yes would let happen."""
        decision = command.answer.decision
        if decision not in (Decision.ALLOW, Decision.RETRY) or question.kind is ApprovalKind.BUDGET:
            return None
        case = gate_case(pending, run, self.agents.of_run(run.agent))
        calls = [find_call(run, call_id) for call_id in question.calls]
        if question.kind is ApprovalKind.DRAFT:
            answers = [await self.draft_gate.judge_again(run, call, case, command.answer.without) for call in calls]
            return next((each.rule for each in answers if each.verdict is Verdict.DENY), None)
        for call in calls:
            judged = await self.gate.judge(run, call, case)
            if judged.verdict is Verdict.DENY and judged.rule in TOOL_AWAY:
                message = f"{call.tool} is not here now, so nobody can judge the call; answer again once it is back"
                raise Unavailable("tool_away", message)
            if judged.verdict is Verdict.DENY and decision is Decision.RETRY:
                message = f"{call.tool} is denied by now ({judged.rule}); answer done or give_up"
                raise Conflict(SUPERSEDED_BY_POLICY, message, is_retryable=False)
            if judged.verdict is Verdict.DENY:
                return judged.rule
        return None

    def trusted(self, state: SessionState, command: AnswerQuestion) -> tuple[SourceTrusted, ...]:
        """Returns the sources that the chosen option vouches for. Only the owner may: it is the owner's agent that acts."""
        options, index = command.request.options, command.answer.option
        if command.answer.decision is not Decision.ALLOW or index is None or not options[index].trusts:
            return ()
        if command.principal != state.owner:
            raise Invalid("source_not_yours", f"only {state.owner} can trust a source of this session")
        if not command.answer.may_trust:
            message = "this option trusts a source, which needs the right sessions.trust; choose another option"
            raise Unauthorized("scope_insufficient", message)
        reason = f"with the answer to {command.approval_id}"
        return tuple(SourceTrusted(source=source, reason=reason) for source in options[index].trusts)

    async def by_earlier(self, pending: PendingCommit, run: Run, question: OpenQuestion) -> tuple[Draft, ...]:
        """Returns the answer to an open question that one grant or one refusal covers fully, or nothing."""
        now_ms = self.clock.now_ms()
        if question.kind is not ApprovalKind.TOOL or is_expired(question, now_ms):
            return ()
        case = gate_case(pending, run, self.agents.of_run(run.agent))
        found = {_covered_by(await self.gate.judge(run, find_call(run, call_id), case)) for call_id in question.calls}
        covered_by = found.pop() if len(found) == 1 else None
        given_by = await self.gate.earlier.giver_of(covered_by.given_id) if covered_by is not None else None
        if covered_by is None or given_by is None:
            return ()
        is_yes = covered_by.is_yes
        data = ApprovalResolved(
            approval_id=question.approval_id,
            status=ApprovalStatus.ALLOWED if is_yes else ApprovalStatus.DENIED,
            decision=Decision.ALLOW if is_yes else Decision.DENY,
            decided_by=given_by,
            digest=question.digest,
            reason=f"covered by grant {covered_by.given_id}" if is_yes else REFUSED_BEFORE,
            covered_by=covered_by.given_id,
        )
        return (engine_draft(data, run.run_id, now_ms),)

    def _grant(self, command: AnswerQuestion, agent: str) -> Grant | None:
        request, answer = command.request, command.answer
        if answer.decision is not Decision.ALLOW or request.kind is not ApprovalKind.TOOL or request.tool is None:
            return None
        terms = self._terms(command, request.tool, agent)
        if Decision.ALLOW not in decisions_for(terms.option, request.kind, request.risk):
            raise Invalid("scope_not_offered", "a call of critical risk is allowed once, never for longer")
        return make_grant(terms)

    def _refusal(self, command: AnswerQuestion, agent: str) -> Refusal | None:
        request, answer = command.request, command.answer
        is_lasting = answer.scope is not Scope.ONCE or answer.option is not None
        if answer.decision is not Decision.DENY or not is_lasting:
            return None
        if request.kind is not ApprovalKind.TOOL or request.tool is None:
            message = (
                f"a no to a question of kind {request.kind.value} covers no later ones; leave scope and option out"
            )
            raise Invalid("scope_not_offered", message)
        return make_refusal(self._terms(command, request.tool, agent))

    def _terms(self, command: AnswerQuestion, tool: str, agent: str) -> GrantTerms:
        request, answer = command.request, command.answer
        return GrantTerms(
            approval_id=command.approval_id,
            tool=tool,
            option=choose_option(request.options, answer.scope, answer.option),
            taint=request.taint,
            principal=command.run.principal,
            agent=agent,
            now_ms=self.clock.now_ms(),
            ttl_s=answer.ttl_s,
        )


def is_yes(fact: Draft) -> bool:
    return isinstance(fact.data, ApprovalResolved) and fact.data.status is ApprovalStatus.ALLOWED


def _superseded(question: OpenQuestion, rule: str) -> ApprovalResolved:
    return ApprovalResolved(
        approval_id=question.approval_id,
        status=ApprovalStatus.DENIED,
        decision=Decision.DENY,
        decided_by=RULES,
        digest=question.digest,
        reason=SUPERSEDED_BY_POLICY,
        rule=rule,
    )


def _require_offered(command: AnswerQuestion) -> None:
    """Refuses a yes of a scope or an option that its question does not offer, whatever the question's kind is.

    A source is vouched for by the option's number alone, so a scope never stands for that.
    """
    answer = command.answer
    if answer.decision is Decision.DENY or (answer.scope is Scope.ONCE and answer.option is None):
        return
    if choose_option(command.request.options, answer.scope, answer.option).trusts and answer.option is None:
        raise Invalid(
            "scope_not_offered", f"no option of scope {answer.scope.value} was offered; name one by its number"
        )


class _Covered(NamedTuple):
    given_id: GrantId
    is_yes: bool


def _covered_by(judged: ToolJudged) -> _Covered | None:
    if judged.verdict is Verdict.ALLOW and judged.grant_id is not None:
        return _Covered(judged.grant_id, True)
    return _Covered(judged.refused_by, False) if judged.refused_by is not None else None


def _paths_left_out(run: Run, question: OpenQuestion, without: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the paths of a draft that are not to be applied. A name that means none of them leaves the question open.

    A long list of changes lies in an artifact. Names are compared with it when the draft is applied.
    """
    if not without:
        return ()
    if question.kind is not ApprovalKind.DRAFT:
        raise Invalid("path_unknown", "this question is about a call and not about changes, so no path can be left out")
    draft = find_call(run, question.calls[0]).draft
    unknown = unmatched(draft.changes, without) if draft is not None and draft.changes else ()
    if unknown:
        raise Invalid("path_unknown", f"{unknown[0]} is no path of these changes; name one that the question shows")
    return without
