"""Folds tool calls and questions: verdicts, answers, intents and outcomes. Does not own: turns (fold_turn)."""

from msgspec.structs import replace

from palyra.core.attestation import hash_output
from palyra.core.errors import Invalid
from palyra.core.events.run import EndReason
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalStatus,
    Decision,
    EffectClass,
    Outcome,
    ToolError,
    ToolFinished,
    ToolHeld,
    ToolJudged,
    ToolProposed,
    ToolStarted,
    ToolUncertain,
    Verdict,
)
from palyra.core.ids import digest_calls
from palyra.core.run.call import IN_FLIGHT, Call, CallPhase, CallStep, effect_class, is_callers, step
from palyra.core.run.fold_drafts import ask_draft, resolve_draft
from palyra.core.run.fold_turn import settle_phase
from palyra.core.run.progress import Observed, RunProgressController, observe
from palyra.core.run.state import (
    SHOWN_MAX,
    OpenQuestion,
    PlannedEnd,
    Run,
    TurnPhase,
    find_call,
    find_question,
    has_caller_tool,
    is_expired,
    with_call,
)
from palyra.core.run.states import is_terminal

SUPERSEDED = "superseded"
_S, _D = ApprovalStatus, Decision
_YES_OR_NO = frozenset({(_S.ALLOWED, _D.ALLOW), (_S.DENIED, _D.DENY), (_S.EXPIRED, _D.DENY), (_S.CANCELLED, _D.DENY)})
_DECISIONS = {
    ApprovalKind.TOOL: _YES_OR_NO,
    ApprovalKind.DRAFT: _YES_OR_NO,
    ApprovalKind.BUDGET: _YES_OR_NO,
    ApprovalKind.UNCERTAIN: frozenset({(_S.ALLOWED, _D.RETRY), (_S.ALLOWED, _D.DONE), (_S.DENIED, _D.GIVE_UP)}),
    ApprovalKind.PAIRING: frozenset[tuple[ApprovalStatus, Decision]](),
}
_WITH_OUTCOME = IN_FLIGHT | {CallPhase.HANDED_OUT}  # Phases in which somebody executes the call.
_VERDICT_STEPS = {Verdict.ALLOW: CallStep.ALLOW, Verdict.ASK: CallStep.ASK, Verdict.DENY: CallStep.DENY}


def propose(run: Run, data: ToolProposed) -> Run:
    call = find_call(run, data.call_id)
    if (call.tool, call.arguments) != (data.tool, data.arguments):
        raise Invalid("proposal_mismatch", f"the proposal {data.call_id} is not what the model's output says")
    return with_call(run, step(call, CallStep.PROPOSE))


def judge(run: Run, data: ToolJudged) -> Run:
    if data.verdict is Verdict.ASK and not run.can_ask:
        raise Invalid("nobody_to_ask", f"run {run.run_id} has nobody to ask about {data.call_id}; Ask is Deny there")
    call = replace(step(find_call(run, data.call_id), _VERDICT_STEPS[data.verdict]), judged=data)
    if data.is_callers is not has_caller_tool(run, call.tool) or (data.is_callers and data.verdict is Verdict.ASK):
        raise Invalid("executor_mismatch", f"the verdict on {data.call_id} names another executor than its tool has")
    if data.verdict is Verdict.DENY:
        call = replace(call, refusal=ToolError(code=data.rule, message=data.reason))
    return with_call(run, call)


def ask(run: Run, data: ApprovalRequested) -> Run:
    calls = data.calls or ((data.call_id,) if data.call_id is not None else ())
    question = OpenQuestion(
        approval_id=data.approval_id, kind=data.kind, digest=data.digest, calls=calls, expires_at_ms=data.expires_at_ms
    )
    if any(other.approval_id == data.approval_id for other in run.questions):
        raise Invalid("approval_exists", f"approval {data.approval_id} was already requested")
    asked = replace(run, questions=(*run.questions, question))
    if data.kind is ApprovalKind.BUDGET:
        return _ask_budget(asked)
    if data.kind is ApprovalKind.DRAFT:
        return ask_draft(asked, data)
    _require_calls(run, data, question)
    if data.kind is ApprovalKind.UNCERTAIN:
        return _ask_doubt(asked, data, find_call(run, question.calls[0]))
    if data.kind is not ApprovalKind.TOOL:
        raise Invalid("approval_kind", f"{data.kind.value} is no question about call {data.call_id} now")
    for call_id in question.calls:
        asked = with_call(asked, step(find_call(run, call_id), CallStep.REQUEST))
    return asked


