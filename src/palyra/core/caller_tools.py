"""Tools that a caller supplies with a run and executes itself.

Owns: which of them are accepted, and the form in which a model is offered them. Does not own: what a call of one does
to a run (core.run), who the caller is (gateway).
Invariant: a caller's tool never has the name of a tool of ours, so no call is ambiguous.
"""

import re
from collections.abc import Iterable

import msgspec

from palyra.core.errors import Invalid
from palyra.core.events.run import CallerTool
from palyra.core.events.tool import EffectClass, ParallelClass, Risk
from palyra.core.run.objectives import tell_objectives
from palyra.core.run.state import Run
from palyra.core.taint import label
from palyra.core.tools import Runtime, ToolSpec, wire_name
from palyra.core.trust import Trust

CALLER_TOOLS_MAX = 128  # As many as the strictest provider takes in one request.
CALLER_TOOLS_BYTES_MAX = 200_000  # All together, as JSON: what begins a run is one event, and no event has more.
CALLERS_HEAD = "The caller of this run says:"
CALLER_RULE = "caller_tool"
CALLER_REASON = "The caller supplied this tool and executes the call itself."

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def require_caller_tools(tools: tuple[CallerTool, ...], ours: Iterable[str]) -> None:
    """Refuses tools that could not be offered, or could not be told from ours."""
    if len(tools) > CALLER_TOOLS_MAX:
        raise Invalid("tools_too_many", f"a run takes at most {CALLER_TOOLS_MAX} tools of its caller, not {len(tools)}")
    size = len(msgspec.json.encode(tools))
    if size > CALLER_TOOLS_BYTES_MAX:
        most = CALLER_TOOLS_BYTES_MAX
        raise Invalid("tools_too_long", f"the tools of a caller have at most {most} bytes as JSON, not {size}")
    for tool in tools:
        if _NAME.fullmatch(tool.name) is None:
            raise Invalid("tool_name_invalid", "a tool's name has 1 to 64 letters, digits, _ and -")
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise Invalid("tool_twice", "two tools have the same name")
    taken = sorted({wire_name(name) for name in ours}.intersection(names)) if names else []
    if taken:
        raise Invalid("tool_name_taken", f"{taken[0]} is the name of a tool of this daemon; give yours another name")


def spec_of(tool: CallerTool) -> ToolSpec:
    """Returns the tool as a model is offered it."""
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters or {"type": "object", "properties": {}},
        effect_class=EffectClass.ONCE,
        parallel_class=ParallelClass.READ_ONLY_SAFE,
        risk=Risk.LOW,
        output_trust=Trust.EXTERNAL,
        runtime=Runtime.CALLER,
    )


def source_of_result(tool: str) -> str:
    """Names where the result of a caller's tool comes from: nobody here saw how it was made."""
    return label("caller", tool)


def with_callers(instructions: str, run: Run) -> str:
    """Returns the agent's instructions, then those that the caller brought along, and the run's objectives."""
    if run.instructions:
        instructions = f"{instructions}\n\n{CALLERS_HEAD}\n{run.instructions}"
    return f"{instructions}\n\n{tell_objectives(run.objectives)}" if run.objectives else instructions
