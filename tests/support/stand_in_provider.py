"""A stand-in for a model provider: an HTTP server on loopback that plays prepared answers, broken ones included.

It writes HTTP by hand, so that it can send what no HTTP library would. Requests are kept unchanged.
"""

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

REQUEST_BYTES_MAX = 32 << 20


@dataclass(frozen=True)
class Played:
    """One answer.

    `then` is what follows its body: `end`, `stall` (send no more), `cut` (disconnect), `endless` (repeat).
    """

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    then: str = "end"
    raw: bytes | None = None
    is_silent: bool = False  # Not even headers are sent.
    reads: int = 1  # The number of pieces in which the body is sent.


@dataclass(frozen=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at_s: float = 0.0  # In wall-clock time, as dates in headers are.


class StandInProvider:
    def __init__(self, *answers: Played) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.connection_count = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        await asyncio.wait([task])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._read(reader):
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await self._play(answer, writer)
                if answer.then == "cut":
                    writer.transport.abort()
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        body = await reader.readexactly(min(REQUEST_BYTES_MAX, int(headers.get("content-length", "0"))))
        self.asked.append(Asked(lines[0].split(" ")[1], headers, json.loads(body or b"{}"), time.time()))
        return True

    async def _play(self, answer: Played, writer: asyncio.StreamWriter) -> None:
        if answer.is_silent:
            await asyncio.Event().wait()
        if answer.raw is not None:
            writer.write(answer.raw)
            await writer.drain()
            return
        writer.write(_head(answer))
        for piece in _pieces(answer.body, answer.reads):
            writer.write(_chunk(piece))
            await writer.drain()
        while answer.then == "endless":
            writer.write(_chunk(answer.body or b"x" * 65536))
            await writer.drain()
        if answer.then == "stall":
            await asyncio.Event().wait()
        if answer.then == "end":
            writer.write(b"0\r\n\r\n")
        await writer.drain()


def _head(answer: Played) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Answer", f"Content-Type: {answer.content_type}", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def _pieces(body: bytes, count: int) -> Iterable[bytes]:
    size = max(1, -(-len(body) // count))
    return [body[at : at + size] for at in range(0, len(body), size)]


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def events(*values: dict[str, Any] | str) -> bytes:
    """Returns a body of events; each is named if its data has a type."""
    return b"".join(_event(value) for value in values)


def _event(value: dict[str, Any] | str) -> bytes:
    if isinstance(value, str):
        return f"data: {value}\n\n".encode()
    name = f"event: {value['type']}\n" if "type" in value else ""
    return f"{name}data: {json.dumps(value)}\n\n".encode()


def refusal(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Played:
    """Returns an error in the form of all three vendors: they agree on `error.message`."""
    body = json.dumps({"type": "error", "error": {"message": message, **more}}).encode()
    return Played(body=body, status=status, content_type="application/json", headers=headers or {})
