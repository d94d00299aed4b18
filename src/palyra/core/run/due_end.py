"""How a run ends: the limits that end it, and the orderly way out, with nothing in flight and nothing left open."""

from palyra.core.events import Data
from palyra.core.events.model import BudgetState, ModelError
from palyra.core.events.run import EndReason, RunCancelled, RunFailed
from palyra.core.events.tool import ApprovalResolved, ApprovalStatus, Decision
from palyra.core.ids import Principal
from palyra.core.run.answer import answer_problems
from palyra.core.run.call import CallPhase
from palyra.core.run.due_calls import abandon, refuse
from palyra.core.run.progress import TRIPS_MAX
from palyra.core.run.state import ContextSize, PlannedEnd, Run, TurnPhase, calls_in_flight, holding_questions, tell_room
from palyra.core.run.states import STATE_BY_REASON, RunState

RULES = Principal("system:run")
RESTARTS_MAX = 3  # A run that three restarts interrupt without any progress in between probably causes them.
INTERRUPTIONS_MAX = 3
_ABANDONED = frozenset({CallPhase.PROPOSED, CallPhase.ASKING, CallPhase.CLEARED, CallPhase.LOST, CallPhase.HANDED_OUT})


def implied_ending(run: Run) -> PlannedEnd | None:
    """Returns the ending that the state itself asks for."""
    if run.restarts_count >= RESTARTS_MAX:
        return PlannedEnd(
            EndReason.NO_PROGRESS, f"The run was resumed {RESTARTS_MAX} times after a restart without progress."
        )
    match run.phase:
        case TurnPhase.PLANNING:
            return _planning_ending(run)
        case TurnPhase.ROUTED:
            return _routed_ending(run)
        case TurnPhase.ACTING:
            return _acting_ending(run)
        case TurnPhase.ANSWERING:
            return _answering_ending(run)
        case TurnPhase.CALLING:
            return None


def next_end_record(run: Run, ending: PlannedEnd) -> Data | None:
    """Waits for what is in flight, then closes open questions and calls, then ends the run."""
    if calls_in_flight(run) or (run.phase is TurnPhase.CALLING and run.state is RunState.IN_PROGRESS):
        return None
    for question in holding_questions(run):
        return ApprovalResolved(
            approval_id=question.approval_id,
            status=ApprovalStatus.CANCELLED,
            decision=Decision.DENY,
            decided_by=RULES,
            digest=question.digest,
            reason="cancelled",
        )
    for call in (*run.calls, *run.earlier):
        if call.phase is CallPhase.REFUSED:
            return refuse(call)
        if call.phase in _ABANDONED:
            return abandon(call)
        if call.phase in (CallPhase.DRAFTED, CallPhase.DRAFT_ASKING, CallPhase.AGREED):
            return abandon(call)
    return end_event(ending)


def end_event(ending: PlannedEnd) -> RunFailed | RunCancelled:
    if STATE_BY_REASON[ending.reason] is RunState.CANCELLED:
        return RunCancelled(reason=ending.reason, message=ending.message)
    return RunFailed(reason=ending.reason, message=ending.message)


def context_over(run: Run, size: ContextSize) -> str:
    """Whatever could be shortened has been by now, so the message names what is left to do."""
    if run.room_words:
        return tell_room(run.run_id, run.room_words)
    words = f"This turn takes about {size.input_tokens} tokens, and the model has room for {size.budget_tokens}"
    return (
        f"{tell_room(run.run_id, words)} Send less at once, remove pins (`palyra sessions unpin`), or choose a model with "
        "a larger window (`palyra run --model`)."
    )


def _planning_ending(run: Run) -> PlannedEnd | None:
    if run.progress.tripped is not None and run.progress.trips_count + 1 >= TRIPS_MAX:
        return PlannedEnd(
            EndReason.NO_PROGRESS, f"The run went in circles ({run.progress.tripped}) after being told so."
        )
    if run.interruptions_count >= INTERRUPTIONS_MAX:
        words = f"The model's answer broke off {INTERRUPTIONS_MAX} times in a row. {run.interruption}".rstrip()
        return PlannedEnd(EndReason.PROVIDER_ERROR, words)
    if run.context is not None and run.context.is_over:
        return PlannedEnd(EndReason.CONTEXT_EXHAUSTED, context_over(run, run.context))
    if run.turn > 0 and run.loop.turns_count >= run.limits.max_turns:
        return PlannedEnd(EndReason.MAX_TURNS, f"The run used all of its {run.limits.max_turns} turns.")
    return None


def _routed_ending(run: Run) -> PlannedEnd | None:
    route = run.route
    if route is None:
        return None
    is_unaskable = route.budget is BudgetState.ASK and not run.can_ask
    if route.budget is BudgetState.DENY or is_unaskable:
        return PlannedEnd(EndReason.BUDGET, route.message or "The budget is used up.")
    if route.chosen is None:
        is_full = route.code is ModelError.CONTEXT_LENGTH
        reason = EndReason.CONTEXT_EXHAUSTED if is_full else EndReason.PROVIDER_ERROR
        return PlannedEnd(reason, route.message or "No model can take this call.")
    return None


def _acting_ending(run: Run) -> PlannedEnd | None:
    is_over = run.loop.tool_calls_count > run.limits.max_tool_calls
    if is_over and any(call.phase is CallPhase.DRAWN_UP for call in run.calls):
        return PlannedEnd(EndReason.MAX_TOOL_CALLS, f"The run used all of its {run.limits.max_tool_calls} tool calls.")
    return None


def _answering_ending(run: Run) -> PlannedEnd | None:
    if run.is_answered or not run.has_rejected_answer or calls_in_flight(run):
        return None
    problems = answer_problems(run)
    return PlannedEnd(EndReason.INCOMPLETE_ANSWER, " ".join(problems)) if problems else None
