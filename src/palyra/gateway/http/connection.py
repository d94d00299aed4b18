"""The bounds of one connection before there is a request.

Owns: how many connections there are, how long and how large the head of a request may be, and how many requests wait.
Does not own: HTTP itself. uvicorn's parser takes heads of any size and waits for them without end, hence these bounds.
It also reads on after every answer, however many requests wait, so one client could fill the memory without a token.
Invariant: connections on which nothing is under way lock nobody out. At the limit, a new one takes the place of the one
that has waited longest.
"""

import asyncio
from functools import partial
from typing import ClassVar
from weakref import proxy

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from palyra.gateway.http.settings import HEAD_BYTES_MAX, HEAD_TIMEOUT_S
from palyra.gateway.http.sse import ABORT_EXTENSION, WRITE_EXTENSION

_HEAD_BODY = b'{"error":{"code":"head_too_large","message":"the headers are too large","retryable":false}}'
_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_HEAD_BODY), _HEAD_BODY)
)


PIPELINED_MAX = 64  # Requests of one connection that wait for the answer before them. Few clients send even two.


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a limit on connections and on the bytes and seconds that a request's head may take."""

    # Both are said by the class that `bounded` makes.
    connections_max: ClassVar[int]
    waiting: ClassVar[
        dict["BoundedProtocol", None]
    ]  # Connections without a request under way, those that wait longest first.
    head_timeout_s: float = HEAD_TIMEOUT_S

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_bytes = 0
        self._said_bytes = 0
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.connections_max and not self._make_room():
            transport.abort()
            return
        self.waiting[self] = None
        self._head_timer = self.loop.call_later(self.head_timeout_s, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self._stop_timer()
        self.pipeline.clear()  # Nobody waits for these any more.
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head that is not at its end is counted by the read, so one read more than the limit may be held."""
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        self._count_said(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Fields behind a body count, and are dropped: uvicorn would put them among the headers of the request."""
        self._count_said(len(name) + len(value) + 4)
        if self._is_in_head:
            super().on_header(name, value)

    def _count_said(self, size: int) -> None:
        """Counts what a head holds, because a whole head may come in one read."""
        self._said_bytes += size
        if self._said_bytes > HEAD_BYTES_MAX:
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()
            raise ValueError("the head is too large")  # The parser stops here.

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests wait")  # The parser stops here, and uvicorn closes the connection.
        super().on_message_begin()
        self._is_in_head = True
        self._said_bytes = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.abort)
        self.scope["extensions"] = {ABORT_EXTENSION: {"call": self.transport.abort}}

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        self.waiting.pop(self, None)
        self._stop_timer()
        extensions = self.scope["extensions"]
        super().on_headers_complete()
        cycle = self.cycle
        if cycle is not None and extensions is not None:
            # The cycle holds the scope, and is there for as long as anybody answers in it.
            extensions[WRITE_EXTENSION] = {"call": partial(write_now, proxy(cycle))}

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()
        if self.timeout_keep_alive_task is not None:  # uvicorn has no other request of this connection.
            self.waiting[self] = None

    def _make_room(self) -> bool:
        """Closes the connection that has waited longest. False if a request is under way on each of them."""
        longest = next(iter(self.waiting), None)
        if longest is None:
            return False
        del self.waiting[longest]
        longest.transport.abort()
        return True

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def write_now(cycle: RequestResponseCycle, piece: bytes) -> bool:
    """Writes a piece of an answer's body past ASGI, without a turn of the loop. False where the way is not free."""
    is_open = cycle.response_started and not cycle.response_complete and bool(cycle.chunked_encoding)
    if not is_open or cycle.disconnected or cycle.flow.write_paused or cycle.transport.is_closing():
        return False
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    return True


def bounded(most: int) -> type[BoundedProtocol]:
    """The protocol for a server with at most so many connections."""

    class BoundedServer(BoundedProtocol):
        connections_max = most
        waiting: ClassVar = {}

    return BoundedServer
