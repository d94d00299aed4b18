"""Keeps one MCP server running: connects, starts again with growing delays, and knows what the server offers.

Does not own: calls of its tools (tools).
Invariants: a failing server fails in its own task, and is tried again ever more rarely. Its tools stay in the catalog
through a quick restart, and calls wait for it. They leave the catalog if the server stays away.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

import msgspec
import structlog

from palyra.adapters.runtimes.mcp.connection import Connection, Emit
from palyra.adapters.runtimes.mcp.definitions import TOOLS_MAX
from palyra.adapters.runtimes.mcp.failures import (
    AnswerLost,
    ConnectionLost,
    Down,
    ServerRefused,
    SessionRefused,
    TimedOut,
    TooLarge,
    Unfit,
)
from palyra.adapters.runtimes.mcp.offers import Offered, Offering, Offers, withdrawn
from palyra.adapters.runtimes.mcp.pages import list_all
from palyra.adapters.runtimes.mcp.pins import Pins
from palyra.adapters.runtimes.mcp.settings import ServerSettings
from palyra.core.errors import PalyraError
from palyra.core.tools import MissingTool

REFRESH_EVERY_S_MIN = 1.0  # Lists are read at most this often, however often a server says that they changed.

log = structlog.get_logger()
_RESOURCES = ("resources", {"resources/list": "resources", "resources/templates/list": "resourceTemplates"})
_PROMPTS = ("prompts", {"prompts/list": "prompts"})


class ServerState(Enum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    DOWN = "down"
    STOPPED = "stopped"


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A server's status for people. `reason` says why it is not ready."""

    name: str
    state: ServerState
    reason: str = ""
    version: str = ""
    tools: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    starts_count: int = 0


