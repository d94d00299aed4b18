"""The stdio transport to an MCP server: bounded reading and writing of JSON lines over its pipes.

Does not own: what the messages mean (connection).
The package's own transport keeps a line of any length; this one does not.
Invariants: a message over the limits is thrown away, and its waiter is told. Little of a flood is read. A server that
does not read cannot make us keep its requests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from palyra.adapters.runtimes.mcp.codes import TOO_LARGE_CODE, is_own
from palyra.adapters.runtimes.mcp.lines import LineCutter, TooLong
from palyra.adapters.runtimes.mcp.pace import MessagePace, has_too_many_parts
from palyra.adapters.runtimes.mcp.process import ServerProcess, start_process
from palyra.adapters.runtimes.mcp.settings import INBOUND_REQUESTS_MAX, MESSAGE_BYTES_MAX, ServerSettings
from palyra.adapters.runtimes.mcp.streams import Streams

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

WRITES_WAITING_MAX = 64
PENDING_MAX = 1_024
LAST_WORDS_S = 0.5  # The last output of an ended program is read for so long.

log = structlog.get_logger()


class _Wire:
    """One pair of pipes."""

    def __init__(self, settings: ServerSettings, process: ServerProcess, inward: "MemoryObjectSendStream[Any]") -> None:
        self._name = settings.name
        self._process = process
        self._inward = inward
        self._pending: dict[int | str, None] = {}
        self._questions_count = 0
        self._pace = MessagePace()

    async def read(self) -> None:
        """Reads until the pipe or the program ends."""
        cutter = LineCutter(MESSAGE_BYTES_MAX)
        while piece := await self._process.read():
            for line in cutter.feed(piece):
                await self._pace.take(line if isinstance(line, bytes) else b"")
                if self._pace.is_normal or _matters(line):
                    await self._take(line)

    async def write(self, outward: "MemoryObjectReceiveStream[SessionMessage]") -> None:
        from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

        async for sent in outward:
            message = sent.message
            if isinstance(message, JSONRPCRequest) and len(self._pending) < PENDING_MAX:
                self._pending[message.id] = None
            elif isinstance(message, JSONRPCResponse | JSONRPCError):
                self._questions_count -= 1
            await self._process.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def _take(self, line: bytes | TooLong) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import INTERNAL_ERROR, JSONRPCError, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

        if isinstance(line, bytes) and has_too_many_parts(line):
            line = TooLong(len(line), None)
        if isinstance(line, TooLong):
            await self._refuse(line)
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            log.debug("mcp_line_not_understood", server=self._name, bytes=len(line))
            return
        if isinstance(message, JSONRPCRequest):
            if self._questions_count >= INBOUND_REQUESTS_MAX:
                return
            self._questions_count += 1
        elif isinstance(message, JSONRPCResponse | JSONRPCError):
            self._pending.pop(message.id or 0, None)
        if isinstance(message, JSONRPCError) and is_own(message.error.code):
            message.error.code = INTERNAL_ERROR
        await self._inward.send(SessionMessage(message))

    async def _refuse(self, line: TooLong) -> None:
        """Tells whoever waits for this answer. If nobody can know who that is, it tells every waiter."""
        from mcp.shared.message import SessionMessage
        from mcp_types import ErrorData, JSONRPCError

        log.warning("mcp_message_too_large", server=self._name, bytes=line.size_bytes)
        known = line.answers if line.answers in self._pending else None
        waiting = tuple(self._pending) if known is None else (known,)
        for request_id in waiting:
            self._pending.pop(request_id, None)
            error = ErrorData(code=TOO_LARGE_CODE, message=str(line.size_bytes))
            await self._inward.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))


@asynccontextmanager
async def open_stdio(settings: ServerSettings) -> AsyncIterator[Streams]:
    """Starts a server and opens its streams.

    The server ends when the block ends. Raises OSError if it cannot be started.
    """
    import anyio

    process = await start_process(settings)
    send_in, receive_in = anyio.create_memory_object_stream[Any](0)
    send_out, receive_out = anyio.create_memory_object_stream[Any](WRITES_WAITING_MAX)
    wire = _Wire(settings, process, send_in)
    pumps = {
        asyncio.create_task(wire.read(), name=f"stdout of MCP server {settings.name}"),
        asyncio.create_task(wire.write(receive_out), name=f"stdin of MCP server {settings.name}"),
        asyncio.create_task(_over(process), name=f"end of MCP server {settings.name}"),
    }

    def over(_done: object) -> None:
        # The first pump that ends, ends the connection: its reader sees the end of the stream.
        send_in.close()

    for pump in pumps:
        pump.add_done_callback(over)
    try:
        yield Streams(receive_in, send_out, lambda: _told_end(process))
    finally:
        with anyio.CancelScope(shield=True):
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            _note_broken(settings.name, pumps)
            await process.stop(settings.timeouts.stop_grace_s)
            for stream in (send_in, receive_in, send_out, receive_out):
                stream.close()


def _matters(line: bytes | TooLong) -> bool:
    """Tells whether a line of a flood is read: somebody may wait for it, or it says that the lists changed."""
    return isinstance(line, TooLong) or b'"id"' in line or b"list_changed" in line


async def _over(process: ServerProcess) -> None:
    await process.ended()
    await asyncio.sleep(LAST_WORDS_S)


async def _told_end(process: ServerProcess) -> str:
    await process.wait_ended(LAST_WORDS_S)
    code = process.exit_code
    return "it closed its pipes" if code is None else f"its process ended with code {code}"


def _note_broken(name: str, pumps: set["asyncio.Task[None]"]) -> None:
    """Logs a broken pipe. A pipe breaks when a server ends; this look makes sure that no error is swallowed."""
    for pump in pumps:
        error = None if pump.cancelled() else pump.exception()
        if error is not None:
            log.debug("mcp_pipe_broken", server=name, error=type(error).__name__)
