"""Run states: the RunStateMachine, the one table of transitions.

Does not own: when a transition is due (due).
Invariant: an event that has no row for the present state is illegal and changes nothing.
"""

from enum import Enum

from palyra.core.errors import Invalid
from palyra.core.events.run import (
    EndReason,
    RunAccepted,
    RunCancelled,
    RunDone,
    RunFailed,
    RunResumed,
    RunStarted,
    RunWaiting,
)


class RunState(Enum):
    """The stored states (RunLifecycleState); `pending` is the moment before acceptance and never stored."""

    ACCEPTED = "accepted"
    IN_PROGRESS = "in_progress"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({RunState.DONE, RunState.FAILED, RunState.CANCELLED})

_S = RunState
TRANSITIONS: dict[tuple[RunState | None, str], RunState] = {
    (None, RunAccepted.TYPE): _S.ACCEPTED,
    (_S.ACCEPTED, RunStarted.TYPE): _S.IN_PROGRESS,
    (_S.ACCEPTED, RunFailed.TYPE): _S.FAILED,
    (_S.ACCEPTED, RunCancelled.TYPE): _S.CANCELLED,
    (_S.IN_PROGRESS, RunWaiting.TYPE): _S.WAITING,
    (_S.IN_PROGRESS, RunResumed.TYPE): _S.IN_PROGRESS,
    (_S.IN_PROGRESS, RunDone.TYPE): _S.DONE,
    (_S.IN_PROGRESS, RunFailed.TYPE): _S.FAILED,
    (_S.IN_PROGRESS, RunCancelled.TYPE): _S.CANCELLED,
    (_S.WAITING, RunResumed.TYPE): _S.IN_PROGRESS,
    (_S.WAITING, RunFailed.TYPE): _S.FAILED,
    (_S.WAITING, RunCancelled.TYPE): _S.CANCELLED,
}
LifecycleData = RunAccepted | RunStarted | RunWaiting | RunResumed | RunDone | RunFailed | RunCancelled
LIFECYCLE_TYPES = frozenset(type_name for _, type_name in TRANSITIONS)

STATE_BY_REASON: dict[EndReason, RunState] = dict.fromkeys(EndReason, _S.FAILED) | {
    EndReason.FINAL_ANSWER: _S.DONE,
    EndReason.CANCELLED: _S.CANCELLED,
    EndReason.WALL_CLOCK: _S.CANCELLED,
}


def next_state(state: RunState | None, type_name: str) -> RunState:
    """Returns the state after a lifecycle event; raises where the table has no row."""
    following = TRANSITIONS.get((state, type_name))
    if following is None:
        before = state.value if state is not None else "no run"
        raise Invalid("illegal_transition", f"{type_name} is not possible in state {before}")
    return following


def is_terminal(state: RunState) -> bool:
    """Compares by identity, because this runs several times an event and an enum's hash is a call in Python."""
    return state is _S.DONE or state is _S.FAILED or state is _S.CANCELLED
