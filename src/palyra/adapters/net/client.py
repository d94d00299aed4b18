"""The outgoing HTTP client. Owns: one pool of connections, timeouts, size limits, and whose fault a failure is.

Not: retries, or what is sent. Addresses are the operator's own, so private ones are allowed, redirects are not followed
and no proxy of the environment is used. Headers may carry a key: they appear in no message and in no repr.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial

import aiohttp
import msgspec
from aiohttp.connector import Connection
from httptools import HttpParserError

from palyra.adapters.net.pool import Pool
from palyra.adapters.net.preconnect import Preconnect
from palyra.adapters.net.response import HttpResponse
from palyra.adapters.net.wire import Request, RequestTarget, exchange
from palyra.core.errors import Unavailable

BODY_BYTES_MAX = 64 * 1024 * 1024  # A whole answer; the longest of a model are a few MB of events.
ERROR_BYTES_MAX = 64 * 1024  # What is read of a refusal; a sentence of it is shown.
KEEPALIVE_S = 90.0  # Long enough that the next run finds a connection; a server that closes earlier is noticed.
SPARE_CONNECT_S = 10.0
ADDRESSES_MAX = 64  # More than the endpoints of any configuration; beyond them they are looked at anew.

_REPEATABLE = frozenset({"GET", "HEAD"})
# ValueError: a header that cannot be sent. HttpParserError: what comes is no HTTP, or not any more.
_FAULTS = (aiohttp.ClientError, OSError, ValueError, HttpParserError)


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """`first_byte_s` runs from the moment the connection may be used to the first sign of an answer."""

    connect_s: float = 10.0
    first_byte_s: float = 120.0
    idle_s: float = 60.0


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Its headers are not shown. `answer_within_s` counts connecting too; without it both have their time."""

    url: str
    headers: Mapping[str, str]
    body: bytes = b""
    timeouts: Timeouts = Timeouts()
    answer_within_s: float | None = None

    def __repr__(self) -> str:
        return f"Outgoing({self.url!r}, {len(self.body)} bytes)"


