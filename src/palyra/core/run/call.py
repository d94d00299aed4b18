"""One tool call within a run: its phases, and the one table of steps between them.

Does not own: judging or executing the call.
Invariants (L1, L2): a call first reaches STARTED only through CLEARED. A `once` call that left STARTED returns to it
only through a person's retry. A draft is applied only through AGREED, and only its intent makes a call APPLYING.
"""

from enum import Enum

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.draft import DraftJudged, ToolDrafted
from palyra.core.events.tool import EffectClass, Outcome, ToolError, ToolJudged
from palyra.core.ids import CallId, EffectId


class CallPhase(Enum):
    DRAWN_UP = "drawn_up"  # The call is in the model's output, not yet on the tape as a proposal.
    PROPOSED = "proposed"
    ASKING = "asking"  # Judged Ask; the question is not yet on the tape.
    PENDING = "pending"  # A person is asked.
    CLEARED = "cleared"
    REFUSED = "refused"
    STARTED = "started"
    HANDED_OUT = "handed_out"  # The caller executes it; a restart of the daemon changes nothing about that.
    DRAFTED = "drafted"  # The command ended in its draft; what it changed is not judged yet.
    DRAFT_ASKING = "draft_asking"  # Its changes were judged Ask; the question is not yet on the tape.
    DRAFT_PENDING = "draft_pending"  # A person is asked about its changes.
    AGREED = "agreed"  # Its changes may be applied.
    DISCARDED = "discarded"  # Its changes may not be applied; its outcome is to be recorded.
    APPLYING = "applying"
    LOST = "lost"  # Started before a restart; its outcome is not on the tape.
    UNCERTAIN = "uncertain"
    FINISHED = "finished"


class CallStep(Enum):
    PROPOSE = "propose"
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    REQUEST = "request"
    APPROVE = "approve"
    START = "start"
    HAND_OUT = "hand_out"
    LOSE = "lose"
    DOUBT = "doubt"
    RETRY = "retry"
    FINISH = "finish"
    ABANDON = "abandon"
    DRAFT = "draft"
    AGREE = "agree"
    ASK_ABOUT_DRAFT = "ask_about_draft"
    REQUEST_DRAFT = "request_draft"
    DISCARD = "discard"
    APPLY = "apply"
    CONFLICT = "conflict"
    WITHDRAW = "withdraw"


