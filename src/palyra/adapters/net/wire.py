"""One HTTP exchange on a pooled connection.

Owns: a request's bytes, and where they go.
Does not own: the answer (response), connections (pool, aiohttp's connector), time and faults (client).
aiohttp's session is left out: it makes a request, a response, timers and a writing task for every exchange. What that saves is
in docs/dependencies.md; what it needs of aiohttp is in tests/adapters/test_net_canary.py.
"""

import asyncio
import re
from collections.abc import Mapping

import aiohttp
import msgspec
from aiohttp.connector import Connection
from yarl import URL

from palyra.adapters.net.pool import Pool
from palyra.adapters.net.response import HttpResponse

WHOLE_BYTES_MAX = 1024 * 1024  # A larger body is written in pieces, so that it holds nobody up.
PIECE_BYTES = 256 * 1024

_SCHEMES = frozenset({"http", "https"})
_BODILESS_METHODS = frozenset({"GET", "HEAD"})
_OURS = frozenset({"content-length", "transfer-encoding"})  # How long a body is, is said here and nowhere else.
_NO_LINE = re.compile(r"[\r\n\0]")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Request(msgspec.Struct, frozen=True):
    """What goes over the wire."""

    method: str
    head: bytes
    body: bytes

    def __repr__(self) -> str:
        return f"Request({self.method}, {len(self.body)} bytes)"


class RequestTarget:
    """One URL to send to: how its connections are found, and the headers a request has unless it says otherwise."""

    def __init__(self, url: str) -> None:
        """Raises aiohttp.InvalidURL."""
        try:
            parsed = URL(url)
        except ValueError as cause:
            raise aiohttp.InvalidURL(url) from cause
        if parsed.scheme not in _SCHEMES:
            raise aiohttp.InvalidURL(url)
        self.request = aiohttp.ClientRequest("GET", parsed)
        self._target = self.request.url.raw_path_qs
        self._defaults = [(name.lower(), f"{name}: {value}") for name, value in self.request.headers.items()]

    def head(self, method: str, headers: Mapping[str, str], length: int) -> bytes:
        """The request up to its body. Raises ValueError for what would not stay in its line."""
        if not _TOKEN.fullmatch(method):
            raise ValueError("no method of HTTP")
        said = {name.lower() for name in headers}
        if said & _OURS:
            raise ValueError("no header for a caller to say")
        lines = [f"{method} {self._target} HTTP/1.1", *(line for name, line in self._defaults if name not in said)]
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name) or _NO_LINE.search(value):
                raise ValueError("no header of HTTP")
            lines.append(f"{name}: {value}")
        if length or method not in _BODILESS_METHODS:
            lines.append(f"Content-Length: {length}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def exchange(pool: Pool, connection: Connection, request: Request) -> HttpResponse:
    """Sends a request and waits for the head of its answer; the connection is this exchange's from now on.

    Raises OSError, or HttpParserError where what answers does not speak HTTP.
    """
    transport = connection.transport
    if transport is None:
        connection.close()
        raise ConnectionResetError("closed before it was used")
    early = _said_already(connection)
    answer = HttpResponse(pool, connection, transport, is_bodiless=request.method == "HEAD")
    is_answered = False
    try:
        _write(answer, transport, request)
        if early:
            answer.data_received(early)
        await answer.head
        is_answered = True
    finally:
        if not is_answered:
            answer.close()
    return answer


def _said_already(connection: Connection) -> bytes:
    """What a server said before it was asked: that it is busy, as a rule. Its connection is not used again."""
    protocol = connection.protocol
    if protocol is None or not protocol.should_close:
        return b""
    kept = _Kept()
    protocol.set_parser(kept, None)
    return kept.data


class _Kept:
    """In the place of a parser: aiohttp hands it what came before there was one."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """There is nothing to finish."""


def _write(answer: HttpResponse, transport: asyncio.Transport, request: Request) -> None:
    if len(request.body) > WHOLE_BYTES_MAX:
        transport.write(request.head)
        answer.writing = asyncio.create_task(_write_pieces(answer, transport, memoryview(request.body)))
    else:
        transport.write(request.head + request.body)


async def _write_pieces(answer: HttpResponse, transport: asyncio.Transport, body: memoryview) -> None:
    for start in range(0, len(body), PIECE_BYTES):
        await answer.has_room()
        if transport.is_closing():
            return  # Whoever waits for the answer hears of it.
        transport.write(body[start : start + PIECE_BYTES])
        await asyncio.sleep(0)  # Others come first now.