def _require_calls(run: Run, data: ApprovalRequested, question: OpenQuestion) -> None:
    """Requires each call to exist with the digest that the question names for it, and with the question's tool (L7)."""
    if not question.calls:
        raise Invalid("approval_without_call", f"approval {question.approval_id} names no call")
    digests = data.digests if data.calls else (data.digest,)
    named = tuple((call_id, find_call(run, call_id).digest) for call_id in question.calls)
    is_bound = named == tuple(zip(question.calls, digests, strict=False)) and len(digests) == data.count == len(named)
    is_whole = not data.calls or (data.digest == digest_calls(named) and len(set(data.calls)) == data.count)
    is_one_tool = all(find_call(run, call_id).tool == data.tool for call_id in question.calls)
    if not (is_bound and is_whole and is_one_tool and question.calls[0] == data.call_id):
        raise Invalid("approval_mismatch", f"approval {data.approval_id} is bound to other calls than it names")


def _ask_doubt(run: Run, data: ApprovalRequested, call: Call) -> Run:
    if data.count != 1 or call.phase is not CallPhase.UNCERTAIN or call.is_questioned:
        raise Invalid("approval_kind", f"{data.kind.value} is no question about call {call.call_id} now")
    return with_call(run, replace(call, is_questioned=True))


def _ask_budget(run: Run) -> Run:
    if run.phase is not TurnPhase.ROUTED:
        raise Invalid("budget_unasked", f"run {run.run_id} has no budget to ask for while {run.phase.value}")
    return replace(run, budget_questions_count=run.budget_questions_count + 1)


def resolve(run: Run, data: ApprovalResolved, at_ms: int) -> Run:
    """Binds the answer to the digest that was asked about (L7). A mismatched or late answer does not count."""
    question = find_question(run, data.approval_id)
    if question.digest != data.digest:
        raise Invalid("approval_mismatch", f"the answer to {data.approval_id} is bound to another call")
    _require_decision(question, data)
    if data.status is ApprovalStatus.ALLOWED and is_expired(question, at_ms):
        raise Invalid("approval_expired", f"approval {data.approval_id} expired before it was answered")
    left = tuple(other for other in run.questions if other.approval_id != data.approval_id)
    answered = replace(run, questions=left, restarts_count=0)
    match question.kind:
        case ApprovalKind.TOOL:
            return _resolve_calls(answered, question, data)
        case ApprovalKind.DRAFT:
            return resolve_draft(answered, data, find_call(answered, question.calls[0]), _refusal_text(data))
        case ApprovalKind.BUDGET:
            return _resolve_budget(answered, data)
        case ApprovalKind.UNCERTAIN:
            return _resolve_uncertain(answered, question, data)
        case ApprovalKind.PAIRING:
            raise Invalid("approval_kind", f"a run cannot ask for pairing ({data.approval_id})")


def start(run: Run, data: ToolStarted) -> Run:
    call = find_call(run, data.call_id)
    if call.effect_id != data.effect_id or data.attempt != call.attempt + 1:
        raise Invalid("effect_mismatch", f"the intent of {data.call_id} names another effect or attempt")
    if call.phase is CallPhase.LOST and effect_class(call) is EffectClass.ONCE:
        raise Invalid("effect_repeated", f"{data.call_id} may have happened already and is of class once (L2)")
    if (data.expires_at_ms is not None) is not is_callers(call):
        raise Invalid("executor_mismatch", f"the intent of {data.call_id} names another executor than its verdict")
    if is_callers(call):
        handed = replace(step(call, CallStep.HAND_OUT), attempt=data.attempt, expires_at_ms=data.expires_at_ms)
        return with_call(run, handed)
    if call.judged is not None and call.judged.starts_run:
        run = replace(run, has_children=True)
    return with_call(run, replace(step(call, CallStep.START), attempt=data.attempt, is_held=False))


def hold(run: Run, data: ToolHeld) -> Run:
    call = find_call(run, data.call_id)
    if call.phase is not CallPhase.STARTED or call.is_held is data.is_held:
        raise Invalid("call_not_held", f"{data.call_id} is {call.phase.value} and cannot be held or let go now")
    return with_call(run, replace(call, is_held=data.is_held))


def finish(run: Run, data: ToolFinished) -> Run:
    call = find_call(run, data.call_id)
    if call.effect_id != data.effect_id:
        raise Invalid("effect_mismatch", f"the outcome of {data.call_id} names another effect")
    was_started = call.phase in _WITH_OUTCOME
    _require_outcome(call, data.outcome)
    finished = replace(step(call, CallStep.FINISH if was_started else CallStep.ABANDON), outcome=data.outcome)
    changed = with_call(run, finished)
    is_late = any(earlier.call_id == call.call_id for earlier in run.earlier)
    outcomes = tuple(dict.fromkeys((*run.outcomes, (call.tool, data.outcome))))
    # The model was told that this call is uncertain, so its outcome is news for the model.
    observed = replace(changed, has_news=run.has_news or is_late, outcomes=outcomes, restarts_count=0)
    opened = run.skills if data.skill is None or data.skill in run.skills else (*run.skills, data.skill)
    shown = (*run.shown, *(each for each in data.made if each.is_shown))[-SHOWN_MAX:]
    return settle_phase(replace(observed, skills=opened, shown=shown, progress=_observed(run, finished, data)))


