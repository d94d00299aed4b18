"""MCP servers in tests: settings for stand-ins, servers that are ready, and a monitor of the event loop."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from palyra.adapters.runtimes.mcp.server import ServerState, ServerStatus
from palyra.adapters.runtimes.mcp.servers import McpServers
from palyra.adapters.runtimes.mcp.settings import ServerSettings, ServerTimeouts
from palyra.adapters.schema import JsonSchemaCheck
from palyra.core.events.base import JsonObject
from palyra.core.tools import ToolResult
from palyra.ports.tools import Tool
from tests.support.tool_calls import context
from tests.support.waiting import until

HOSTILE = Path(__file__).parent / "hostile.py"
BIN = Path(sys.executable).parent
# Quick to start again. What a server has to do in time may take a busy machine long.
QUICK = ServerTimeouts(
    start_s=100, request_s=100, restart_wait_s=100, ping_s=100, backoff_first_s=0.05, stop_grace_s=0.5
)


def hostile(behaviour: str, folder: Path, **fields: object) -> ServerSettings:
    """Returns the settings of the hostile stand-in, named after its behaviour."""
    given: dict[str, object] = {
        "name": behaviour.replace("_", "-"),
        "command": (sys.executable, str(HOSTILE), behaviour, str(folder)),
        "timeouts": QUICK,
        **fields,
    }
    return ServerSettings(**given)  # type: ignore[arg-type]


@asynccontextmanager
async def running(*settings: ServerSettings, pins: Path | None = None) -> AsyncIterator[McpServers]:
    servers = McpServers(settings, JsonSchemaCheck(), pins)
    await servers.start()
    try:
        yield servers
    finally:
        await servers.close()


@asynccontextmanager
async def ready(*settings: ServerSettings, pins: Path | None = None) -> AsyncIterator[McpServers]:
    async with running(*settings, pins=pins) as servers:
        await until(lambda: all(each.state is ServerState.READY for each in servers.status()))
        yield servers


def status(servers: McpServers, name: str) -> ServerStatus:
    return next(each for each in servers.status() if each.name == name)


def find(servers: McpServers, name: str) -> Tool:
    return next(tool for tool in servers.tools() if tool.spec.name == name)


async def use(servers: McpServers, name: str, arguments: JsonObject) -> ToolResult:
    return await find(servers, name).execute(arguments, context())


def marks(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


class LoopMonitor:
    """Ticks while the loop is free; `longest_s` is the longest time it was blocked."""

    def __init__(self) -> None:
        self.ticks_count = 0
        self.longest_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "LoopMonitor":
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before_s = loop.time()
            await asyncio.sleep(0.01)
            self.ticks_count += 1
            self.longest_s = max(self.longest_s, loop.time() - before_s)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
