"""Decides what is due about tool calls: proposals, questions, intents, and the outcomes of calls that never ran."""

from msgspec.structs import replace

from palyra.core.events import Data
from palyra.core.events.draft import DraftApplying
from palyra.core.events.model import UsageRecorded
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    EffectClass,
    Outcome,
    Risk,
    ToolError,
    ToolFinished,
    ToolProposed,
    ToolStarted,
    ToolUncertain,
)
from palyra.core.ids import derive_approval_id, digest_call
from palyra.core.run.call import Call, CallPhase, effect_class
from palyra.core.run.fold_calls import SUPERSEDED
from palyra.core.run.questions import APPROVAL_TIMEOUT_MS_DEFAULT, ask_calls, ask_draft
from palyra.core.run.state import Run


def settle_lost(run: Run) -> Data | None:
    """Settles calls that a restart interrupted.

    A `once` call is never repeated in silence (L2); the others run again while they are wanted.
    """
    for call in (*run.calls, *run.earlier):
        if call.phase is CallPhase.LOST and effect_class(call) is EffectClass.ONCE:
            return ToolUncertain(call_id=call.call_id, effect_id=call.effect_id)
        if call.phase is CallPhase.UNCERTAIN and not call.is_questioned:
            return _ask_uncertain(run, call)
    return None


def settle_spend(run: Run) -> UsageRecorded | None:
    """Records the reservation of a model call that a restart cut off as spent (L9)."""
    lost = run.unsettled
    if lost is None:
        return None
    return UsageRecorded(
        model=lost.model,
        input_tokens=lost.reserved.input_tokens,
        output_tokens=lost.reserved.output_tokens,
        cached_tokens=0,
        cost_usd=lost.reserved.cost_usd,
        turn=lost.turn,
        is_estimate=True,
    )


def next_call_record(run: Run, now_ms: int) -> Data | None:
    """Returns what can be recorded about this turn's calls, whether the run waits or not."""
    for call in run.calls:
        match call.phase:
            case CallPhase.LOST:
                return begin(call, now_ms)
            case CallPhase.DRAWN_UP:
                return ToolProposed(call_id=call.call_id, tool=call.tool, arguments=call.arguments)
            case CallPhase.REFUSED:
                return refuse(call)
            case CallPhase.DRAFT_ASKING:
                return ask_draft(run, call, now_ms)
            case _:
                continue
    question = ask_calls(run, now_ms)
    if question is not None:
        return question
    lost = next((call for call in run.earlier if call.phase is CallPhase.LOST), None)
    return begin(lost, now_ms) if lost is not None else None


def begin(call: Call, now_ms: int) -> ToolStarted:
    started = ToolStarted(call_id=call.call_id, effect_id=call.effect_id, attempt=call.attempt + 1)
    if call.judged is None or not call.judged.is_callers:
        return started
    timeout_ms = call.judged.expires_in_ms
    return replace(started, expires_at_ms=now_ms + (APPROVAL_TIMEOUT_MS_DEFAULT if timeout_ms is None else timeout_ms))


def supersede(call: Call) -> ToolFinished:
    """Ends a call that the caller was to execute: the caller said something else instead."""
    error = ToolError(code=SUPERSEDED, message="The caller spoke instead of sending the result.")
    return _unexecuted(call, Outcome.CANCELLED, error)


def begin_applying(call: Call) -> DraftApplying:
    digest = call.draft.digest if call.draft is not None else ""
    return DraftApplying(call_id=call.call_id, effect_id=call.effect_id, digest=digest, without=call.without)


def refuse(call: Call) -> ToolFinished:
    return _unexecuted(call, Outcome.DENIED, call.refusal)


def abandon(call: Call) -> ToolFinished:
    return _unexecuted(
        call, Outcome.CANCELLED, ToolError(code="cancelled", message="The run ended before this call ran.")
    )


def ask_budget(run: Run, now_ms: int) -> ApprovalRequested:
    cause = f"budget/{run.turn}"
    timeout_ms = run.route.expires_in_ms if run.route is not None else None
    return ApprovalRequested(
        approval_id=derive_approval_id(run.run_id, cause, run.budget_questions_count),
        kind=ApprovalKind.BUDGET,
        digest=digest_call(cause, run.run_id),
        rule="budget",
        expires_at_ms=now_ms + (timeout_ms if timeout_ms is not None else APPROVAL_TIMEOUT_MS_DEFAULT),
        preview=run.route.message if run.route else None,
    )


def _ask_uncertain(run: Run, call: Call) -> ApprovalRequested:
    """Asks about an uncertain call. The question never expires, because time does not resolve the doubt."""
    return ApprovalRequested(
        approval_id=derive_approval_id(run.run_id, f"uncertain/{call.call_id}", call.attempt),
        kind=ApprovalKind.UNCERTAIN,
        digest=call.digest,
        rule="uncertain_effect",
        expires_at_ms=None,
        call_id=call.call_id,
        tool=call.tool,
        risk=call.judged.risk if call.judged else Risk.CRITICAL,
    )


def _unexecuted(call: Call, outcome: Outcome, error: ToolError | None) -> ToolFinished:
    return ToolFinished(call_id=call.call_id, effect_id=call.effect_id, outcome=outcome, error=error, attestation=None)
