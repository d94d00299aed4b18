"""The tool fs.read: returns lines of a text file of the workspace.

Does not own: the boundary of the workspace (workspace).
Lines end with a line feed and are counted from 1. `offset` is the first line wanted and `limit` their number. A page
also ends at OUTPUT_BYTES_MAX. The text is as it is in the file; a last line in brackets says what is left.
"""

from functools import partial
from threading import Event

from palyra.adapters.files.text_file import FILE_BYTES_MAX, decode, read_body
from palyra.adapters.files.workspace import PATH_SCHEMA, WorkspacePath, absolute, bytes_at, locate
from palyra.adapters.tools.offload import offload
from palyra.core.argument_schemas import arguments_schema, integer_schema
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.plurals import counted
from palyra.core.tools import CallNature, Capability, ToolResult, ToolSpec, Trait, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

OUTPUT_BYTES_MAX = 64 * 1024  # Limits one page to about 16,000 tokens.
LINES_MAX = 2000
OFFSET_MAX = FILE_BYTES_MAX

SPEC = ToolSpec(
    name="fs.read",
    description=(
        "Reads a text file of the workspace (UTF-8). Returns whole lines as they are in the file; when there is more, "
        "the last line in brackets says with which offset to read on."
    ),
    input_schema=arguments_schema(
        {
            "path": PATH_SCHEMA,
            "offset": integer_schema(1, OFFSET_MAX, "The first line to return; lines are counted from 1. Default 1."),
            "limit": integer_schema(1, LINES_MAX, f"How many lines to return at most. Default {LINES_MAX}."),
        },
        ["path"],
    ),
    capabilities=frozenset({Capability.FS_READ}),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.LOCAL,
    timeout_s=20.0,
    traits=frozenset({Trait.TOUCHES_PATH}),
)


class FsRead:
    spec = SPEC

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        paths, is_inside = paths_of(arguments.get("path"), workspace)
        return CallNature(
            effect_class=EffectClass.READ_ONLY,
            parallel_class=ParallelClass.READ_ONLY_SAFE,
            paths=paths,
            is_in_workspace=is_inside,
        )

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        offset, limit = arguments.get("offset", 1), arguments.get("limit", LINES_MAX)
        if not isinstance(offset, int) or not isinstance(limit, int) or offset < 1 or limit < 1:
            return failed("arguments_invalid", "offset and limit are whole numbers from 1")
        try:
            place = locate(arguments.get("path"), context.workspace)
        except PalyraError as refused:
            return failed(refused.code, refused.message)
        return await offload(partial(_read, place, offset, min(limit, LINES_MAX)))


def paths_of(path: object, workspace: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Returns the paths by which conflicts are found, and whether the path lies inside."""
    try:
        return (locate(path, workspace).shown,), True
    except PalyraError:
        pass
    try:
        return (absolute(path, workspace),), False
    except PalyraError:
        return (), False


def _read(place: WorkspacePath, offset: int, limit: int, stop: Event) -> ToolResult:
    body = read_body(place)
    text = decode(place, body)
    read = (bytes_at(place, body),)
    if not text:
        return ToolResult(outcome=Outcome.OK, output="[The file is empty.]", read=read)
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if offset > len(lines):
        return failed(
            "offset_past_end", f"{place.shown} has {counted(len(lines), 'line')}; offset {offset} is beyond them"
        )
    return ToolResult(outcome=Outcome.OK, output=_page(lines, offset, limit), read=read)


def _page(lines: list[str], offset: int, limit: int) -> str:
    shown: list[str] = []
    left = OUTPUT_BYTES_MAX
    for line in lines[offset - 1 : offset - 1 + limit]:
        left -= len(line.encode()) + 1
        if left < 0:
            break
        shown.append(line)
    if not shown:
        return _cut_line(lines, offset)
    last = offset + len(shown) - 1
    note = (
        "" if last == len(lines) else f"\n[Lines {offset} to {last} of {len(lines)}; read on with offset {last + 1}.]"
    )
    return "\n".join(shown) + note


def _cut_line(lines: list[str], offset: int) -> str:
    line = lines[offset - 1].encode()
    start = line[:OUTPUT_BYTES_MAX].decode("utf-8", "ignore")
    return f"{start}\n[Line {offset} of {len(lines)} has {len(line)} bytes and was cut.]"
