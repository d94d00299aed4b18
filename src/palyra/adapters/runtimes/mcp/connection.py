"""One connection to an MCP server: requests with their time limits, and the notifications that the server sends.

Does not own: connecting again when the connection ends (server).
The connection lives in one task, because its scopes are bound to that task. Any task may make requests. A request that
is cancelled or times out tells the server so, and touches nothing but itself. Requests of the server to us (sampling,
elicitation, roots) are refused: a server has no say here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any

from palyra.adapters.runtimes.mcp.codes import NO_ANSWER_CODE, NO_SESSION_CODE, TOO_LARGE_CODE
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
from palyra.adapters.runtimes.mcp.handshake import Terms, headers_of, shake_hands, stamp
from palyra.adapters.runtimes.mcp.http import open_http
from palyra.adapters.runtimes.mcp.server_text import clean_line
from palyra.adapters.runtimes.mcp.settings import CALLS_AT_ONCE_MAX, ServerSettings
from palyra.adapters.runtimes.mcp.stdio import open_stdio
from palyra.adapters.runtimes.mcp.streams import Streams

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

WRITE_TIMEOUT_S = 5.0
SAID_LENGTH_MAX = 2_000  # Limits a server's error text.
LINE_LENGTH_MAX = 300
LINES_PER_CALL_MAX = 200  # Limits the progress and log lines of one call that are shown live. The rest is dropped.
_LISTS = {
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
}

Emit = Callable[[str], None]


class Connection:
    """Requests may be made while the `attend` of `run` runs.

    The connection ends with `attend`, and `attend` with the connection.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._dispatcher: JSONRPCDispatcher | None = None
        self._terms = Terms(version="", capabilities={})
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE_MAX)
        self._listeners: list[Emit] = []
        self._changed = asyncio.Event()
        self.is_closed = False
        self.has_new_lists = False
        self.is_doubtful = False
        self.is_outdated = False

    @property
    def is_calling(self) -> bool:
        return bool(self._listeners)

    def outdate(self) -> None:
        """Says that a person knows newer lists than these."""
        self.is_outdated = True
        self._changed.set()

    @property
    def terms(self) -> Terms:
        return self._terms

    async def run(self, attend: Callable[["Connection"], Awaitable[None]]) -> None:
        dispatcher_class = await asyncio.to_thread(_load_dispatcher)
        async with _open(self._settings) as streams:
            self._dispatcher = dispatcher_class(streams.read, streams.write)
            try:
                await self._converse(self._dispatcher, attend)
            finally:
                self._close()
            raise ConnectionLost(await streams.ending())

    async def _converse(
        self, dispatcher: "JSONRPCDispatcher", attend: Callable[["Connection"], Awaitable[None]]
    ) -> None:
        import anyio

        async with anyio.create_task_group() as group:
            await group.start(self._pump, dispatcher)
            with suppress(ConnectionLost):  # Whoever opened the connection tells how it ended.
                await self._shake_hands()
                await attend(self)
            group.cancel_scope.cancel()

    async def wait_changed(self) -> None:
        """Waits for the end, new lists, or a doubt whether the server still answers or is what a person accepted."""
        await self._changed.wait()
        self._changed.clear()

    async def ask(self, method: str, params: Mapping[str, object], timeout_s: float) -> dict[str, object]:
        """Sends a request that is no tool call. Raises Down, ServerRefused, ConnectionLost, TimedOut or TooLarge."""
        return await self._send(method, params, {"timeout": timeout_s})

    async def call(self, method: str, params: Mapping[str, object], timeout_s: float, emit: Emit) -> dict[str, object]:
        """Sends a request that may take long and report progress. Its time begins when it has a slot."""
        async with self._slots:
            live = _Live(emit)
            self._listeners.append(live.say)
            is_answered = False
            try:
                answer = await self._send(method, params, {"timeout": timeout_s, "on_progress": live.progress})
                is_answered = True
                return answer
            except (Down, ServerRefused, TooLarge) as failure:
                is_answered = not isinstance(failure, SessionRefused)
                raise
            finally:
                self._listeners.remove(live.say)
                self.is_doubtful = self.is_doubtful or not is_answered
                if self.is_doubtful or self.is_outdated:
                    self._changed.set()

    async def _send(self, method: str, params: Mapping[str, object], options: "CallOptions") -> dict[str, object]:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        if self._dispatcher is None or self.is_closed:
            raise Down("the connection ended")
        options["headers"] = headers_of(self._terms, method, params)
        try:
            # The package's own clock starts once the request is written. A server may delay that for ever.
            async with asyncio.timeout(options["timeout"] + WRITE_TIMEOUT_S):
                return await self._dispatcher.send_raw_request(method, stamp(self._terms, params), options)
        except TimeoutError as cause:
            raise TimedOut(f"it does not take {method}") from cause
        except MCPError as failure:
            match failure.code:
                case code if code == CONNECTION_CLOSED:
                    self._close()  # Nobody may send the next request on this connection.
                    raise ConnectionLost("the connection ended") from failure
                case code if code == REQUEST_TIMEOUT:
                    raise TimedOut(f"it did not answer {method} in time") from failure
                case code if code == TOO_LARGE_CODE:
                    raise TooLarge(f"its answer to {method} is too large") from failure
                case code if code == NO_ANSWER_CODE:
                    raise AnswerLost("its answer did not come") from failure
                case code if code == NO_SESSION_CODE:
                    raise SessionRefused(clean_line(failure.message, SAID_LENGTH_MAX), failure.data) from failure
                case code:
                    raise ServerRefused(clean_line(failure.message, SAID_LENGTH_MAX), code) from failure

    async def _shake_hands(self) -> None:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        assert self._dispatcher is not None
        limit_s = self._settings.timeouts.start_s
        try:
            self._terms = await shake_hands(self._dispatcher, limit_s)
        except MCPError as failure:
            if failure.code == REQUEST_TIMEOUT:
                raise TimedOut(f"it did not answer the greeting within {limit_s:g} s") from failure
            if failure.code == CONNECTION_CLOSED:
                raise ConnectionLost("the connection ended") from failure
            if failure.code == NO_ANSWER_CODE:
                raise Unfit("what it answers to the greeting is not MCP") from failure
            raise ServerRefused(clean_line(failure.message, SAID_LENGTH_MAX), failure.code) from failure

    async def _pump(self, dispatcher: "JSONRPCDispatcher", *, task_status: Any) -> None:
        try:
            await dispatcher.run(_refuse, self._hear, task_status=task_status)
        finally:
            self._close()

    def _close(self) -> None:
        self.is_closed = True
        self._changed.set()

    async def _hear(self, _context: Any, method: str, params: Mapping[str, Any] | None) -> None:
        """Takes a notification. It never waits, because a flood of them would pile up."""
        if method in _LISTS:
            self.has_new_lists = True
            self._changed.set()
        elif method == "notifications/message" and len(self._listeners) == 1:
            # A log line belongs to no call. If exactly one call is running, the line is shown as its output.
            said = (params or {}).get("data")
            self._listeners[0](said if isinstance(said, str) else "")


