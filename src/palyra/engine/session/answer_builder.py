"""Turns answers to approvals into facts.

Owns: a person's answer with the grant it gives, and a question that an earlier grant answers.
Does not own: what an answer does to a run (core.run), what a grant covers (core.grants), judging (gate).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palyra.core.errors import Conflict
from palyra.core.events import Draft
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    Grant,
    Verdict,
)
from palyra.core.grants import GrantTerms, choose_option, make_grant
from palyra.core.projections.rows import RunRow
from palyra.core.run.state import OpenQuestion, Run, find_call, is_expired
from palyra.core.run.states import is_terminal
from palyra.core.trust import Trust
from palyra.engine.agents import AgentDirectory
from palyra.engine.session.commands import AnswerQuestion
from palyra.engine.session.drafts import engine_draft
from palyra.engine.session.gate import Gate, gate_case
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
    agents: AgentDirectory
    clock: Clock
    fold_run: Callable[[RunRow], Awaitable[Run | None]]
    look_at_clock: Callable[[], None]

    async def answer(self, state: SessionState, command: AnswerQuestion) -> tuple[Run, Draft]:
        """Returns the run, and the fact of the person's answer. A question that is already decided is a Conflict."""
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
        )
        now_ms = self.clock.now_ms()
        return run, Draft(data=data, actor=command.principal, trust=Trust.OPERATOR, at_ms=now_ms, run_id=run.run_id)

    async def by_grant(self, pending: PendingCommit, run: Run, question: OpenQuestion) -> tuple[Draft, ...]:
        """Returns the answer to an open question that one grant covers fully, or nothing."""
        now_ms = self.clock.now_ms()
        if question.kind is not ApprovalKind.TOOL or is_expired(question, now_ms):
            return ()
        case = gate_case(pending, run, self.agents.of_run(run.agent))
        judged = [await self.gate.judge(run, find_call(run, call_id), case) for call_id in question.calls]
        grant_ids = {each.grant_id if each.verdict is Verdict.ALLOW else None for each in judged}
        grant_id = grant_ids.pop() if len(grant_ids) == 1 else None
        given_by = await self.gate.giver_of(grant_id) if grant_id is not None else None
        if given_by is None:
            return ()
        data = ApprovalResolved(
            approval_id=question.approval_id,
            status=ApprovalStatus.ALLOWED,
            decision=Decision.ALLOW,
            decided_by=given_by,
            digest=question.digest,
            reason=f"covered by grant {grant_id}",
            covered_by=grant_id,
        )
        return (engine_draft(data, run.run_id, now_ms),)

    def _grant(self, command: AnswerQuestion, agent: str) -> Grant | None:
        request, answer = command.request, command.answer
        if answer.decision is not Decision.ALLOW or request.kind is not ApprovalKind.TOOL or request.tool is None:
            return None
        terms = GrantTerms(
            approval_id=command.approval_id,
            tool=request.tool,
            option=choose_option(request.options, answer.scope, answer.option),
            taint=request.taint,
            principal=command.run.principal,
            agent=agent,
            now_ms=self.clock.now_ms(),
            ttl_s=answer.ttl_s,
        )
        return make_grant(terms)
