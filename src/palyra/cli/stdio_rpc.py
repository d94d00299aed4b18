"""JSON-RPC over standard input and output: one message a line.

Owns: reading and writing lines, answering requests as tasks of their own, and matching answers to our own requests.
Does not own: methods (acp, mcp_bridge).
Invariants: nothing but messages is written to standard output. A line has a limit. Every request gets one answer.
"""

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable
from typing import BinaryIO

import msgspec

from palyra.core.errors import Invalid, NotFound, PalyraError
from palyra.core.events.base import JsonObject

LINE_BYTES_MAX = 32 * 1024 * 1024  # Images come as base64 in one line.
PARSE_ERROR = -32700
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL = -32603
WAITING_MAX = 1_024  # Requests of ours without an answer.

Handler = Callable[[str, JsonObject], Awaitable[JsonObject | None]]


class Lines:
    """The two streams of a process, line by line."""

    def __init__(self, incoming: BinaryIO | None = None, outgoing: BinaryIO | None = None) -> None:
        self._in = incoming or sys.stdin.buffer
        self._out = outgoing or sys.stdout.buffer

    async def read(self) -> bytes | None:
        """The next line that is not empty; None at the end, and for a line beyond the limit."""
        while True:
            line: bytes = await asyncio.to_thread(self._in.readline, LINE_BYTES_MAX + 1)
            if not line or len(line) > LINE_BYTES_MAX:
                return None
            if line.strip():
                return line

    def write(self, message: object) -> None:
        self.write_line(msgspec.json.encode(message))

    def write_line(self, line: bytes) -> None:
        self._out.write(line + b"\n")
        self._out.flush()


class RpcPeer:
    """One side of a connection on which both sides ask. A notification is a request without an id."""

    def __init__(self, lines: Lines, handle: Handler) -> None:
        self._lines = lines
        self._handle = handle
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[JsonObject]] = {}

    async def serve(self) -> None:
        """Until the other side closes. What is under way is then cancelled here; runs go on in the daemon."""
        tasks: set[asyncio.Task[None]] = set()
        try:
            while (line := await self._lines.read()) is not None:
                message = self._parsed(line)
                if message is not None and "method" in message:
                    task = asyncio.create_task(self._answer(message))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                elif message is not None:
                    self._settle(message)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def notify(self, method: str, params: JsonObject) -> None:
        self._lines.write({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Asks the other side. An error as its answer is raised as Invalid."""
        if len(self._waiting) >= WAITING_MAX:
            raise Invalid("requests_too_many", "too many requests wait for the client's answer")
        number = next(self._numbers)
        waiting: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        try:
            self._lines.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await waiting
        finally:
            del self._waiting[number]

    def _parsed(self, line: bytes) -> JsonObject | None:
        try:
            return msgspec.json.decode(line, type=JsonObject)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._lines.write(_failure(None, PARSE_ERROR, "the line is no JSON object"))
            return None

    async def _answer(self, message: JsonObject) -> None:
        message_id, method, params = message.get("id"), message.get("method"), message.get("params")
        try:
            result = await self._handle(str(method), params if isinstance(params, dict) else {})
        except PalyraError as error:
            answer = _failure(message_id, _code(error), f"{error.code}: {error.message}")
        else:
            answer = {"jsonrpc": "2.0", "id": message_id, "result": result if result is not None else {}}
        if message_id is not None:
            self._lines.write(answer)

    def _settle(self, message: JsonObject) -> None:
        number = message.get("id")
        waiting = self._waiting.get(number) if isinstance(number, int) else None
        if waiting is None or waiting.done():
            return
        result = message.get("result")
        if isinstance(result, dict):
            waiting.set_result(result)
        elif "error" in message:
            waiting.set_exception(Invalid("client_refused", "the client answered with an error"))
        else:
            waiting.set_result({})


def unknown_method(method: str) -> NotFound:
    return NotFound("method_unknown", f"there is no method {method[:64]}")


def _code(error: PalyraError) -> int:
    if error.code == "method_unknown":
        return METHOD_NOT_FOUND
    return INVALID_PARAMS if isinstance(error, Invalid | NotFound) else INTERNAL


def _failure(message_id: object, code: int, message: str) -> JsonObject:
    return {"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": message}}