class Reply:
    """An answer whose body has not been read yet."""

    def __init__(self, answer: HttpResponse, body_bytes_max: int) -> None:
        self._answer = answer
        self._limit = body_bytes_max
        self._size = 0
        self._loop = asyncio.get_running_loop()
        self._due_s: float | None = None  # When the read that is under way has waited long enough.
        self._alarm: asyncio.Handle | None = None
        self._alarm_at_s = 0.0  # Kept here: an alarm for this very moment does not know it in every loop.

    @property
    def status(self) -> int:
        return self._answer.heard.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._answer.heard.headers

    @property
    def reason(self) -> str:
        return self._answer.heard.reason.decode("utf-8", "replace")

    @property
    def content_type(self) -> str:
        return self._answer.heard.content_type

    async def read_some(self, timeout_s: float) -> bytes:
        """Whatever has arrived; b"" at the end. Raises Unavailable `timed_out`, `closed` or `body_too_large`."""
        self._expect_by(self._loop.time() + timeout_s)
        try:
            chunk = await self._answer.read()
        except TimeoutError as cause:
            raise Unavailable("timed_out", f"nothing came for {timeout_s:g} s") from cause
        except _FAULTS as cause:
            raise Unavailable("closed", "the connection broke off in the middle of the answer") from cause
        finally:
            self._due_s = None
        self._size += len(chunk)
        if self._size > self._limit:
            raise Unavailable("body_too_large", f"the answer is larger than {self._limit} bytes")
        return chunk

    async def drain(self, timeout_s: float) -> None:
        """Wait a moment for the end of a body whose last word has been read: its connection can then be used again."""
        try:
            await self.read_some(timeout_s)
        except Unavailable:
            return

    async def read_start(self, timeout_s: float, bytes_max: int = ERROR_BYTES_MAX) -> bytes:
        """The first bytes of the body, at most so many, in at most so much time; what came before a fault is kept."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(timeout_s):
                while self._size < bytes_max and (chunk := await self.read_some(timeout_s)):
                    pieces.append(chunk)
        except (Unavailable, TimeoutError):
            pass
        return b"".join(pieces)[:bytes_max]

    def close(self) -> None:
        """Ends the exchange, whether or not all was read."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._answer.close()

    def _expect_by(self, due_s: float) -> None:
        """One alarm for many reads: a timeout around each would cost a token more than reading it."""
        self._due_s = due_s
        if self._alarm is None or due_s < self._alarm_at_s:
            self._set_alarm(due_s)

    def _set_alarm(self, due_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at_s = due_s
        self._alarm = self._loop.call_at(due_s, self._look)

    def _look(self) -> None:
        self._alarm = None
        if self._due_s is None:
            return
        if self._loop.time() < self._due_s:
            self._set_alarm(self._due_s)
        else:
            self._answer.expire()


class HttpClient:
    """Opened by its first request, in the loop of that request; closed once, by whoever made it."""

    def __init__(
        self, body_bytes_max: int = BODY_BYTES_MAX, make_connector: Callable[[], aiohttp.BaseConnector] | None = None
    ) -> None:
        self._body_bytes_max = body_bytes_max
        self._make_connector = make_connector or _plain_connector
        self._pool: Pool | None = None
        self._addresses: dict[str, RequestTarget] = {}
        self._spares = Preconnect()

    def post(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Reply]:
        """The reply once its headers are here. Leaving the block ends the exchange, whether or not all was read."""
        return self._exchange("POST", outgoing)

    def get(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Reply]:
        return self._exchange("GET", outgoing)

    def request(self, method: str, outgoing: Outgoing) -> AbstractAsyncContextManager[Reply]:
        return self._exchange(method, outgoing)

    async def connect(self, url: str, within_s: float) -> None:
        """Connects, and sends nothing. Raises Unavailable as a request would."""
        with _told(within_s):
            address = self._address(url)
            pool = self._opened()
            pool.give_back(await _taken(pool, address, within_s))

    async def close(self) -> None:
        await self._spares.close()
        pool, self._pool = self._pool, None
        self._addresses.clear()
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def _exchange(self, method: str, outgoing: Outgoing) -> AsyncIterator[Reply]:
        with self._spares.out(outgoing.url):
            answer = await self._send(method, outgoing)
            self._spares.answered(outgoing.url, partial(self._open_spare, outgoing.url))
            reply = Reply(answer, self._body_bytes_max)
            try:
                yield reply
            finally:
                reply.close()

    async def _send(self, method: str, outgoing: Outgoing) -> HttpResponse:
        limits = outgoing.timeouts
        within_s = outgoing.answer_within_s
        with _told(limits.first_byte_s):
            async with asyncio.timeout(limits.connect_s + limits.first_byte_s if within_s is None else within_s):
                address = self._address(outgoing.url)
                head = address.head(method, outgoing.headers, len(outgoing.body))
                return await self._ask(address, Request(method, head, outgoing.body), limits.connect_s)

    async def _ask(self, address: RequestTarget, request: Request, connect_s: float) -> HttpResponse:
        """What changes nothing is asked again where only an idle connection was found to be gone."""
        pool = self._opened()
        while True:
            connection = await _taken(pool, address, connect_s)
            is_used = pool.is_used(connection)
            try:
                return await exchange(pool, connection, request)
            except ConnectionError:
                if not is_used or request.method not in _REPEATABLE:
                    raise

    def _opened(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self._make_connector())
        return self._pool

    async def _open_spare(self, url: str) -> None:
        """Takes an idle connection to where this went, or makes one, and gives it back unused."""
        if self._pool is None:
            return  # Closed in the meantime; a spare opens nothing anew.
        pool = self._pool
        try:
            connection = await pool.take(self._address(url).request, SPARE_CONNECT_S)
        except (*_FAULTS, TimeoutError):
            return  # The next request finds out for itself, and tells its own story.
        pool.give_back(connection)

    def _address(self, url: str) -> RequestTarget:
        address = self._addresses.get(url)
        if address is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            address = self._addresses[url] = RequestTarget(url)
        return address


@contextmanager
def _told(within_s: float) -> Iterator[None]:
    """Turns what a connection or an exchange fails with into Unavailable."""
    try:
        yield
    except TimeoutError as cause:
        raise Unavailable("timed_out", f"no answer within {within_s:g} s") from cause
    except aiohttp.InvalidURL as cause:
        raise Unavailable("address_invalid", "the address is none that can be called") from cause
    except aiohttp.ClientConnectorError as cause:
        raise Unavailable("connect_failed", _reason(cause)) from cause
    except HttpParserError as cause:
        raise Unavailable("not_http", "what answered does not speak HTTP") from cause
    except _FAULTS as cause:
        raise Unavailable("closed", "the connection was closed before an answer came") from cause


async def _taken(pool: Pool, address: RequestTarget, within_s: float) -> Connection:
    try:
        return await pool.take(address.request, within_s)
    except TimeoutError as cause:
        raise Unavailable("connect_timed_out", f"no connection within {within_s:g} s") from cause


def _plain_connector() -> aiohttp.BaseConnector:
    """No limit of its own: runs and their parallel calls are bounded above."""
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)


def _reason(cause: aiohttp.ClientConnectorError) -> str:
    """Names the host and the port, and nothing else of an address: its path may hold a token."""
    return f"no connection to {cause.host}:{cause.port}: {_fault(cause)}"


def _fault(cause: aiohttp.ClientConnectorError) -> str:
    if isinstance(cause, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return "its certificate is not accepted"
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    return cause.os_error.strerror or "the connection was refused"
