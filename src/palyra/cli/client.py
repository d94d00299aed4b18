"""A client of the daemon's HTTP API.

Owns: calls, streams that reconnect, and turning error answers into our errors.
Does not own: what is asked (commands), or which daemon it is (target).
Invariants: no redirect is followed, so the token goes only to the address that was chosen. Every wait has a limit.
A broken stream continues after its last event, so each event is given exactly once.
"""

import asyncio
import io
import random
import ssl
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from palyra.cli.sse import FrameReader, SseFrame
from palyra.cli.target import DaemonTarget
from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError, Unauthorized, Unavailable
from palyra.core.events.base import JsonObject

CALL_TIMEOUT_S = 60.0  # The daemon's own limit for a request.
CONNECT_TIMEOUT_S = 5.0
SILENCE_TIMEOUT_S = 45.0  # Three missed heartbeats.
RETRIES_MAX = 40  # More than a minute with the pauses below: a daemon restarts in less.
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 2.0
# A stream keeps its connection, and a daemon gives one token 512 streams. So an answer to a question always finds room.
CONNECTIONS_MAX = 640
STARTS_MAX = 3  # A second request with the same key returns the same run.
BODY_BYTES_MAX = 256 * 1024 * 1024  # A page of 500 of the largest events is smaller.
API = "/api/v1"

_ERRORS: dict[int, type[PalyraError]] = {401: Unauthorized, 403: Unauthorized, 404: NotFound, 409: Conflict}
OnChange = Callable[[PalyraError | None], None]  # Called with the error of a broken stream, and None once connected.


