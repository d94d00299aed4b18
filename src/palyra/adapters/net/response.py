"""An answer as it comes. Owns: hearing one response on a pooled connection, holding the server up, giving the connection back.

While an exchange is out its connection speaks to this instead of to aiohttp's protocol: a piece of a body is then on its way
to whoever waits for it in three steps instead of twenty, and every token of every model comes that way. Invariants: no more
than about READ_BYTES wait unread before the server is held up; a connection goes back only after a whole response and nothing
behind it, and is closed in every other case.
"""

import asyncio

from aiohttp.connector import Connection
from httptools import HttpParserError

from palyra.adapters.net.pool import Pool
from palyra.adapters.net.response_parser import Parsing

READ_BYTES = 256 * 1024


class HttpResponse(asyncio.Protocol):
    """`head` is done once status and headers are here, or cannot come any more."""

    def __init__(self, pool: Pool, connection: Connection, transport: asyncio.Transport, *, is_bodiless: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self.head: asyncio.Future[None] = self._loop.create_future()
        self.writing: asyncio.Task[None] | None = None
        self.heard = Parsing(is_bodiless=is_bodiless)
        self._connection: Connection | None = connection
        self._sleeper = connection.protocol  # Has the connection while nobody uses it.
        self._transport = transport
        self._fault: Exception | None = None
        self._is_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        pool.out.add(self)
        transport.set_protocol(self)

    async def read(self) -> bytes:
        """What has come since; b"" at the end. What came before a fault is given before it is raised."""
        parsing = self.heard
        while not parsing.pieces:
            if self._fault is not None:
                raise self._fault
            if parsing.is_whole:
                return b""
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        chunk = parsing.take()
        if self._is_paused:
            self._hear_on()
        return chunk

    def fail(self, fault: Exception) -> None:
        """Nothing more is expected."""
        if self.heard.is_whole or self._fault is not None:
            return
        self._fault = fault
        if not self.head.done():
            self.head.set_exception(fault)
            self.head.exception()  # Whoever waited may have gone.
        self._wake()

    def expire(self) -> None:
        """The time of whoever reads is over. What has come in the meantime is taken first."""
        if not self.heard.pieces:
            self.fail(TimeoutError())

    def close(self) -> None:
        """Ends the exchange. What is not whole by now takes its connection with it."""
        self.fail(ConnectionResetError("left before the answer was whole"))
        self._give_back(may_stay=False)

    async def has_room(self) -> None:
        """Waits until the connection takes more of a body."""
        if self._room is not None:
            await asyncio.shield(self._room)

    def data_received(self, data: bytes) -> None:
        parsing = self.heard
        try:
            parsing.feed(data)
        except HttpParserError as cause:
            self.fail(cause)
            return
        if parsing.has_head and not self.head.done():
            self.head.set_result(None)
        self._wake()
        if parsing.is_whole:
            self._give_back(may_stay=parsing.may_stay)
        elif parsing.unread_bytes > READ_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, cause: Exception | None) -> None:
        if cause is None and self._fault is None and self.heard.ends_with_connection:
            self.heard.is_whole = True
            self._wake()
        self.fail(cause or ConnectionResetError("closed before the answer was whole"))
        self.resume_writing()
        if self._sleeper is not None:
            self._sleeper.connection_lost(cause)
        self._give_back(may_stay=False)

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _hear_on(self) -> None:
        self._is_paused = False
        if self._connection is not None:
            self._transport.resume_reading()

    def _give_back(self, *, may_stay: bool) -> None:
        """A server that answered before it had read everything would take the rest for the next request."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        transport = self._transport
        is_written = self.writing is None or self.writing.done()
        if self.writing is not None:
            self.writing.cancel()
        self._pool.out.discard(self)
        is_open = not transport.is_closing()
        if self._sleeper is not None and is_open:
            transport.set_protocol(self._sleeper)
        if is_open and may_stay and is_written and not transport.get_write_buffer_size():
            if self._is_paused:
                transport.resume_reading()
            self._pool.give_back(connection)
            return
        if is_open and transport.get_write_buffer_size():
            transport.abort()  # Closing would wait until a server that does not read has read it.
        connection.close()