_P = CallPhase
TRANSITIONS: dict[tuple[CallPhase, CallStep], CallPhase] = {
    (_P.DRAWN_UP, CallStep.PROPOSE): _P.PROPOSED,
    (_P.PROPOSED, CallStep.ALLOW): _P.CLEARED,
    (_P.PROPOSED, CallStep.ASK): _P.ASKING,
    (_P.PROPOSED, CallStep.DENY): _P.REFUSED,
    (_P.PROPOSED, CallStep.ABANDON): _P.FINISHED,
    (_P.ASKING, CallStep.REQUEST): _P.PENDING,
    (_P.ASKING, CallStep.ABANDON): _P.FINISHED,
    (_P.PENDING, CallStep.APPROVE): _P.CLEARED,
    (_P.PENDING, CallStep.DENY): _P.REFUSED,
    (_P.CLEARED, CallStep.START): _P.STARTED,
    (_P.CLEARED, CallStep.HAND_OUT): _P.HANDED_OUT,
    (_P.CLEARED, CallStep.ABANDON): _P.FINISHED,
    (_P.HANDED_OUT, CallStep.FINISH): _P.FINISHED,
    (_P.REFUSED, CallStep.ABANDON): _P.FINISHED,
    (_P.STARTED, CallStep.FINISH): _P.FINISHED,
    (_P.STARTED, CallStep.LOSE): _P.LOST,
    (_P.STARTED, CallStep.DRAFT): _P.DRAFTED,
    (_P.DRAFTED, CallStep.AGREE): _P.AGREED,
    (_P.DRAFTED, CallStep.ASK_ABOUT_DRAFT): _P.DRAFT_ASKING,
    (_P.DRAFTED, CallStep.DISCARD): _P.DISCARDED,
    (_P.DRAFTED, CallStep.ABANDON): _P.FINISHED,
    (_P.DRAFT_ASKING, CallStep.REQUEST_DRAFT): _P.DRAFT_PENDING,
    (_P.DRAFT_ASKING, CallStep.ABANDON): _P.FINISHED,
    (_P.DRAFT_PENDING, CallStep.AGREE): _P.AGREED,
    (_P.DRAFT_PENDING, CallStep.DISCARD): _P.DISCARDED,
    (_P.DRAFT_PENDING, CallStep.WITHDRAW): _P.REFUSED,  # The run ends before anybody answers.
    (_P.AGREED, CallStep.APPLY): _P.APPLYING,
    (_P.AGREED, CallStep.ABANDON): _P.FINISHED,
    (_P.DISCARDED, CallStep.FINISH): _P.FINISHED,
    (_P.APPLYING, CallStep.FINISH): _P.FINISHED,
    (_P.APPLYING, CallStep.CONFLICT): _P.CLEARED,  # Nothing was applied, so the command may run again.
    (_P.STARTED, CallStep.DOUBT): _P.UNCERTAIN,  # The tool itself cannot say whether the effect happened.
    (_P.LOST, CallStep.START): _P.STARTED,
    (_P.LOST, CallStep.DOUBT): _P.UNCERTAIN,
    (_P.LOST, CallStep.ABANDON): _P.FINISHED,
    (_P.UNCERTAIN, CallStep.RETRY): _P.CLEARED,
}
SETTLED = frozenset({_P.FINISHED, _P.UNCERTAIN})
IN_FLIGHT = frozenset({_P.STARTED, _P.APPLYING, _P.DISCARDED})
IN_DRAFT = frozenset({_P.DRAFTED, _P.DRAFT_ASKING, _P.DRAFT_PENDING, _P.AGREED, _P.DISCARDED, _P.APPLYING})
UNDECIDED = frozenset({_P.DRAWN_UP, _P.PROPOSED, _P.ASKING, _P.PENDING})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`index` counts calls over the whole run, from 1. `judged` is the gate's verdict on this very call.

    If a question about several calls is denied, `is_counted` is true for the first only: one no is one denial.
    `is_held` says that the run which the call started waits for a person. `expires_at_ms` is set on a call that the
    caller executes. `draft` is what the command changed in its draft, `draft_judged` the verdict on that, `without` lists
    the paths that a person left out, and `conflicts_count` counts how often its changes could not be applied.
    """

    index: int
    call_id: CallId
    effect_id: EffectId
    tool: str
    arguments: JsonObject | str
    digest: str
    phase: CallPhase = CallPhase.DRAWN_UP
    judged: ToolJudged | None = None
    attempt: int = 0
    refusal: ToolError | None = None
    is_questioned: bool = False
    is_counted: bool = True
    outcome: Outcome | None = None
    is_held: bool = False
    expires_at_ms: int | None = None
    draft: ToolDrafted | None = None
    draft_judged: DraftJudged | None = None
    conflicts_count: int = 0
    without: tuple[str, ...] = ()


def step(call: Call, taken: CallStep) -> Call:
    """Returns the call after a step; raises where the table has no row, and nothing changes."""
    following = TRANSITIONS.get((call.phase, taken))
    if following is None:
        raise Invalid("illegal_call_step", f"call {call.call_id} cannot {taken.value} while {call.phase.value}")
    return replace(call, phase=following)


def effect_class(call: Call) -> EffectClass:
    """Returns the effect class. An unknown one counts as `once`, which is never repeated."""
    return call.judged.effect_class if call.judged is not None else EffectClass.ONCE


def is_callers(call: Call) -> bool:
    return call.judged is not None and call.judged.is_callers


def is_settled(call: Call) -> bool:
    return call.phase in SETTLED
