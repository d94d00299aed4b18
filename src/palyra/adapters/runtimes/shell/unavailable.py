"""shell.run without a sandbox: tells what a recorded call would touch, and runs nothing."""

from palyra.adapters.runtimes.shell.nature import nature_of
from palyra.adapters.runtimes.shell.run import SPEC
from palyra.core.events.base import JsonObject
from palyra.core.tools import CallNature, ToolResult, failed
from palyra.ports.tools import ToolCallContext


class ShellLook:
    spec = SPEC

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return nature_of(arguments, workspace)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        return failed("sandbox_missing", "nothing is run here; start the daemon")
