"""The tool shell.run: one command in the sandbox, its live output, its time limit and its result.

Does not own: whether the command may run (engine.session.gate).
bash runs the text as a script, with empty input, in the workspace. Cancelling the call, or the end of its time, ends
everything that it started. The output is kept from both ends, in the order in which it came.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from palyra.adapters.runtimes.shell.child import Child
from palyra.adapters.runtimes.shell.git_excludes import git_excludes
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.mounts import aliases_of, real_roots
from palyra.adapters.runtimes.shell.nature import COMMAND_LENGTH_MAX, is_direct, nature_of, real_folder
from palyra.adapters.runtimes.shell.output_buffer import HeadAndTail
from palyra.adapters.runtimes.shell.overlay import NoOverlay, OverlayCheck
from palyra.adapters.runtimes.shell.processes import Background, ShellProcesses
from palyra.adapters.runtimes.shell.sandbox import Order, Sandbox
from palyra.adapters.runtimes.shell.watch import Excess
from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.drafts.changes import ChangeSet, describe_left_out
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk, ToolError
from palyra.core.ids import EffectId
from palyra.core.taint import label
from palyra.core.tools import CallNature, Capability, Runtime, SealedDraft, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust
from palyra.ports.drafts import DraftWorlds
from palyra.ports.tools import ToolCallContext

TIMEOUT_DEFAULT_S = 120.0
TIMEOUT_MAX_S = 600.0
LIVE_LENGTH_MAX = 1024 * 1024  # Nobody reads more live output. The result holds what is kept.
FIRST_WAIT_S = 0.3  # A background process that cannot start says so by then.
CANCEL_WAIT_S = 2.0
NOTHING_PRINTED = "[The command printed nothing.]"
DROPPED = "The command was ended, so nothing that it changed was applied."
READ_ONLY = "There are no drafts of this workspace, so commands only read it: {}. To write, use fs.write or direct."

SPEC = ToolSpec(
    name="shell.run",
    description=(
        "Runs a bash command in the workspace, in a sandbox without network. It works on a draft: when it ends, what it "
        "changed is checked and applied, and you are told what changed and what was not applied. Its input is empty. An exit "
        "status other than 0 is a failure. network gives it a way to the network, direct the real folder, background lets it "
        "go on after the call (then use shell.output and shell.stop); each of these asks a person, so use them only if needed."
    ),
    input_schema=arguments_schema(
        {
            "command": text_schema(COMMAND_LENGTH_MAX, "The text, as bash reads it."),
            "cwd": text_schema(4096, "The folder to run in, relative to the first workspace root. Default: that root."),
            "timeout_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": TIMEOUT_MAX_S,
                "description": f"Seconds after which it is ended. Default {TIMEOUT_DEFAULT_S:g}.",
            },
            "background": {
                "type": "boolean",
                "description": "Start it and return at once, with an id. It has no time limit and works on the real folder.",
            },
            "network": {"type": "boolean", "description": "Give it a way to the network. Asks a person."},
            "direct": {
                "type": "boolean",
                "description": "Work on the real folder, not on a draft. Asks a person. Only for what needs the real files.",
            },
        },
        ["command"],
    ),
    capabilities=frozenset({Capability.PROCESS_EXEC}),
    effect_class=EffectClass.DRAFTED,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.HIGH,
    output_trust=Trust.LOCAL,
    runtime=Runtime.SHELL,
    timeout_s=TIMEOUT_MAX_S + 30,
    traits=frozenset({Trait.RUNS_COMMAND}),
)

_EXCESS_WORDS = {
    Excess.MEMORY: "it took more memory than a command may, or the machine had too little left",
    Excess.PROCESSES: "it started more processes or threads than a command may",
    Excess.DISK: "it filled the disk more than a command may",
    Excess.OUTPUT: "it printed more than a command may; write to a file or filter it",
}


class ShellSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell's tools need. `taints_workspace` tells whether a folder holds files that came from outside.

    `hidden` is the daemon's own folder. `proxy_path` is the guarded proxy's socket, for commands that a policy gives
    the network.
    """

    processes: ShellProcesses
    taints_workspace: Callable[[str], Awaitable[bool]]
    drafts: DraftWorlds
    drafts_home: Path
    hidden: str | None = None
    proxy_path: str | None = None
    limits: CommandLimits = msgspec.field(default_factory=CommandLimits)


