"""One HTTP exchange on a pooled connection. Owns: a request's bytes, an answer's head, and giving the connection back.

Not: connecting and parsing (aiohttp's connector and protocol), nor time and whose fault a failure is (client). aiohttp's
session makes a request, a response, timers and a task that writes for every exchange; after an idle moment, when no cache
holds that code any more, this costs more than the exchange itself, and whoever waits for a first word waits for it.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage, StreamWriter
from aiohttp.streams import StreamReader
from yarl import URL

READ_BYTES = 256 * 1024
WHOLE_BYTES_MAX = 1024 * 1024  # A larger body is written in pieces, so that it holds nobody up.
PIECE_BYTES = 256 * 1024

_SCHEMES = frozenset({"http", "https"})
_BODILESS_METHODS = frozenset({"GET", "HEAD"})
_NO_LINE = re.compile(r"[\r\n\0]")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SWITCHING_PROTOCOLS = 101


class Address:
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
        lines = [f"{method} {self._target} HTTP/1.1"]
        said = {name.lower() for name in headers}
        lines += [line for name, line in self._defaults if name not in said]
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name) or _NO_LINE.search(value):
                raise ValueError("no header of HTTP")
            lines.append(f"{name}: {value}")
        if length or method not in _BODILESS_METHODS:
            lines.append(f"Content-Length: {length}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Answer:
    """An answer whose head is here. Its connection goes back as soon as the body ends, and is closed if it is left before."""

    def __init__(
        self,
        connection: Connection,
        writing: asyncio.Task[None] | None,
        message: RawResponseMessage,
        content: StreamReader,
    ) -> None:
        self.status = message.code
        self.reason = message.reason
        self.headers: Mapping[str, str] = message.headers
        self.content = content
        self._connection: Connection | None = connection
        self._writing = writing
        content.on_eof(self._end)

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower() or "application/octet-stream"

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _drop(connection, self._writing)

    def _end(self) -> None:
        """A server that answered before it had read everything would take the rest for the next request."""
        connection = self._connection
        transport = connection.transport if connection is not None else None
        is_written = self._writing is None or self._writing.done()
        if connection is None or transport is None or not is_written or transport.get_write_buffer_size():
            self.close()
            return
        self._connection = None
        connection.release()


async def connect(connector: aiohttp.BaseConnector, address: Address, within_s: float) -> Connection:
    """A connection on which nothing has been said. Raises TimeoutError."""
    timeout = aiohttp.ClientTimeout(total=None, connect=within_s)
    connection = await connector.connect(address.request, [], timeout)
    if connection.protocol is not None and connection.protocol.should_close:
        # While it was idle the server said something, its farewell as a rule; it would be read as our answer.
        connection.close()
        connection = await connector.connect(address.request, [], timeout)
    return connection


async def exchange(connection: Connection, method: str, head: bytes, body: bytes) -> Answer:
    """Sends a request and waits for the head of its answer; the connection is this exchange's from now on.

    Raises aiohttp.ClientError, OSError, or HttpProcessingError where what answers does not speak HTTP.
    """
    protocol = connection.protocol
    if protocol is None or protocol.transport is None:
        connection.close()
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(
        skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=False, read_bufsize=READ_BYTES
    )
    writing = _write(protocol, protocol.transport, head, body)
    try:
        message, content = await _read_head(protocol)
    except BaseException:
        _drop(connection, writing)
        raise
    return Answer(connection, writing, message, content)


def _drop(connection: Connection, writing: asyncio.Task[None] | None) -> None:
    if writing is not None:
        writing.cancel()
    connection.close()


def _write(
    protocol: ResponseHandler, transport: asyncio.Transport, head: bytes, body: bytes
) -> asyncio.Task[None] | None:
    if len(body) > WHOLE_BYTES_MAX:
        transport.write(head)
        return asyncio.create_task(_write_pieces(protocol, body))
    transport.write(head + body if body else head)
    return None


async def _write_pieces(protocol: ResponseHandler, body: bytes) -> None:
    writer = StreamWriter(protocol, asyncio.get_running_loop())
    view = memoryview(body)
    with suppress(aiohttp.ClientError, OSError):  # Whoever waits for the answer hears of it.
        for start in range(0, len(body), PIECE_BYTES):
            await writer.write(view[start : start + PIECE_BYTES])


async def _read_head(protocol: ResponseHandler) -> tuple[RawResponseMessage, StreamReader]:
    while True:
        message, content = await protocol.read()
        if not 100 <= message.code < 200 or message.code == _SWITCHING_PROTOCOLS:
            return message, content
