"""Loop budgets: AgentRunLoopState counts turns, tool calls and active time. Does not own: ending the run (due_end)."""

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.run import RunLimits

WALL_CLOCK_MS_DEFAULT = 900_000
TOOL_CALLS_DEFAULT = 64
TURNS_OVER_CALLS = 8  # A turn may call no tool: answers, recovery and steering need turns beyond the calls.
TURNS_MAX = 128
PARALLEL_TOOLS_DEFAULT = 4
CALLS_A_TURN_MAX = 64  # A model that makes more in one answer has gone wrong. It also bounds what one record decides.


def make_limits(
    wall_clock_ms: int = WALL_CLOCK_MS_DEFAULT,
    max_tool_calls: int = TOOL_CALLS_DEFAULT,
    parallel_tools: int = PARALLEL_TOOLS_DEFAULT,
) -> RunLimits:
    if wall_clock_ms < 1 or max_tool_calls < 0 or not 1 <= parallel_tools <= PARALLEL_TOOLS_DEFAULT:
        raise Invalid("limits_invalid", f"needed: wall clock > 0, calls >= 0, parallel 1 to {PARALLEL_TOOLS_DEFAULT}")
    turns = min(max_tool_calls + TURNS_OVER_CALLS, TURNS_MAX)
    return RunLimits(
        wall_clock_ms=wall_clock_ms, max_tool_calls=max_tool_calls, max_turns=turns, parallel_tools=parallel_tools
    )


class AgentRunLoopState(msgspec.Struct, frozen=True, kw_only=True):
    """Active time counts only while `active_since_ms` is set: waiting for a person is free."""

    turns_count: int = 0
    tool_calls_count: int = 0
    active_ms: int = 0
    active_since_ms: int | None = None


def begin_active(loop: AgentRunLoopState, at_ms: int) -> AgentRunLoopState:
    return loop if loop.active_since_ms is not None else replace(loop, active_since_ms=at_ms)


def end_active(loop: AgentRunLoopState, at_ms: int) -> AgentRunLoopState:
    return replace(loop, active_ms=active_ms_at(loop, at_ms), active_since_ms=None)


def active_ms_at(loop: AgentRunLoopState, now_ms: int) -> int:
    """Returns the active time so far. A clock that jumps back never takes active time away."""
    if loop.active_since_ms is None:
        return loop.active_ms
    return loop.active_ms + max(0, now_ms - loop.active_since_ms)


def wall_clock_deadline_ms(loop: AgentRunLoopState, limits: RunLimits) -> int | None:
    if loop.active_since_ms is None:
        return None
    return loop.active_since_ms + max(0, limits.wall_clock_ms - loop.active_ms)
