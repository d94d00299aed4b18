"""One tool call within a run: its phases, and the one table of steps between them.

Does not own: judging or executing the call.
Invariant (L1, L2): a call first reaches STARTED only through CLEARED. A `once` call that left STARTED returns to it
only through a person's retry.
"""

from enum import Enum

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
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
    LOSE = "lose"
    DOUBT = "doubt"
    RETRY = "retry"
    FINISH = "finish"
    ABANDON = "abandon"


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
    (_P.CLEARED, CallStep.ABANDON): _P.FINISHED,
    (_P.REFUSED, CallStep.ABANDON): _P.FINISHED,
    (_P.STARTED, CallStep.FINISH): _P.FINISHED,
    (_P.STARTED, CallStep.LOSE): _P.LOST,
    (_P.STARTED, CallStep.DOUBT): _P.UNCERTAIN,  # The tool itself cannot say whether the effect happened.
    (_P.LOST, CallStep.START): _P.STARTED,
    (_P.LOST, CallStep.DOUBT): _P.UNCERTAIN,
    (_P.LOST, CallStep.ABANDON): _P.FINISHED,
    (_P.UNCERTAIN, CallStep.RETRY): _P.CLEARED,
}
SETTLED = frozenset({_P.FINISHED, _P.UNCERTAIN})
UNDECIDED = frozenset({_P.DRAWN_UP, _P.PROPOSED, _P.ASKING, _P.PENDING})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`index` counts calls over the whole run, from 1. `judged` is the gate's verdict on this very call.

    If a question about several calls is denied, `is_counted` is true for the first only: one no is one denial.
    `is_held` says that the run which the call started waits for a person.
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


def step(call: Call, taken: CallStep) -> Call:
    """Returns the call after a step; raises where the table has no row, and nothing changes."""
    following = TRANSITIONS.get((call.phase, taken))
    if following is None:
        raise Invalid("illegal_call_step", f"call {call.call_id} cannot {taken.value} while {call.phase.value}")
    return replace(call, phase=following)


def effect_class(call: Call) -> EffectClass:
    """Returns the effect class. An unknown one counts as `once`, which is never repeated."""
    return call.judged.effect_class if call.judged is not None else EffectClass.ONCE


def is_settled(call: Call) -> bool:
    return call.phase in SETTLED
