"""HTTP sites on loopback for tests: they answer raw requests with scripted bytes, and count connections."""

import asyncio
import socketserver
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache

LOOPBACK = "127.0.0.1"
Respond = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Site:
    """`answers[path]` are the bytes of a whole answer, or a function that writes the answer itself."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | Respond] = {}
        self.requests: list[bytes] = []
        self.connections_count = 0
        self.open_count = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections_count += 1
        self.open_count += 1
        try:
            await self._answer(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            self.open_count -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
        self.requests.append(head + (await reader.readexactly(size) if size else b""))
        answer = self.answers.get(head.split(b" ")[1].decode(), ok(b"no such page", status="404 Not Found"))
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        else:
            await _while_open(reader, answer(self.requests[-1], writer))


async def _while_open(reader: asyncio.StreamReader, answering: Awaitable[None]) -> None:
    """Runs until the answer is given, or the client disconnects."""
    tasks = {asyncio.ensure_future(answering), asyncio.ensure_future(reader.read())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def site(host: str = LOOPBACK) -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, host, 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def ok(body: bytes, *headers: str, status: str = "200 OK", media: str = "text/plain; charset=utf-8") -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body)}",
        *([f"Content-Type: {media}"] if media else []),
        *headers,
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


def moved(location: str, status: str = "302 Found") -> bytes:
    return ok(b"", f"Location: {location}", status=status)


@cache
def standing_site() -> str:
    """Returns the address of a page that exists as long as the process, for tests without an event loop."""

    class _Page(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(ok(b"hello"))

    server = socketserver.ThreadingTCPServer((LOOPBACK, 0), _Page)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://{LOOPBACK}:{server.server_address[1]}/"
