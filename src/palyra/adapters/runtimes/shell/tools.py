"""The shell's tools as one source: offered if a sandbox works, else missing with the reason.

Does not own: the tools themselves (run, background).
The sandbox is tried once, when somebody first asks for the tools.
"""

from functools import cached_property

from palyra.adapters.runtimes.shell.background import LIST, OUTPUT, STOP, ShellList, ShellOutput, ShellStop
from palyra.adapters.runtimes.shell.overlay import OverlayCheck
from palyra.adapters.runtimes.shell.run import SPEC, ShellRun, ShellSetup
from palyra.adapters.runtimes.shell.sandbox import NoSandbox, Sandbox, find_sandbox
from palyra.core.tools import MissingTool
from palyra.ports.tools import Tool

DRAFTS = "shell.run in drafts"


class ShellTools:
    """A source of tools (ports.tools.ToolSource)."""

    def __init__(self, setup: ShellSetup) -> None:
        self._setup = setup

    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    def missing(self) -> tuple[MissingTool, ...]:
        found = self._sandbox
        if not isinstance(found, NoSandbox):
            return self._missing_drafts
        return tuple(MissingTool(spec.name, found.reason) for spec in (SPEC, LIST, OUTPUT, STOP))

    @cached_property
    def _sandbox(self) -> Sandbox | NoSandbox:
        return find_sandbox()

    @cached_property
    def _missing_drafts(self) -> tuple[MissingTool, ...]:
        """Commands run without drafts too, but can only read."""
        found = self._sandbox
        if isinstance(found, NoSandbox):
            return ()
        missing = OverlayCheck(found, self._setup.drafts_home).missing_here()
        return () if missing is None else (MissingTool(DRAFTS, missing.reason),)

    @cached_property
    def _tools(self) -> tuple[Tool, ...]:
        setup, sandbox = self._setup, self._sandbox
        if isinstance(sandbox, NoSandbox):
            return ()
        behind = setup.processes
        return (ShellRun(sandbox, setup), ShellList(behind), ShellOutput(setup), ShellStop(behind))
