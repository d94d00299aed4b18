"""What a tool says of one call, read without trusting the tool.

Owns: turning anything that a tool raises there into an answer. Does not own: the verdict (gate).
"""

import asyncio

import structlog

from palyra.core.events.base import JsonObject
from palyra.core.tools import CallNature, Capability
from palyra.ports.tools import Tool

NATURE_RULE = "tool_error"
NATURE_REASON = "The tool failed while it was asked what this call would do, so nobody can judge it."

log = structlog.get_logger()


async def ask_nature(tool: Tool, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature | None:
    """Asks beside the loop if the tool writes files: it looks for links to them, which takes 0.1 s in a large folder."""
    if Capability.FS_WRITE in tool.spec.capabilities:
        return await asyncio.to_thread(read_nature, tool, arguments, workspace)
    return read_nature(tool, arguments, workspace)


def read_nature(tool: Tool, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature | None:
    """Returns what the call would do, or None if the tool cannot tell. The gate then refuses the call (L6)."""
    try:
        return tool.nature(arguments, workspace)
    except Exception as error:
        # Only the kind of error is logged: its message could hold an argument, and so a secret (L5).
        log.error("tool_nature_failed", tool=tool.spec.name, error=type(error).__name__)
        return None
