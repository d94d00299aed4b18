"""Decides the next event that the rules themselves put on the tape, given a run's state.

Does not own: folding the event (fold).
The result is one record at a time, and a function of the state alone. So a recorded run can be folded again and every
decision compared (replay). Facts from outside (output, verdicts, answers, outcomes) are never due; they arrive.
"""

from palyra.core.events import Data, Draft
from palyra.core.events.model import BudgetState, ModelRequested
from palyra.core.events.run import (
    AnswerRejected,
    EndReason,
    GuardTripped,
    MessageAssistant,
    ResumeCause,
    RunDone,
    RunResumed,
    RunWaiting,
    WaitKind,
)
from palyra.core.events.tool import ApprovalKind, ApprovalResolved, ApprovalStatus, Decision
from palyra.core.run.answer import answer_problems
from palyra.core.run.call import CallPhase
from palyra.core.run.dispatch import next_to_start
from palyra.core.run.due_calls import (
    ask_budget,
    begin,
    begin_applying,
    next_call_record,
    settle_lost,
    settle_spend,
    supersede,
)
from palyra.core.run.due_end import RULES, implied_ending, next_end_record
from palyra.core.run.fold_calls import SUPERSEDED
from palyra.core.run.progress import GUIDANCE
from palyra.core.run.state import Run, TurnPhase, calls_handed_out, calls_in_flight, holding_questions
from palyra.core.run.states import RunState, is_terminal
from palyra.core.trust import Trust

_CAUSES = {WaitKind.APPROVAL: ResumeCause.APPROVAL, WaitKind.CALLER_TOOL: ResumeCause.CALLER_TOOL}
# Phases from which a call goes on without a person.
_GOES_ON = frozenset({CallPhase.DRAWN_UP, CallPhase.PROPOSED, CallPhase.DRAFTED, CallPhase.AGREED})


def next_record(run: Run, now_ms: int) -> Draft | None:
    """Returns the next decision, or None when the run waits for something outside."""
    if is_terminal(run.state):
        return None
    data = settle_spend(run) or settle_lost(run) or _next_data(run, now_ms)
    if data is None:
        return None
    is_retold = isinstance(data, MessageAssistant) or (isinstance(data, AnswerRejected) and run.checked is not None)
    trust = run.trust if is_retold else Trust.SYSTEM
    return Draft(data=data, actor=RULES, trust=trust, at_ms=now_ms, run_id=run.run_id)


def is_held(run: Run) -> bool:
    """Tells whether only a person or the caller can move the run on."""
    if not (run.questions or run.calls):
        return False
    if not (holding_questions(run) or calls_handed_out(run)) or calls_in_flight(run):
        return False
    can_start = next_to_start(run.calls, run.limits.parallel_tools) is not None
    can_retry = any(call.phase is CallPhase.CLEARED for call in run.earlier)
    is_judging = any(call.phase in _GOES_ON for call in run.calls)
    return not (can_start or can_retry or is_judging)


def _next_data(run: Run, now_ms: int) -> Data | None:
    ending = run.ending or implied_ending(run)
    if ending is not None:
        return next_end_record(run, ending)
    if run.state is RunState.ACCEPTED:
        return None
    settled = next_call_record(run, now_ms) if run.calls or run.earlier else None
    if settled is not None:
        return settled
    if is_held(run):
        return _next_held(run)
    if run.state is RunState.WAITING:
        # Before the first call the run's own message is unseen too. That is no interruption.
        is_steered = run.is_spoken_to and run.loop.turns_count > 0
        return RunResumed(cause=ResumeCause.INPUT if is_steered else _CAUSES[run.wait_kind])
    return _next_active(run, now_ms)


def _next_held(run: Run) -> Data | None:
    """A run that is spoken to waits for no tool: the person spoke instead of answering, or the caller did.

    Who may not answer ends no question by speaking: a stranger of a group could end every one.
    """
    for question in holding_questions(run):
        if run.is_spoken_to and question.kind in (ApprovalKind.TOOL, ApprovalKind.DRAFT):
            return ApprovalResolved(
                approval_id=question.approval_id,
                status=ApprovalStatus.DENIED,
                decision=Decision.DENY,
                decided_by=RULES,
                digest=question.digest,
                reason=SUPERSEDED,
            )
    owed = calls_handed_out(run)
    if owed and run.is_spoken_to:
        return supersede(owed[0])
    if run.state is RunState.WAITING:
        return None
    approval_ids = tuple(question.approval_id for question in holding_questions(run))
    kind = WaitKind.APPROVAL if approval_ids else WaitKind.CALLER_TOOL
    return RunWaiting(approval_ids=approval_ids, kind=kind, call_ids=tuple(call.call_id for call in owed))


def _next_active(run: Run, now_ms: int) -> Data | None:
    agreed = next((call for call in (*run.calls, *run.earlier) if call.phase is CallPhase.AGREED), None)
    if agreed is not None:
        return begin_applying(agreed)
    for call in run.earlier:
        if call.phase is CallPhase.CLEARED:
            return begin(call, now_ms)
    match run.phase:
        case TurnPhase.PLANNING:
            return _next_planning(run)
        case TurnPhase.ROUTED:
            return _next_routed(run, now_ms)
        case TurnPhase.ACTING:
            ready = next_to_start(run.calls, run.limits.parallel_tools)
            return begin(ready, now_ms) if ready is not None else None
        case TurnPhase.ANSWERING:
            return _next_answering(run)
        case TurnPhase.CALLING:
            return None


def _next_planning(run: Run) -> Data | None:
    guard = run.progress.tripped
    if guard is None:
        return None
    return GuardTripped(guard=guard, trip=run.progress.trips_count + 1, guidance=GUIDANCE[guard])


def _next_routed(run: Run, now_ms: int) -> Data | None:
    route = run.route
    if route is None or route.chosen is None:
        return None
    if route.budget is BudgetState.ASK:
        is_asked = any(question.kind is ApprovalKind.BUDGET for question in run.questions)
        return None if is_asked else ask_budget(run, now_ms)
    return ModelRequested(turn=run.turn, model=route.chosen)


def _next_answering(run: Run) -> Data | None:
    output = run.output
    if output is None or calls_in_flight(run):
        return None
    if run.is_answered:
        return RunDone(reason=EndReason.FINAL_ANSWER, message="")
    problems = answer_problems(run)
    if problems:
        return AnswerRejected(turn=run.turn, problems=problems)
    if run.objectives and run.checked is None:
        return None
    return MessageAssistant(text=output.text)