def doubt(run: Run, data: ToolUncertain) -> Run:
    call = find_call(run, data.call_id)
    if call.effect_id != data.effect_id:
        raise Invalid("effect_mismatch", f"the doubt about {data.call_id} names another effect")
    return settle_phase(with_call(run, step(call, CallStep.DOUBT)))


def lose_started(run: Run) -> Run:
    for call in (*run.calls, *run.earlier):
        if call.phase is CallPhase.STARTED:
            run = with_call(run, step(call, CallStep.LOSE))
    return run


def _resolve_calls(run: Run, question: OpenQuestion, data: ApprovalResolved) -> Run:
    if data.status is ApprovalStatus.ALLOWED:
        for call_id in question.calls:
            run = with_call(run, step(find_call(run, call_id), CallStep.APPROVE))
        return run
    refusal = ToolError(code=data.reason or data.status.value, message=_refusal_text(data))
    for index, call_id in enumerate(question.calls):
        refused = replace(step(find_call(run, call_id), CallStep.DENY), refusal=refusal, is_counted=index == 0)
        run = with_call(run, refused)
    tool = find_call(run, question.calls[0]).tool
    is_final = data.end_run or (tool in run.must_call and data.reason != SUPERSEDED)
    if not is_final or run.ending is not None or data.status is ApprovalStatus.CANCELLED:
        return run
    message = f"The call of {tool} was refused, and the run cannot go on without it."
    return replace(run, ending=PlannedEnd(EndReason.APPROVAL_DENIED, message))


def _resolve_budget(run: Run, data: ApprovalResolved) -> Run:
    if data.status is ApprovalStatus.ALLOWED:
        return replace(run, phase=TurnPhase.PLANNING, route=None, is_budget_approved=True)
    if run.ending is not None:
        return run
    return replace(
        run, ending=PlannedEnd(EndReason.BUDGET, "The budget is used up and going beyond it was not approved.")
    )


def _resolve_uncertain(run: Run, question: OpenQuestion, data: ApprovalResolved) -> Run:
    if data.decision is not Decision.RETRY:
        return run
    if is_terminal(run.state):
        raise Invalid("run_ended", f"run {run.run_id} is over: what it did can be marked done or given up, not retried")
    call = step(find_call(run, question.calls[0]), CallStep.RETRY)
    return with_call(run, replace(call, is_questioned=False))


def _require_decision(question: OpenQuestion, data: ApprovalResolved) -> None:
    if (data.status, data.decision) not in _DECISIONS[question.kind]:
        answer = f"{data.status.value}/{data.decision.value}"
        raise Invalid(
            "decision_impossible", f"{answer} is no answer to approval {data.approval_id} ({question.kind.value})"
        )


def _refusal_text(data: ApprovalResolved) -> str:
    match data.status:
        case ApprovalStatus.EXPIRED:
            return "Nobody answered in time, which counts as no."
        case ApprovalStatus.CANCELLED:
            return "The run ended before anybody answered."
        case _ if data.reason == SUPERSEDED:
            return "The person spoke instead of answering."
        case _ if data.rule is not None:
            return f"A person said yes, but by then it was forbidden ({data.rule}). Do not try it again."
        case _:
            is_lasting = data.refusal is not None or data.covered_by is not None
            return "The person said no. Do not try it again." if is_lasting else "The person said no."


def _require_outcome(call: Call, outcome: Outcome) -> None:
    """Only a refused call is denied, and only a call that ran has an outcome other than denied or cancelled."""
    is_refused = call.phase in (CallPhase.REFUSED, CallPhase.DISCARDED)
    is_fitting = (outcome is Outcome.DENIED) is is_refused or (is_refused and outcome is Outcome.CANCELLED)
    is_possible = call.phase in (*_WITH_OUTCOME, CallPhase.REFUSED) or outcome is Outcome.CANCELLED
    if not (is_fitting and is_possible):
        raise Invalid("outcome_impossible", f"call {call.call_id} cannot be {outcome.value} while {call.phase.value}")


def _observed(run: Run, call: Call, data: ToolFinished) -> RunProgressController:
    is_superseded = call.refusal is not None and call.refusal.code == SUPERSEDED
    if is_superseded or not call.is_counted or data.outcome is Outcome.CANCELLED:
        return run.progress
    observed = Observed(
        tool=call.tool,
        digest=call.digest,
        effect_class=_class_in_effect(call, data),
        outcome=data.outcome,
        error=data.error,
        result=hash_output(data),
    )
    return observe(run.progress, observed)


def _class_in_effect(call: Call, data: ToolFinished) -> EffectClass:
    """A command in a draft that changed nothing has only read."""
    is_drafted = effect_class(call) is EffectClass.DRAFTED
    has_changed = data.changes_count or data.held_count
    return EffectClass.READ_ONLY if is_drafted and not has_changed else effect_class(call)
