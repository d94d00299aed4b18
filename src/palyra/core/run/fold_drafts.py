"""Folds drafts: sealed changes, the verdict on them, the answer, the intent to apply them, and conflicts.

Does not own: the outcome of the call (fold_calls).
Invariant: every event of a draft names its digest, so that what was judged is what is applied (L7).
"""

from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.draft import DraftApplying, DraftConflicted, DraftJudged, ToolDrafted
from palyra.core.events.tool import ApprovalRequested, ApprovalResolved, ApprovalStatus, EffectClass, ToolError, Verdict
from palyra.core.run.call import Call, CallStep, effect_class, step
from palyra.core.run.state import Run, find_call, with_call

ATTEMPTS_MAX = 3  # A command whose draft conflicts runs this often; the last time alone on its root.
_STEPS = {Verdict.ALLOW: CallStep.AGREE, Verdict.ASK: CallStep.ASK_ABOUT_DRAFT, Verdict.DENY: CallStep.DISCARD}


def may_run_again(call: Call) -> bool:
    """Tells whether a command whose changes conflicted may run once more. A `once` command never may (L2)."""
    return effect_class(call) is EffectClass.DRAFTED and call.conflicts_count + 1 < ATTEMPTS_MAX


def is_last_attempt(call: Call) -> bool:
    return call.conflicts_count + 1 >= ATTEMPTS_MAX


def fold_draft(run: Run, data: ToolDrafted | DraftJudged | DraftApplying | DraftConflicted) -> Run:
    call = find_call(run, data.call_id)
    match data:
        case ToolDrafted():
            if call.effect_id != data.effect_id:
                raise Invalid("effect_mismatch", f"the draft of {data.call_id} names another effect")
            drafted = replace(step(call, CallStep.DRAFT), draft=data, draft_judged=None, without=())
            return with_call(replace(run, restarts_count=0), drafted)
        case DraftJudged():
            return with_call(run, _judge(run, call, data))
        case DraftApplying():
            _require_digest(call, data.digest)
            if data.without != call.without or data.effect_id != call.effect_id:
                raise Invalid("draft_mismatch", f"the intent of {data.call_id} is not what was agreed to")
            return with_call(run, step(call, CallStep.APPLY))
        case DraftConflicted():
            return with_call(run, _conflict(call, data))


def ask_draft(run: Run, data: ApprovalRequested) -> Run:
    if data.call_id is None or data.count != 1:
        raise Invalid("approval_without_call", f"approval {data.approval_id} names no single call")
    call = find_call(run, data.call_id)
    _require_digest(call, data.digest)
    return with_call(run, step(call, CallStep.REQUEST_DRAFT))


def resolve_draft(run: Run, data: ApprovalResolved, call: Call, refusal: str) -> Run:
    """Takes a person's answer: apply, apply without some paths, or discard."""
    _require_digest(call, data.digest)
    if data.status is ApprovalStatus.ALLOWED:
        return with_call(run, replace(step(call, CallStep.AGREE), without=data.without))
    error = ToolError(code=data.reason or data.status.value, message=refusal)
    taken = CallStep.WITHDRAW if data.status is ApprovalStatus.CANCELLED else CallStep.DISCARD
    return with_call(run, replace(step(call, taken), refusal=error))


def _judge(run: Run, call: Call, data: DraftJudged) -> Call:
    _require_digest(call, data.digest)
    if data.verdict is Verdict.ASK and not run.can_ask:
        raise Invalid("nobody_to_ask", f"run {run.run_id} has nobody to ask about {data.call_id}; Ask is Deny there")
    judged = replace(step(call, _STEPS[data.verdict]), draft_judged=data)
    if data.verdict is Verdict.DENY:
        return replace(judged, refusal=ToolError(code=data.rule, message=data.reason))
    return judged


def _conflict(call: Call, data: DraftConflicted) -> Call:
    """Lets the command run again, with a new intent."""
    _require_digest(call, data.digest)
    if not may_run_again(call):
        raise Invalid("effect_repeated", f"{data.call_id} may not run again after a conflict")
    again = replace(step(call, CallStep.CONFLICT), draft=None, draft_judged=None, without=())
    return replace(again, conflicts_count=call.conflicts_count + 1)


def _require_digest(call: Call, digest: str) -> None:
    if call.draft is None or call.draft.digest != digest:
        raise Invalid("draft_mismatch", f"call {call.call_id} has no draft with the digest {digest}")