class ShellRun:
    spec = SPEC

    def __init__(self, sandbox: Sandbox, setup: ShellSetup) -> None:
        self._sandbox = sandbox
        self._setup = setup
        self._overlays = OverlayCheck(sandbox, setup.drafts_home)

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return nature_of(arguments, workspace)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        try:
            order = self._order(arguments, context)
            timeout_s = _timeout_of(arguments.get("timeout_s"))
            if arguments.get("background") is True:
                result = await self._begin(order, context)
            elif order.is_direct:
                result = await self._run(order, timeout_s, context)
            elif (missing := self._overlays.missing(order.roots)) is not None:
                result = _hint_read_only(await self._run(order, timeout_s, context), missing)
            else:
                result = await self._run_in_draft(order, timeout_s, context)
        except PalyraError as refused:
            return failed(refused.code, refused.message)
        except OSError as cause:
            return failed("sandbox_failed", f"the command could not be started ({cause.strerror}); see docs/sandbox.md")
        if context.has_network:
            return from_outside(msgspec.structs.replace(result, sandbox=f"{result.sandbox}+proxy"))
        return await trusted(result, context, self._setup)

    def _order(self, arguments: JsonObject, context: ToolCallContext) -> Order:
        command = arguments.get("command")
        if not isinstance(command, str) or not command.strip() or len(command) > COMMAND_LENGTH_MAX:
            raise Invalid("command_invalid", f"command is a text of 1 to {COMMAND_LENGTH_MAX} characters")
        if "\x00" in command or any("\ud800" <= letter <= "\udfff" for letter in command):
            raise Invalid("command_invalid", "command holds characters that no shell can read; write it without them")
        hidden = os.path.realpath(self._setup.hidden) if self._setup.hidden is not None else None
        roots = real_roots(context.workspace, hidden)
        cwd = real_folder(arguments.get("cwd"), context.workspace, roots)
        return Order(
            command=command,
            cwd=cwd,
            roots=roots,
            aliases=aliases_of(context.workspace, roots),
            limits=self._setup.limits,
            hidden=hidden,
            proxy=self._way_out() if context.has_network else None,
            is_direct=is_direct(arguments),
        )

    def _way_out(self) -> str:
        path = self._setup.proxy_path
        if path is None or not os.path.exists(path):
            raise Unavailable("network_unavailable", "commands have no network here now; use http.fetch")
        return os.path.realpath(path)

    async def _run_in_draft(self, order: Order, timeout_s: float, context: ToolCallContext) -> ToolResult:
        """Runs the command in a world of its own. What it changed is sealed, or dropped if it was ended early."""
        drafts, effect_id = self._setup.drafts, context.effect_id
        session_id = context.session_id
        overlays = await drafts.begin(effect_id, order.roots, is_alone=context.is_alone, session_id=session_id)
        is_sealed = False
        try:
            excludes = ""
            if context.taint or any(each.layer for each in overlays):
                excludes = await asyncio.to_thread(git_excludes, overlays)
            drafted = msgspec.structs.replace(order, overlays=overlays, excludes=excludes)
            result = await self._run(drafted, timeout_s, context)
            if result.exit_status is None:
                return _with_words(result, DROPPED)
            change_set = await self._seal(effect_id)
            if not change_set.changes:
                return _with_words(result, describe_left_out(change_set.left_out, change_set.left_out_count))
            is_sealed = True
            sealed = SealedDraft(exit_status=result.exit_status, change_set=change_set)
            return msgspec.structs.replace(result, draft=sealed)
        finally:
            if not is_sealed:
                await drafts.drop(effect_id)

    async def _seal(self, effect_id: EffectId) -> ChangeSet:
        try:
            return await self._setup.drafts.seal(effect_id)
        except OSError as cause:
            message = f"what the command changed could not be kept ({cause.strerror}), so nothing of it was applied"
            raise Unavailable("draft_not_sealed", message) from cause

    async def _run(self, order: Order, timeout_s: float, context: ToolCallContext) -> ToolResult:
        kept = HeadAndTail()
        live = _Live(context)

        def hear(stream: str, text: str) -> None:
            kept.add(text)
            live.emit(stream, text)

        child = Child(self._sandbox, order, hear)
        try:
            async with asyncio.timeout(timeout_s):
                await child.wait()
        except TimeoutError:
            await _end(child)
            message = f"it did not finish within {timeout_s:g} s and was ended, with everything it had started"
            return _result(child, Outcome.TIMEOUT, kept.text(), ToolError(code="timeout", message=message))
        except asyncio.CancelledError:
            await _end(child)
            raise
        return _ended(child, kept.text())

    async def _begin(self, order: Order, context: ToolCallContext) -> ToolResult:
        owner = (context.run_id, context.session_id)
        process = await self._setup.processes.begin(self._sandbox, order, owner, context.now_ms)
        try:
            await process.child.wait_at_most(FIRST_WAIT_S)
        except asyncio.CancelledError:
            await _end(process.child)
            raise
        if process.child.has_not_joined:
            return _ended(process.child, "")
        return _result(process.child, Outcome.OK, describe(process, process.window.read(0)), None)


