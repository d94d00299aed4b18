"""All configured MCP servers as one source of tools, started and stopped together.

Does not own: any single server (server).
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec.structs import replace

from palyra.adapters.runtimes.mcp.acceptances import Acceptances
from palyra.adapters.runtimes.mcp.extras import make_extras
from palyra.adapters.runtimes.mcp.offers import Offering
from palyra.adapters.runtimes.mcp.pins import Pins
from palyra.adapters.runtimes.mcp.process import kill_marked
from palyra.adapters.runtimes.mcp.server import McpServer, ServerState, ServerStatus
from palyra.adapters.runtimes.mcp.settings import ServerSettings
from palyra.adapters.runtimes.mcp.tools import McpTool
from palyra.core.tools import MissingTool
from palyra.ports.schemas import SchemaCheck
from palyra.ports.services import ServiceHealth, ServiceState
from palyra.ports.tools import Tool

FIRST_WAIT_S = 10.0  # A run that begins right after a start waits so long for its tools.

log = structlog.get_logger()


class McpServers:
    """A ToolSource and a Service. `start` returns soon and each server connects on its own; `close` leaves no process behind.

    `pins_path` is a file in the daemon's home. One daemon at a time uses a home.
    """

    name = "MCP servers"
    domain = "mcp"
    restarts_itself = True

    def __init__(self, settings: Sequence[ServerSettings], schemas: SchemaCheck, pins_path: Path | None = None) -> None:
        self._pins = Pins(pins_path)
        self._owner = _owner_of(pins_path)
        owned = tuple(replace(each, owner=self._owner or each.owner) for each in settings)
        accepted_path = pins_path.with_name("mcp-accepted.json") if pins_path is not None else None
        self._acceptances = Acceptances(accepted_path)
        self._acceptances.refresh()
        self._servers = tuple(
            McpServer(each, Offering(each, schemas, self._pins, self._acceptances), self._pins, self._note_change)
            for each in owned
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._made: dict[str, McpTool] = {}
        self._tools: tuple[Tool, ...] = ()
        self._is_current = True
        self._is_started = False

    async def start(self) -> None:
        self._is_started = True
        await self._pins.load()
        if self._owner and self._servers:
            count = await asyncio.to_thread(kill_marked, self._owner)
            if count:
                log.warning("mcp_leftovers_ended", count=count)
        for server in self._servers:
            if self._pins.fault:
                server.refuse(self._pins.fault)
                continue
            task = asyncio.create_task(server.run(), name=f"supervisor of MCP server {server.settings.name}")
            task.add_done_callback(_note_broken)
            self._tasks.add(task)

    async def wait_begun(self) -> None:
        """Waits for servers that are still starting, at most FIRST_WAIT_S. A server that fails is not waited for."""
        starting = [server.wait_begun() for server in self._servers if self._is_started]
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WAIT_S):
                await asyncio.gather(*starting)

    async def close(self) -> None:
        self._is_started = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    async def health(self) -> ServiceHealth:
        """Fails if any server is down, and names each with its reason. One that is restarting is not down yet."""
        if not self._is_started or not self._servers:
            return ServiceHealth(state=ServiceState.IDLE)
        broken = sorted(task.get_name() for task in self._tasks if task.done())
        down = [_words_of(each) for each in self.status() if each.state is ServerState.DOWN]
        if broken or down:
            reason = "; ".join([*down, *(f"the {name} ended" for name in broken)])
            return ServiceHealth(state=ServiceState.FAILED, reason=reason)
        return ServiceHealth(state=ServiceState.OK)

    async def restart(self) -> None:
        """Does nothing: each server is started again by itself, with growing delays."""

    def tools(self) -> tuple[Tool, ...]:
        """Returns the same tuple until a server comes, goes or changes what it offers, or a person accepts it."""
        if self._acceptances.refresh():
            for server in self._servers:
                server.reconsider()
            self._is_current = False
        if not self._is_current:
            self._is_current = True
            self._tools = self._gather()
        return self._tools

    def missing(self) -> tuple[MissingTool, ...]:
        return tuple(each for server in self._servers for each in server.missing())

    def status(self) -> tuple[ServerStatus, ...]:
        return tuple(server.status() for server in self._servers)

    def _note_change(self) -> None:
        self._is_current = False

    def _gather(self) -> tuple[Tool, ...]:
        """Collects the tools. An unchanged tool stays the very same object, and an unchanged list the same tuple."""
        made: dict[str, McpTool] = {}
        for server in self._servers:
            for offered in server.offered:
                before = self._made.get(offered.spec.name)
                is_same = before is not None and before.offered == offered
                made[offered.spec.name] = before if before is not None and is_same else McpTool(server, offered)
        extras = make_extras(self._servers)
        tools: tuple[Tool, ...] = (*made.values(), *extras)
        self._made = made
        is_unchanged = [each.spec for each in tools] == [each.spec for each in self._tools]
        return self._tools if is_unchanged and _are_same(made, self._tools) else tools


def _words_of(status: ServerStatus) -> str:
    return f"{status.name} is down: {status.reason}" if status.reason else f"{status.name} is down"


def _note_broken(task: asyncio.Task[None]) -> None:
    """Logs a supervisor that ended by itself. It should end only with the daemon, so this is a fault of ours."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.error("mcp_supervisor_broken", task=task.get_name(), exc_info=error)


def _owner_of(pins_path: Path | None) -> str:
    """Returns the daemon's name for its processes. One daemon has one home, and its file of pins is there."""
    return hashlib.sha256(str(pins_path.resolve()).encode()).hexdigest()[:16] if pins_path is not None else ""


def _are_same(made: dict[str, McpTool], before: tuple[Tool, ...]) -> bool:
    kept = {id(each) for each in before}
    return all(id(each) in kept for each in made.values())
