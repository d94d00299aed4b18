"""MCP over standard input and output: each line goes to the daemon's /mcp, and what comes back goes out as lines.

Owns: forwarding. Does not own: MCP itself (gateway.mcp), lines (stdio_rpc).
Invariant: every request gets an answer, also when the daemon does not give one.
"""

import asyncio

import msgspec

from palyra.cli.daemon_call import Client
from palyra.cli.stdio_rpc import INTERNAL, PARSE_ERROR, Lines
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject

UNDER_WAY_MAX = 32


class McpBridge:
    def __init__(self, client: Client, lines: Lines) -> None:
        self._client = client
        self._lines = lines
        self._room = asyncio.Semaphore(UNDER_WAY_MAX)

    async def serve(self) -> None:
        """Until the other side closes."""
        async with asyncio.TaskGroup() as group:
            while (line := await self._lines.read()) is not None:
                message = _parsed(line)
                if message is None:
                    self._lines.write(_failure(None, PARSE_ERROR, "the line is no JSON object"))
                    continue
                await self._room.acquire()
                group.create_task(self._forward(message))

    async def _forward(self, message: JsonObject) -> None:
        try:
            async for answer in self._client.exchange_rpc("/mcp", message):
                self._lines.write_line(answer)
        except PalyraError as error:
            if "id" in message:
                self._lines.write(_failure(message["id"], INTERNAL, f"{error.code}: {error.message}"))
        finally:
            self._room.release()


def _parsed(line: bytes) -> JsonObject | None:
    try:
        return msgspec.json.decode(line, type=JsonObject)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _failure(message_id: object, code: int, message: str) -> JsonObject:
    return {"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": message}}
