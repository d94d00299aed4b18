"""The tools shell.list, shell.output and shell.stop, by which a run looks after its background processes.

Does not own: starting processes (run).
A run sees its own processes only. Stopping a process that has ended or never existed changes nothing and is no failure.
"""

from palyra.adapters.runtimes.shell.nature import spelled_out
from palyra.adapters.runtimes.shell.processes import Background, ShellProcesses
from palyra.adapters.runtimes.shell.run import ShellSetup, describe, from_outside, trusted
from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.tools import CallNature, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.processes import ProcessRecord
from palyra.ports.tools import ToolCallContext

PAGE_LENGTH_MAX = 32 * 1024
NONE_STARTED = "[No process was started in the background.]"
_ID_SCHEMA: JsonObject = text_schema(32, "The id that shell.run gave.")

LIST = ToolSpec(
    name="shell.list",
    description="Lists the processes this run started in the background, with their ids and states.",
    input_schema=arguments_schema({}),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.LOCAL,
)
OUTPUT = ToolSpec(
    name="shell.output",
    description=(
        "Reads what a background process has printed so far. Only the last part of a long output is kept; the first line says "
        "how it stands and with which offset to read on."
    ),
    input_schema=arguments_schema(
        {
            "id": {**_ID_SCHEMA, "description": "The id that shell.run gave. Default: the process started last."},
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "The first character wanted. Default: as much of the end as fits one answer.",
            },
        }
    ),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.LOCAL,
)
STOP = ToolSpec(
    name="shell.stop",
    description="Stops a background process of this run, with everything it started.",
    input_schema=arguments_schema({"id": _ID_SCHEMA}, ["id"]),
    effect_class=EffectClass.IDEMPOTENT,
    parallel_class=ParallelClass.NEVER,
    risk=Risk.LOW,
    output_trust=Trust.SYSTEM,
)


class ShellList:
    spec = LIST

    def __init__(self, processes: ShellProcesses) -> None:
        self._processes = processes

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=LIST.effect_class, parallel_class=LIST.parallel_class)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        lines = [_line(record) for record in self._processes.list(context.run_id)]
        return ToolResult(outcome=Outcome.OK, output="\n".join(lines) or NONE_STARTED)


class ShellOutput:
    spec = OUTPUT

    def __init__(self, setup: ShellSetup) -> None:
        self._setup = setup

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=OUTPUT.effect_class, parallel_class=OUTPUT.parallel_class)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        process_id, offset = arguments.get("id"), arguments.get("offset")
        if isinstance(offset, bool) or not isinstance(offset, int | None) or (offset is not None and offset < 0):
            return failed("arguments_invalid", "offset is a whole number from 0")
        listed = self._setup.processes.list(context.run_id)
        if process_id is None and not listed:
            return ToolResult(outcome=Outcome.OK, output=NONE_STARTED)
        process = self._setup.processes.find(context.run_id, listed[-1].id if process_id is None else str(process_id))
        if process is None:
            return failed("not_found", "this run has no such process; shell.list names those it has")
        result = ToolResult(outcome=Outcome.OK, output=_page(process, offset))
        return from_outside(result) if process.has_network else await trusted(result, context, self._setup)


class ShellStop:
    spec = STOP

    def __init__(self, processes: ShellProcesses) -> None:
        self._processes = processes

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=STOP.effect_class, parallel_class=STOP.parallel_class)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        process_id = arguments.get("id")
        if not isinstance(process_id, str):
            return failed("arguments_invalid", "id is the text that shell.run gave")
        if self._processes.find(context.run_id, process_id) is None:
            return ToolResult(outcome=Outcome.OK, output="[This run has no such process; nothing was to be stopped.]")
        await self._processes.stop(process_id)
        return ToolResult(outcome=Outcome.OK, output=f"[Process {process_id} does not run any more.]")


def _line(record: ProcessRecord) -> str:
    state = "runs" if record.exit_code is None else f"ended with {record.exit_code}"
    return f"{record.id}  {state}  {spelled_out(record.command)[:200]}"


def _page(process: Background, offset: int | None) -> str:
    """Returns a page from the offset on, or the last one. A page that stops early says where."""
    window = process.window
    if offset is None:
        return describe(process, window.read(max(window.start, window.end - PAGE_LENGTH_MAX)))
    text = window.read(offset)[:PAGE_LENGTH_MAX]
    start = max(offset, window.start)
    lost = f"[{window.start - offset} characters before this are no longer kept]\n" if offset < window.start else ""
    more = f"\n[read on with offset {start + len(text)}]" if start + len(text) < window.end else ""
    return describe(process, f"{lost}{text}{more}")