class _Live:
    """Live output, up to a limit."""

    def __init__(self, context: ToolCallContext) -> None:
        self._emit = context.emit
        self._left = LIVE_LENGTH_MAX

    def emit(self, stream: str, text: str) -> None:
        if self._left <= 0:
            return
        self._emit(stream, text[: self._left])
        self._left -= len(text)
        if self._left <= 0:
            self._emit(stream, "\n[more is not shown while it runs]\n")


def _ended(child: Child, text: str) -> ToolResult:
    if child.excess is not None:
        error = ToolError(code=child.excess.value, message=f"The command {_excess_words(child, child.excess)}.")
        return _result(child, Outcome.FAILED, text, error)
    if child.exit_code is None:
        message = f"the sandbox did not start the command: {text.strip()[-300:] or 'it was killed'}"
        if child.has_not_joined:
            message = (
                "the command could not enter its control group, so nothing of it ran; call again, it runs without one"
            )
        return _result(child, Outcome.FAILED, "", ToolError(code="sandbox_failed", message=message))
    if child.exit_code:
        error = ToolError(code="exit_status", message=f"exit status {child.exit_code}")
        return _result(child, Outcome.FAILED, text, error)
    return _result(child, Outcome.OK, text or NOTHING_PRINTED, None)


def _excess_words(child: Child, excess: Excess) -> str:
    """Says which limit was passed.

    A limit of the kernel may show only when the command has ended by itself. A part of it failed all the same.
    """
    if child.was_ended or child.exit_code is None:
        return f"was ended: {_EXCESS_WORDS[excess]}"
    return f"ended with exit status {child.exit_code}, but a part of it failed: {_EXCESS_WORDS[excess]}"


def _result(child: Child, outcome: Outcome, text: str, error: ToolError | None) -> ToolResult:
    is_whole = outcome is not Outcome.TIMEOUT and child.excess is None
    exit_status = child.exit_code if is_whole else None
    return ToolResult(outcome=outcome, output=text, error=error, sandbox=child.held_by, exit_status=exit_status)


def _with_words(result: ToolResult, words: str) -> ToolResult:
    if not words:
        return result
    said = "" if result.output == NOTHING_PRINTED else result.output
    return msgspec.structs.replace(result, output=f"{said.rstrip()}\n[{words}]".lstrip("\n"))


def _hint_read_only(result: ToolResult, missing: NoOverlay) -> ToolResult:
    """Says what to do if a command could not write because there are no drafts."""
    is_refused = result.outcome is Outcome.FAILED and "Read-only file system" in result.output
    return _with_words(result, READ_ONLY.format(missing.reason)) if is_refused else result


async def trusted(result: ToolResult, context: ToolCallContext, setup: ShellSetup) -> ToolResult:
    """Returns the result with the trust of the least trusted file of the workspace. A command may print any of them."""
    for root in _real(context.workspace):
        if await setup.taints_workspace(root):
            return from_outside(result)
    return result


def from_outside(result: ToolResult) -> ToolResult:
    """Marks a result as content that came, or may have come, from outside."""
    return msgspec.structs.replace(result, trust=Trust.EXTERNAL, source=label("tool", SPEC.name))


def _real(workspace: tuple[str, ...]) -> list[str]:
    return [os.path.realpath(root) for root in workspace]


def describe(process: Background, text: str) -> str:
    """Describes a process in a line, followed by its output."""
    record = process.record
    if record.exit_code is None:
        state = "runs in the background"
    elif process.child.excess is not None:
        state = _excess_words(process.child, process.child.excess)
    else:
        state = "was stopped" if process.child.was_ended else f"has ended with exit status {record.exit_code}"
    return f"[Process {record.id} {state}. Read on with offset {process.window.end}.]\n{text}"


async def _end(child: Child) -> None:
    """Kills the command and waits until it is gone. A process that hangs in the kernel is not waited for."""
    child.end()
    await child.wait_at_most(CANCEL_WAIT_S)


def _timeout_of(timeout_s: object) -> float:
    if timeout_s is None:
        return TIMEOUT_DEFAULT_S
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= TIMEOUT_MAX_S:
        raise Invalid("arguments_invalid", f"timeout_s is a number above 0, and at most {TIMEOUT_MAX_S:g}")
    return float(timeout_s)