class Client:
    def __init__(self, target: DaemonTarget) -> None:
        self._target = target
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._target.token}"} if self._target.token else {}
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        connector = aiohttp.TCPConnector(ssl=_trust(self._target.ca_file), limit=CONNECTIONS_MAX)
        self._session = aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, /, **query: str | int) -> JsonObject:
        return await self._call("GET", path, params=query)

    async def post(self, path: str, body: JsonObject | None = None, timeout_s: float = CALL_TIMEOUT_S) -> JsonObject:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        return await self._call("POST", path, json=body or {}, timeout=timeout)

    async def patch(self, path: str, body: JsonObject) -> JsonObject:
        return await self._call("PATCH", path, json=body)

    async def delete(self, path: str) -> JsonObject:
        return await self._call("DELETE", path)

    async def upload(self, body: bytes, media_type: str) -> JsonObject:
        return await self._call("POST", "/artifacts", data=io.BytesIO(body), headers={"Content-Type": media_type})

    async def metrics(self) -> str:
        """The daemon's metrics, as text."""
        return (await self._read_answer("GET", f"{self._target.url}/metrics")).decode("utf-8", "replace")

    @property
    def address(self) -> str:
        return self._target.url

    async def items(self, path: str, limit: int, /, **query: str | int) -> list[JsonObject]:
        """Reads a list page by page, up to `limit` items."""
        found: list[JsonObject] = []
        after: object = None
        while len(found) < limit:
            cursor = {"after": after} if isinstance(after, str | int) else {}
            page = await self.get(path, limit=min(limit - len(found), 500), **query, **cursor)
            items = page.get("items", page.get("events"))
            found += items if isinstance(items, list) else []
            after = page.get("next_after")
            if after is None or not items:
                break
        return found

    async def start_run(self, body: JsonObject) -> JsonObject:
        """Starts a run. A request without an answer is repeated; the idempotency key in the body makes that safe."""
        for _ in range(STARTS_MAX - 1):
            try:
                return await self.post("/runs", body)
            except Unavailable:
                await asyncio.sleep(_pause_s(2))
        return await self.post("/runs", body)

    async def exchange_rpc(self, path: str, message: JsonObject) -> AsyncIterator[bytes]:
        """Sends one JSON-RPC message to a path beside the API; yields each message of the answer, as its bytes."""
        headers = {"Accept": "application/json, text/event-stream"}
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S)
        url = f"{self._target.url}{path}"
        posting = self._open.post(url, json=message, headers=headers, timeout=timeout, allow_redirects=False)
        try:
            async with posting as response:
                if response.status not in (200, 202):
                    raise _error_of(response.status, await _read(response))
                async for part in _messages(response):
                    yield part
        except (aiohttp.ClientError, TimeoutError, ValueError) as cause:
            raise self._unreachable(cause) from cause

    async def follow(self, path: str, after: int | None, on_change: OnChange) -> AsyncIterator[SseFrame]:
        """Yields frames without end, and reconnects after a break. Raises if the daemon stays unreachable."""
        cursor, failures_count = after, 0
        while True:
            failure: PalyraError = Unavailable("stream_ended", f"{self._target.url} ended the stream")
            try:
                async for frame in self._stream(path, cursor, on_change):
                    failures_count = 0
                    cursor = cursor if frame.id is None else frame.id
                    yield frame
            except Unavailable as error:
                failure = error
            failures_count += 1
            if failures_count > RETRIES_MAX:
                raise failure
            on_change(failure)
            await asyncio.sleep(_pause_s(failures_count))

    async def _stream(self, path: str, cursor: int | None, on_change: OnChange) -> AsyncIterator[SseFrame]:
        """Yields the frames of one connection, without those at or before the cursor."""
        reader = FrameReader()
        async for arrived in self._chunks(path, cursor, on_change):
            for frame in reader.feed(arrived):
                if frame.id is None or cursor is None or frame.id > cursor:
                    yield frame

    async def _chunks(self, path: str, cursor: int | None, on_change: OnChange) -> AsyncIterator[bytes]:
        headers = {"Accept": "text/event-stream"} | ({} if cursor is None else {"Last-Event-ID": str(cursor)})
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S)
        opening = self._open.get(self._url(path), headers=headers, timeout=timeout, allow_redirects=False)
        try:
            async with opening as response:
                if response.status != 200:
                    raise _error_of(response.status, await _read(response))
                on_change(None)
                async for arrived in response.content.iter_any():
                    yield arrived
        except (aiohttp.ClientError, TimeoutError) as cause:
            raise self._unreachable(cause) from cause

    async def _call(self, method: str, path: str, **options: Any) -> JsonObject:
        body = await self._read_answer(method, self._url(path), **options)
        try:
            return msgspec.json.decode(body, type=JsonObject) if body else {}
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise Unavailable(
                "answer_garbled", f"{self._target.url} gave an answer that is not JSON; check --url"
            ) from cause

    async def _read_answer(self, method: str, url: str, **options: Any) -> bytes:
        try:
            async with self._open.request(method, url, allow_redirects=False, **options) as response:
                body = await _read(response)
                if not 200 <= response.status < 300:
                    raise _error_of(response.status, body)
        except (aiohttp.ClientError, TimeoutError) as cause:
            raise self._unreachable(cause) from cause
        return body

    @property
    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "a client is used within `async with`"
        return self._session

    def _url(self, path: str) -> str:
        return f"{self._target.url}{API}{path}"

    def _unreachable(self, cause: Exception) -> Unavailable:
        if isinstance(cause, TimeoutError):
            return Unavailable("daemon_silent", f"the daemon at {self._target.url} does not answer; try again")
        if isinstance(cause, aiohttp.ClientConnectorCertificateError):
            return Unavailable(
                "certificate_refused",
                f"{self._target.url} has a certificate that is not trusted; check --url, or trust it on this machine",
            )
        return Unavailable(
            "daemon_unreachable", f"no daemon answers at {self._target.url}; start it with palyra serve, or check --url"
        )


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for arrived in response.content.iter_any():
        body += arrived
        if len(body) > BODY_BYTES_MAX:
            raise Unavailable("answer_too_large", f"the daemon answered with more than {BODY_BYTES_MAX} bytes")
    return bytes(body)


async def _messages(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The messages of an answer, which is one body or a stream of events."""
    if response.content_type == "text/event-stream":
        async for line in response.content:
            if line.startswith(b"data: "):
                yield line[6:].rstrip()
    elif body := await _read(response):
        yield body


class _ErrorBody(msgspec.Struct):
    code: str
    message: str


class _ErrorAnswer(msgspec.Struct):
    error: _ErrorBody


def _error_of(status: int, body: bytes) -> PalyraError:
    kind = _ERRORS.get(status, Invalid if 400 <= status < 500 and status != 429 else Unavailable)
    try:
        error = msgspec.json.decode(body, type=_ErrorAnswer).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return kind(f"http_{status}", f"the address answered with status {status}, and not as Palyra does; check --url")
    return kind(error.code, error.message)


def _pause_s(failures_count: int) -> float:
    """Returns a pause that grows with each failure. It is random, so that clients do not all return at once."""
    longest: float = min(PAUSE_MAX_S, PAUSE_FIRST_S * 2 ** min(failures_count - 1, 10))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy


def _trust(ca_file: str | None) -> ssl.SSLContext | bool:
    """Trusts the system's authorities, and the daemon's own certificate if the configuration names one."""
    if ca_file is None:
        return True
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # It need not be known who signed it.
    try:
        context.load_verify_locations(ca_file)
    except OSError as cause:
        raise Unavailable("certificate_unreadable", f"{ca_file} cannot be read as a certificate") from cause
    return context