class McpServer:
    def __init__(self, settings: ServerSettings, offering: Offering, pins: Pins, changed: Callable[[], None]) -> None:
        self.settings = settings
        self._offering = offering
        self._listed: list[object] = []
        self._pins = pins
        self._changed = changed
        self._connection: Connection | None = None
        self._ready = asyncio.Event()
        self._begun = asyncio.Event()
        self._state = ServerState.STARTING
        self._reason = ""
        self._offers = Offers()
        self._starts_count = 0
        self._failures_count = 0
        self._ready_at_s: float | None = None

    async def run(self) -> None:
        """Keeps the server running until cancelled."""
        try:
            while True:
                self._starts_count += 1
                error = await self._live_once()
                delay_s = self._fall(error)
                await asyncio.sleep(delay_s)
        finally:
            self._turn(ServerState.STOPPED, "the daemon is stopping")

    def reconsider(self) -> None:
        """Reads the lists again that the server gave, because a person accepted something.

        A tool that is not what was accepted comes from a process older than the one that the person was shown.
        """
        read = self._offering.read(self._listed)
        offers = self._offers
        if set(read.changed) - set(offers.changed) and self._connection is not None:
            self._connection.outdate()
        self._offers = msgspec.structs.replace(read, has_resources=offers.has_resources, has_prompts=offers.has_prompts)

    async def wait_begun(self) -> None:
        """Waits until the first start has succeeded or failed."""
        await self._begun.wait()

    def refuse(self, reason: str) -> None:
        """Marks the server as not started. It replaces `run`; `reason` says why."""
        self._turn(ServerState.DOWN, reason)

    async def request(self, method: str, params: dict[str, object], emit: Emit) -> dict[str, object]:
        """Sends a request, and waits for a server that is being restarted.

        Raises Down, or what Connection.call raises.
        """
        connection = await self._connected()
        return await connection.call(method, params, self.settings.timeout_s, emit)

    async def list_all(self, method: str, key: str, count_max: int) -> list[object]:
        connection = await self._connected()
        return await list_all(connection, method, key, count_max, self.settings.timeouts.request_s)

    @property
    def offered(self) -> tuple[Offered, ...]:
        """Returns the offered tools, also during a restart: a call then waits for the server."""
        is_here = self._state in (ServerState.READY, ServerState.RESTARTING)
        return self._offers.offered if is_here else ()

    @property
    def has_resources(self) -> bool:
        return bool(self.offers_now and self._offers.has_resources)

    @property
    def has_prompts(self) -> bool:
        return bool(self.offers_now and self._offers.has_prompts)

    @property
    def offers_now(self) -> bool:
        return self._state in (ServerState.READY, ServerState.RESTARTING)

    def missing(self) -> tuple[MissingTool, ...]:
        if self._state is ServerState.READY:
            return self._offers.missing
        reason = f"the MCP server {self.settings.name} is {self._state.value}"
        reason = f"{reason}: {self._reason}" if self._reason else reason
        whole = MissingTool(f"mcp.{self.settings.name}.*", reason)
        return (whole, *(() if self.offers_now else withdrawn(self._offers.offered, reason)))

    def status(self) -> ServerStatus:
        terms = self._connection.terms if self._connection is not None else None
        return ServerStatus(
            name=self.settings.name,
            state=self._state,
            reason=self._reason,
            version=terms.version if terms else "",
            tools=tuple(each.spec.name for each in self.offered),
            changed=self._offers.changed,
            starts_count=self._starts_count,
        )

    async def _connected(self) -> Connection:
        try:
            async with asyncio.timeout(self.settings.timeouts.restart_wait_s):
                return await self._next_connection()
        except TimeoutError as cause:
            raise Down(f"it is {self._state.value}: {self._reason or 'it has not answered yet'}") from cause

    async def _next_connection(self) -> Connection:
        while True:
            await self._ready.wait()
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            # Nothing has reacted to the end of this connection yet. The next connection sets the event again.
            self._ready.clear()

    async def _live_once(self) -> BaseException | None:
        """Runs one connection from its beginning to its end, and returns what ended it."""
        task = asyncio.create_task(Connection(self.settings).run(self._attend), name=f"MCP server {self.settings.name}")
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            # Read also if this is cancelled: a failure that nobody reads is reported as forgotten.
            ending = None if task.cancelled() else task.exception()
            self._connection = None
            self._ready.clear()
        return ending

    async def _attend(self, connection: Connection) -> None:
        await self._refresh(connection)
        self._connection = connection
        self._ready_at_s = asyncio.get_running_loop().time()
        self._turn(ServerState.READY, "")
        self._ready.set()
        log.info("mcp_server_ready", server=self.settings.name, tools=len(self._offers.offered))
        while not connection.is_closed:
            await connection.wait_changed()
            if connection.is_outdated and not connection.is_calling:
                raise Down("its tools are not those that were accepted, so it is started again")
            if connection.is_doubtful and not connection.is_closed:
                connection.is_doubtful = False
                await self._ping(connection)
            if connection.has_new_lists and not connection.is_closed:
                await asyncio.sleep(REFRESH_EVERY_S_MIN)
                connection.has_new_lists = False
                await self._refresh(connection)
                self._changed()

    async def _ping(self, connection: Connection) -> None:
        """Pings after a call was given up. A server that does not even answer a ping is restarted."""
        try:
            await connection.ask("ping", {}, self.settings.timeouts.ping_s)
        except SessionRefused as cause:
            raise Down("it does not know its session any more") from cause
        except ServerRefused:
            return  # The server answers.
        except TimedOut as cause:
            raise TimedOut("it no longer answers") from cause

    async def _refresh(self, connection: Connection) -> None:
        terms, limit_s = connection.terms, self.settings.timeouts.request_s
        listed: list[object] = []
        if terms.offers("tools"):
            listed = await list_all(connection, "tools/list", "tools", TOOLS_MAX, limit_s)
        self._listed = listed
        before = self._offers.changed
        self._offers = msgspec.structs.replace(
            await self._read_and_pin(listed),
            has_resources=await _has_any(connection, _RESOURCES, limit_s),
            has_prompts=await _has_any(connection, _PROMPTS, limit_s),
        )
        for name in set(self._offers.changed) - set(before):
            log.warning("mcp_tool_changed", server=self.settings.name, tool=name)

    async def _read_and_pin(self, listed: list[object]) -> Offers:
        """Returns what is offered once its pins are saved. Pins that could not be saved before are tried first."""
        await self._pins.save()
        read = self._offering.read(listed)
        await self._pins.save()
        return self._offering.read(listed) if self._pins.fault else read

    def _fall(self, error: BaseException | None) -> float:
        """Decides what the end means for the server's tools, and returns how long to wait before the next start."""
        timeouts, now_s = self.settings.timeouts, asyncio.get_running_loop().time()
        was_ready = self._ready_at_s is not None
        if self._ready_at_s is not None and now_s - self._ready_at_s >= timeouts.steady_s:
            self._failures_count = 0
        self._ready_at_s = None
        delay_s = min(timeouts.backoff_max_s, timeouts.backoff_first_s * 2.0**self._failures_count)
        delay_s *= random.uniform(0.5, 1.0)  # noqa: S311 - Spreads restarts; nothing secret depends on it.
        self._failures_count = min(self._failures_count + 1, 16)
        is_brief = was_ready and delay_s <= timeouts.restart_wait_s
        reason = told(error, self.settings)
        self._turn(ServerState.RESTARTING if is_brief else ServerState.DOWN, reason)
        log.warning("mcp_server_lost", server=self.settings.name, reason=reason, retry_in_s=round(delay_s, 2))
        return delay_s

    def _turn(self, state: ServerState, reason: str) -> None:
        self._state, self._reason = state, reason
        if state is not ServerState.STARTING:
            self._begun.set()
        self._changed()


async def _has_any(connection: Connection, kind: tuple[str, dict[str, str]], timeout_s: float) -> bool:
    """Tells whether the server has any of these.

    Many servers announce them and have none, and then no model needs tools.
    """
    capability, lists = kind
    if not connection.terms.offers(capability):
        return False
    for method, key in lists.items():
        with suppress(ServerRefused, TooLarge, AnswerLost):
            if (await connection.ask(method, {}, timeout_s)).get(key):
                return True
    return False


def told(error: BaseException | None, settings: ServerSettings) -> str:
    """Says why the server ended, in our words only, because models read this too."""
    program = settings.command[0] if settings.command else ""
    match error:
        case BaseExceptionGroup():
            known = error.subgroup((Down, ConnectionLost, ServerRefused, TimedOut, TooLarge, Unfit, PalyraError))
            return told((known or error).exceptions[0], settings)
        case Down() | ConnectionLost() | ServerRefused() | TimedOut() | TooLarge() | Unfit():
            return str(error)
        case PalyraError():
            return error.message
        case FileNotFoundError():
            return f"there is no program {program}; install it, or correct its [[mcp]] section"
        case OSError() if program:
            return f"{program} cannot be started ({error.strerror})"
        case None:
            return "the connection ended"
        case _:
            return f"it cannot be reached ({type(error).__name__})"
