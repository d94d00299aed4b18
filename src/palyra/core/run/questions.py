"""Questions about calls: which calls one question is about, and what it says.

Does not own: when a question is due (due_calls).
Calls of one turn that are alike share one question. No other calls of the session can wait at the same time. A session
has one active run, and a turn goes on only when its questions are answered.
Invariant: a question about several calls names each with its own digest, so an answer allows exactly those (L7).
"""

from collections.abc import Sequence

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.tool import (
    ApprovalKind,
    ApprovalRequested,
    Constraint,
    GrantOption,
    Risk,
    Scope,
    ToolJudged,
    Touches,
)
from palyra.core.grants import meets
from palyra.core.ids import derive_approval_id, digest_calls
from palyra.core.offers import CallShape, join_options
from palyra.core.run.call import Call, CallPhase
from palyra.core.run.state import Run
from palyra.core.spelling import spell_json, spell_out

APPROVAL_TIMEOUT_MS_DEFAULT = 900_000  # The design's 900 s, used where the gate names no other.
SUPERSEDED_BY_POLICY = "superseded_by_policy"  # A yes that came when the policies denied the call already.
UNCERTAIN_REPEAT = "uncertain_repeat"  # A call that may have happened already asks by this rule, and always alone.
PREVIEW_LENGTH_MAX = 16 * 1024  # For all calls together; each call's own preview is with its verdict on the tape.
TOUCHED_MAX = 64  # The most of each kind; a turn has no more calls than that.


def ask_calls(run: Run, now_ms: int) -> ApprovalRequested | None:
    """Asks about the first call that needs it and all that are like it, once every call of the turn is judged."""
    if any(call.phase in (CallPhase.DRAWN_UP, CallPhase.PROPOSED) for call in run.calls):
        return None
    asking = [call for call in run.calls if call.phase is CallPhase.ASKING]
    if not asking:
        return None
    group = _alike(asking)
    first = group[0]
    judged = first.judged
    timeout_ms = judged.expires_in_ms if judged and judged.expires_in_ms is not None else APPROVAL_TIMEOUT_MS_DEFAULT
    is_one = len(group) == 1
    touches = touches_of([call.judged for call in group if call.judged])
    return ApprovalRequested(
        approval_id=derive_approval_id(run.run_id, first.call_id, first.attempt),
        kind=ApprovalKind.TOOL,
        digest=first.digest if is_one else digest_calls((call.call_id, call.digest) for call in group),
        rule=judged.rule if judged else "",
        expires_at_ms=now_ms + timeout_ms,
        call_id=first.call_id,
        tool=first.tool,
        risk=judged.risk if judged else Risk.CRITICAL,
        policies=judged.policy.policies if judged and judged.policy else (),
        taint=judged.taint if judged else (),
        preview=_preview(group),
        options=_options(group),
        count=len(group),
        calls=() if is_one else tuple(call.call_id for call in group),
        digests=() if is_one else tuple(call.digest for call in group),
        touches=touches if touches != Touches() else None,
        reason=judged.reason if judged else "",
    )


def ask_draft(run: Run, call: Call, now_ms: int) -> ApprovalRequested:
    """Asks about what one command changed in its draft. The question is bound to the digest of exactly these changes."""
    judged, draft = call.draft_judged, call.draft
    timeout_ms = judged.expires_in_ms if judged and judged.expires_in_ms is not None else APPROVAL_TIMEOUT_MS_DEFAULT
    paths = judged.asking[:TOUCHED_MAX] if judged else ()
    return ApprovalRequested(
        approval_id=derive_approval_id(run.run_id, f"draft/{call.call_id}", call.attempt),
        kind=ApprovalKind.DRAFT,
        digest=draft.digest if draft is not None else "",
        rule=judged.rule if judged else "",
        expires_at_ms=now_ms + timeout_ms,
        call_id=call.call_id,
        tool=call.tool,
        risk=call.judged.risk if call.judged else Risk.CRITICAL,
        policies=judged.policy.policies if judged and judged.policy else (),
        taint=judged.taint if judged else (),
        preview=judged.preview if judged else None,
        options=(GrantOption(scope=Scope.ONCE, constraints=(), text="apply exactly these changes"),),
        touches=Touches(paths=paths) if paths else None,
        reason=judged.reason if judged else "",
        full=judged.full if judged else None,
    )


