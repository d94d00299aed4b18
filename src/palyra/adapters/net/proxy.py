"""The guarded proxy. Owns: a way out of a sandbox through which every target passes the guard. Not: who is given it.

It listens on a socket of the file system, or on a port of loopback for what cannot use one: there every request needs the
credential that was drawn at the start, since any program of this machine can reach a port. `CONNECT host:443` opens a
tunnel, `GET http://host/` is passed on; whatever the guard refuses gets 403 with the reason. One connection carries one
request or one tunnel, to one judged target. Ports other than 443 are tunnelled only to what `[http] allow` opens: a tunnel
carries anything, and http(s) is what may leave. `is_own` narrows that further: what the operator opened is then reached
only for pages of its own.
"""

import asyncio
import base64
import hmac
import os
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import structlog

from palyra.adapters.net.guard import Guard
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.hosts import PORTS, HostPort

log = structlog.get_logger()

CONNECTIONS_MAX = 64
HEAD_BYTES_MAX = 64 * 1024
HEAD_S = 15.0
IDLE_S = 60.0
END_S = 1.0
CHUNK_BYTES = 64 * 1024
_SOCKET_MODE = 0o600
_LOOPBACK = "127.0.0.1"
_USER = "palyra"

_REQUEST_LINE = re.compile(rb"([A-Z]{1,20}) ([\x21-\x7e]{1,8192}) HTTP/1\.[01]")
_HEADER = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):([^\x00\r\n]*)")
# Of this connection alone; they say nothing to the other side, and Host is written anew from what was judged.
_NOT_PASSED = frozenset({b"host", b"connection", b"keep-alive", b"upgrade"})
_CREDENTIAL = b"proxy-authorization:"
_ORIGIN = b"origin:"
_HEAD_END = b"\r\n\r\n"
_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    502: "Bad Gateway",
    503: "Service Unavailable",
}


