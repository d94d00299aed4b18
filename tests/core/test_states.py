"""Tables of transitions: every absent row is an error that changes nothing."""

import itertools

import pytest

from palyra.core.errors import Invalid
from palyra.core.events.run import EndReason, RunLimits
from palyra.core.ids import EffectId
from palyra.core.run import call as calls
from palyra.core.run import states
from palyra.core.run.call import Call, CallPhase, CallStep
from palyra.core.run.loop import AgentRunLoopState, active_ms_at, begin_active, end_active, make_limits
from palyra.core.run.states import RunState
from tests.support.runs import call_id

PAIRS = list(itertools.product([None, *RunState], sorted(states.LIFECYCLE_TYPES)))


@pytest.mark.parametrize(("state", "type_name"), PAIRS, ids=str)
def test_lifecycle_follows_the_table_alone(state: RunState | None, type_name: str) -> None:
    expected = states.TRANSITIONS.get((state, type_name))
    if expected is None:
        with pytest.raises(Invalid, match="illegal_transition"):
            states.next_state(state, type_name)
    else:
        assert states.next_state(state, type_name) is expected


def test_nothing_follows_a_terminal_state() -> None:
    assert not [pair for pair in states.TRANSITIONS if pair[0] in states.TERMINAL]


def test_every_state_is_reached_and_every_reason_has_its_state() -> None:
    assert set(states.TRANSITIONS.values()) == set(RunState)
    assert set(states.STATE_BY_REASON) == set(EndReason)
    assert states.STATE_BY_REASON[EndReason.WALL_CLOCK] is RunState.CANCELLED


@pytest.mark.parametrize(("phase", "taken"), list(itertools.product(CallPhase, CallStep)), ids=str)
def test_calls_follow_their_table_alone(phase: CallPhase, taken: CallStep) -> None:
    call = Call(index=1, call_id=call_id(1), effect_id=EffectId("e"), tool="t", arguments={}, digest="d", phase=phase)
    expected = calls.TRANSITIONS.get((phase, taken))
    if expected is None:
        with pytest.raises(Invalid, match="illegal_call_step"):
            calls.step(call, taken)
    else:
        assert calls.step(call, taken).phase is expected


def test_only_a_cleared_or_lost_call_can_start() -> None:
    starts = {phase for (phase, taken) in calls.TRANSITIONS if taken is CallStep.START}
    assert starts == {CallPhase.CLEARED, CallPhase.LOST}


def test_defaults_are_those_of_the_contract() -> None:
    assert make_limits() == RunLimits(wall_clock_ms=900_000, max_tool_calls=64, max_turns=72, parallel_tools=4)
    assert make_limits(max_tool_calls=500).max_turns == 128


@pytest.mark.parametrize(("wall_clock_ms", "calls_max", "parallel"), [(0, 1, 1), (1, -1, 1), (1, 1, 0), (1, 1, 5)])
def test_senseless_limits_are_refused(wall_clock_ms: int, calls_max: int, parallel: int) -> None:
    with pytest.raises(Invalid, match="limits_invalid"):
        make_limits(wall_clock_ms, calls_max, parallel)


def test_a_clock_that_jumps_back_takes_no_active_time_away() -> None:
    loop = begin_active(AgentRunLoopState(active_ms=5), 1_000)
    assert active_ms_at(loop, 400) == 5
    assert end_active(loop, 1_100).active_ms == 105