class _Live:
    """The progress and log lines of one running call, cleaned and counted."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._lines_count = 0

    def say(self, text: str) -> None:
        line = clean_line(text, LINE_LENGTH_MAX) if self._lines_count < LINES_PER_CALL_MAX else ""
        if line:
            self._lines_count += 1
            self._emit(f"{line}\n")

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g} of {total:g}" if total is not None else f"{progress:g}"
        self.say(f"{amount} {message or ''}")


def _open(settings: ServerSettings) -> AbstractAsyncContextManager[Streams]:
    return open_http(settings) if settings.url is not None else open_stdio(settings)


def _load_dispatcher() -> "type[JSONRPCDispatcher]":
    """Loads the package in a thread, because it takes a second to load and nobody may wait for that."""
    import mcp.client.streamable_http
    import mcp.shared.inbound  # noqa: F401
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    for name in ("mcp.client", "mcp.shared"):
        # Messages of the package's loggers hold the servers' texts whole. Our own log lines say what a log needs.
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return JSONRPCDispatcher


async def _refuse(_context: Any, method: str, _params: Mapping[str, Any] | None) -> dict[str, Any]:
    from mcp.shared.exceptions import MCPError
    from mcp_types import METHOD_NOT_FOUND

    if method == "ping":
        return {}
    raise MCPError(code=METHOD_NOT_FOUND, message="this client answers no questions of servers")
