"""Tool calls for tests. Owns: the catalog the daemon has, and a context to call its tools in."""

from pathlib import Path

from palyra.adapters.tools.catalog import ToolCatalog
from palyra.adapters.tools.fs_read import FsRead
from palyra.adapters.tools.fs_write import FsWrite
from palyra.adapters.tools.time_now import TimeNow
from palyra.core.events.base import JsonObject
from palyra.core.ids import EffectId, Principal, RunId, SessionId, StreamId
from palyra.core.tools import ToolResult
from palyra.ports.tools import Tool, ToolCallContext

NOW_MS = 1_750_000_000_000  # 2025-06-15T15:06:40Z, a Sunday.


def make_catalog() -> ToolCatalog:
    return ToolCatalog([TimeNow(), FsRead(), FsWrite()])


def context(*workspace: Path, effect: str = "e" * 64) -> ToolCallContext:
    return ToolCallContext(
        session_id=SessionId(StreamId("01JZ0000000000000000SESS01")),
        run_id=RunId("01JZ0000000000000000RUN001"),
        effect_id=EffectId(effect),
        principal=Principal("user:alice"),
        agent="main",
        workspace=tuple(str(root) for root in workspace),
        now_ms=NOW_MS,
        emit=lambda stream, text: None,
    )


async def execute(tool: Tool, arguments: JsonObject, *workspace: Path) -> ToolResult:
    return await tool.execute(arguments, context(*workspace))


def code_of(result: ToolResult) -> str | None:
    return result.error.code if result.error else None