class ProxyDoor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a proxy on a port is, and what opens it. The password is not shown."""

    port: int
    username: str
    password: str

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self.port}"

    def __repr__(self) -> str:
        return f"ProxyDoor({self.url!r})"


class GuardedProxy:
    """Started once, with a path or on a port; closing ends every connection and takes the socket away."""

    def __init__(
        self,
        guard: Guard,
        connections_max: int = CONNECTIONS_MAX,
        idle_s: float = IDLE_S,
        is_own: Callable[[HostPort], bool] | None = None,
    ) -> None:
        self._guard = guard
        self._is_own = is_own
        self._connections_max = connections_max
        self._idle_s = idle_s
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._credential: bytes | None = None  # What Proxy-Authorization must say; none is asked for on a path.
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, path: Path) -> None:
        """Raises Unavailable `proxy_unavailable` where no socket can be made."""
        try:
            server = await asyncio.start_unix_server(self._accept, str(path), limit=HEAD_BYTES_MAX, start_serving=False)
            os.chmod(path, _SOCKET_MODE)
            await server.start_serving()
        except (OSError, ValueError) as cause:
            raise Unavailable("proxy_unavailable", f"no socket can be made for the proxy: {cause}") from cause
        self._server, self._path = server, path

    async def start_on_port(self) -> ProxyDoor:
        """On a free port of loopback, for whoever has the credential. Raises Unavailable `proxy_unavailable`."""
        password = secrets.token_urlsafe(32)
        self._credential = b"Basic " + base64.b64encode(f"{_USER}:{password}".encode())
        try:
            self._server = await asyncio.start_server(self._accept, _LOOPBACK, 0, limit=HEAD_BYTES_MAX)
        except OSError as cause:
            raise Unavailable("proxy_unavailable", f"no port can be had for the proxy: {cause}") from cause
        port = int(self._server.sockets[0].getsockname()[1])
        return ProxyDoor(port=port, username=_USER, password=password)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._tasks) > self._connections_max:
                await _refuse(writer, 503, f"at most {self._connections_max} connections at once; try again later")
            else:
                await self._pass_on(reader, writer)
        except (OSError, EOFError):
            log.debug("proxy_connection_lost")
        finally:
            await _end(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            endpoint, first = self._read_head(await self._receive_head(reader))
            to_reader, to_writer = await self._guard.open(endpoint)
        except PalyraError as fault:
            return await _refuse(writer, _status_of(fault), fault.message)
        except asyncio.LimitOverrunError:
            return await _refuse(writer, 400, f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
        except TimeoutError:
            return await _refuse(writer, 502, "no connection was made in time")
        try:
            if first:
                to_writer.write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._join((reader, to_writer), (to_reader, writer))
        finally:
            await _end(to_writer)

    async def _receive_head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(min(HEAD_S, self._idle_s)):
                return await reader.readuntil(_HEAD_END)
        except TimeoutError as cause:
            raise Unavailable("timed_out", "no whole request came in time") from cause

    def _read_head(self, head: bytes) -> tuple[HostPort, bytes]:
        """The judged target, and what to send it first: nothing for a tunnel."""
        line, *lines = head.removesuffix(_HEAD_END).split(b"\r\n")
        request = _REQUEST_LINE.fullmatch(line)
        if request is None:
            raise Unavailable("not_http", "this is a proxy for HTTP: CONNECT host:443, or a whole http:// address")
        self._check_credential(lines)
        method, asked = request[1].decode(), request[2].decode()
        if method == "CONNECT":
            endpoint = self._judge_tunnel(asked)
            self._require_own(endpoint, ())
            return endpoint, b""
        target = self._guard.judge(asked)
        self._require_own(target.endpoint, lines)
        if target.scheme != "http":
            raise Unavailable("not_http", "https goes through a tunnel: send CONNECT host:443")
        passed = [f"{method} {target.path} HTTP/1.1".encode(), f"Host: {target.authority}".encode()]
        passed += [each for each in lines if _is_passed(each)]
        return target.endpoint, b"\r\n".join((*passed, b"Connection: close", b"", b""))

    def _check_credential(self, lines: list[bytes]) -> None:
        if self._credential is None:
            return
        said = [line[len(_CREDENTIAL) :].strip() for line in lines if line.lower().startswith(_CREDENTIAL)]
        if len(said) != 1 or not hmac.compare_digest(said[0], self._credential):
            raise Unavailable("credential_needed", "this proxy is of one program only; it needs its credential")

    def _require_own(self, endpoint: HostPort, lines: Sequence[bytes]) -> None:
        """Refuses a target of `[http] allow` to pages of other sites, frames inside its own pages included."""
        if self._is_own is None or not self._guard.is_opened(endpoint):
            return
        origins = [line[len(_ORIGIN) :].strip() for line in lines if line.lower().startswith(_ORIGIN)]
        if not self._is_own(endpoint) or any(not self._is_of(origin, endpoint) for origin in origins):
            raise Invalid("not_own_site", f"{endpoint} is open to its own pages only; open it with browser.open")

    def _is_of(self, origin: bytes, endpoint: HostPort) -> bool:
        try:
            return self._guard.judge(origin.decode("latin-1")).endpoint == endpoint
        except PalyraError:
            return False

    def _judge_tunnel(self, asked: str) -> HostPort:
        endpoint = self._guard.judge_endpoint(asked)
        if endpoint.port != PORTS["https"] and not self._guard.is_opened(endpoint):
            raise Invalid("port_refused", f"only port 443 is tunnelled; `[http] allow` can open {endpoint}")
        return endpoint

    async def _join(
        self,
        out: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        back: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Both ways until the other side has said all, or nothing moves for too long."""
        try:
            async with asyncio.timeout(self._idle_s) as idle:
                sending = asyncio.create_task(self._pump(*out, idle))
                try:
                    await self._pump(*back, idle)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        except TimeoutError:
            log.debug("proxy_idle", idle_s=self._idle_s)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await reader.read(CHUNK_BYTES):
            idle.reschedule(loop.time() + self._idle_s)
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _is_passed(line: bytes) -> bool:
    """Raises Unavailable for a line that is no header: readers would disagree about what follows it."""
    header = _HEADER.fullmatch(line)
    if header is None:
        raise Unavailable("not_http", "a header of the request is not understood")
    name = header[1].lower()
    return name not in _NOT_PASSED and not name.startswith(b"proxy-")


def _status_of(fault: PalyraError) -> int:
    if isinstance(fault, Invalid):
        return 403
    return {"not_http": 400, "credential_needed": 407, "timed_out": 408}.get(fault.code, 502)


async def _refuse(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    body = f"{reason}\n".encode()
    head = f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    if status == 407:
        head += 'Proxy-Authenticate: Basic realm="palyra"\r\n'
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await writer.drain()
            writer.write_eof()


async def _end(writer: asyncio.StreamWriter) -> None:
    """What was written still goes out, unless nobody takes it."""
    writer.close()
    try:
        async with asyncio.timeout(END_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        log.debug("proxy_connection_aborted")
    finally:
        writer.transport.abort()