def whole_call(tool: str, arguments: JsonObject | str | None) -> str:
    """Returns all that a call says, for whoever reads it before a yes. Texts are shown with their lines."""
    named = arguments if isinstance(arguments, dict) else {"arguments": arguments}
    return "\n\n".join((f"a call of {spell_out(tool)}", *(_said(name, named[name]) for name in sorted(named))))


def _said(name: str, value: object) -> str:
    if isinstance(value, str):
        return f"{spell_out(name)}:\n" + spell_out(value, kept="\n\t")
    return f"{spell_out(name)}: {spell_json(msgspec.json.encode(value).decode())}"


def touches_of(judged: Sequence[ToolJudged]) -> Touches:
    """Shows commands with their words where those are known, else by the program's name."""
    paths = dict.fromkeys(path for each in judged for path in each.paths)
    hosts = dict.fromkeys(each.host for each in judged if each.host)
    commands = dict.fromkeys(command for each in judged for command in _commands(each))
    return Touches(
        paths=tuple(paths)[:TOUCHED_MAX], hosts=tuple(hosts)[:TOUCHED_MAX], commands=tuple(commands)[:TOUCHED_MAX]
    )


def _commands(judged: ToolJudged) -> tuple[str, ...]:
    return tuple(" ".join(words) for words in judged.command_words) or judged.commands


def _alike(asking: Sequence[Call]) -> tuple[Call, ...]:
    """Groups the first call with its equals.

    If one offered option would cover more calls, the group is all calls that this option covers.
    """
    first = asking[0]
    like = [call for call in asking if call is first or _is_judged_alike(first, call)]
    best = [call for call in like if call.digest == first.digest]
    for constraints in dict.fromkeys(option.constraints for call in like for option in _wide_options(call)):
        covered = [call for call in like if _meets(call, constraints)]
        if len(covered) > len(best) and covered[0] is first:
            best = covered
    return tuple(best)


def _is_judged_alike(first: Call, other: Call) -> bool:
    """A card shows one tool, one risk, one policy and one taint, so all its calls must have the same."""
    return first.tool == other.tool and _card(first.judged) == _card(other.judged)


def _card(judged: ToolJudged | None) -> tuple[object, ...]:
    if judged is None or judged.rule == UNCERTAIN_REPEAT:
        return (object(),)
    return (judged.rule, judged.reason, judged.risk, judged.policy, judged.taint, judged.expires_in_ms)


def _wide_options(call: Call) -> tuple[GrantOption, ...]:
    options = call.judged.options if call.judged else ()
    return tuple(option for option in options if option.scope is not Scope.ONCE)


def _meets(call: Call, constraints: tuple[Constraint, ...]) -> bool:
    return isinstance(call.arguments, dict) and meets(constraints, call.arguments, _shape(call).command_words)


def _shape(call: Call) -> CallShape:
    judged = call.judged
    return (
        CallShape(command_words=judged.command_words, risk=judged.risk, taint=judged.taint) if judged else CallShape()
    )


def _options(group: Sequence[Call]) -> tuple[GrantOption, ...]:
    offered = [call.judged.options for call in group if call.judged]
    if len(group) == 1:
        return offered[0] if offered else ()
    calls = [(call.arguments, _shape(call)) for call in group if isinstance(call.arguments, dict)]
    return join_options(group[0].tool, offered, calls)


def _preview(group: Sequence[Call]) -> str | None:
    """Shows what each call would change, one after the other, as far as there is room, and counts the rest."""
    found = [call.judged for call in group if call.judged and call.judged.preview]
    if len(group) == 1:
        return found[0].preview if found else None
    previews = [f"{', '.join(judged.paths) or judged.call_id}: {judged.preview}" for judged in found]
    shown: list[str] = []
    left = PREVIEW_LENGTH_MAX
    for preview in previews:
        left -= len(preview) + 2
        if left < 0:
            break
        shown.append(preview)
    rest_count = len(previews) - len(shown)
    if rest_count:
        shown.append(f"[what {rest_count} more calls would change is not shown here]")
    return "\n\n".join(shown) or None
