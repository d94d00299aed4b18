"""The guarded proxy: what passes through it, what it refuses, and that nothing it carries outlives it."""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.net.guard import Guard
from palyra.adapters.net.proxy import HEAD_BYTES_MAX, GuardedProxy
from palyra.core.errors import Unavailable
from tests.support.dns_server import dns_server
from tests.support.sites import LOOPBACK, Site, ok, site
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
TEST_S = WAIT_S
NAME = "site.example.com"


class Scene:
    def __init__(self, path: Path, home: Site, canary: Site) -> None:
        self.path = path
        self.home = home
        self.canary = canary
        self.guard = Guard([(LOOPBACK, home.port)])

    async def send(self, request: bytes) -> bytes:
        """All that comes back until the proxy closes."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer

    async def status(self, request: bytes) -> bytes:
        return (await self.send(request)).split(b" ", 2)[1]


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    async with asyncio.timeout(TEST_S), site() as home, site() as canary:
        home.answers["/"] = home.answers["/a?b"] = ok(b"reached", "Connection: close")
        yield Scene(folder / "proxy.sock", home, canary)
        assert canary.connections_count == 0


@asynccontextmanager
async def proxied(folder: Path) -> AsyncIterator[Scene]:
    async with scene(folder) as s, GuardedProxy(s.guard) as proxy:
        await proxy.start(s.path)
        yield s


async def test_plain_request_is_passed_on_with_the_judged_host(tmp_path: Path) -> None:
    async with proxied(tmp_path) as s:
        head = b"Host: evil.com\r\nProxy-Authorization: secret\r\nProxy-Connection: keep-alive\r\nX-A: b\r\n\r\n"
        answer = await s.send(f"GET {s.home.url}/a?b HTTP/1.1\r\n".encode() + head)
        assert answer.endswith(b"reached")
        sent = s.home.requests[0]
        assert sent.startswith(b"GET /a?b HTTP/1.1\r\nHost: " + s.home.url.removeprefix("http://").encode())
        assert b"X-A: b\r\nConnection: close\r\n\r\n" in sent
        assert b"roxy" not in sent
        assert b"evil" not in sent


async def test_body_of_a_request_is_passed_on(tmp_path: Path) -> None:
    async with proxied(tmp_path) as s:
        request = f"POST {s.home.url}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody".encode()
        assert (await s.send(request)).endswith(b"reached")
        assert s.home.requests[0].endswith(b"body")


async def test_tunnel_carries_bytes_both_ways(tmp_path: Path) -> None:
    async with proxied(tmp_path) as s:
        reader, writer = await asyncio.open_unix_connection(str(s.path))
        writer.write(f"CONNECT {LOOPBACK}:{s.home.port} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"reached")
        writer.close()


@pytest.mark.parametrize(
    "target",
    [
        "CONNECT 127.0.0.1:{}",
        "CONNECT localhost:{}",
        "CONNECT [::1]:{}",
        "CONNECT [::ffff:127.0.0.1]:{}",
        "CONNECT 2130706433:{}",
        "CONNECT 127.1:{}",
        "CONNECT x@127.0.0.1:{}",
        "CONNECT example.com:{}",
        "CONNECT example.com:22",
        "CONNECT example.com",
        "GET http://127.0.0.1:{}/",
        "GET http://localhost:{}/",
        "GET http://[::1]:{}/",
        "GET http://0:{}/",
        "GET http://a@127.0.0.1:{}/",
        "GET ftp://127.0.0.1:{}/",
        "GET /",
    ],
)
async def test_refused_target_gets_403_with_the_reason_and_is_never_reached(tmp_path: Path, target: str) -> None:
    async with proxied(tmp_path) as s:
        answer = await s.send(f"{target.format(s.canary.port)} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert len(answer.partition(b"\r\n\r\n")[2]) > 10


async def test_name_that_leads_to_a_private_address_gets_403(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, dns_server() as names:
        names.zone[NAME] = [["93.184.216.34", LOOPBACK]]
        async with GuardedProxy(Guard(resolve=names.resolve)) as proxy:
            await proxy.start(s.path)
            assert await s.status(f"GET http://{NAME}:{s.canary.port}/ HTTP/1.1\r\n\r\n".encode()) == b"403"
            assert await s.status(f"CONNECT {NAME}:443 HTTP/1.1\r\n\r\n".encode()) == b"403"
            assert await s.status(b"CONNECT unknown.example.com:443 HTTP/1.1\r\n\r\n") == b"502"


@pytest.mark.parametrize(
    "request_head",
    [
        b"nonsense\r\n\r\n",
        b"GET http://example.com/ HTTP/2\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nno header\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\nA: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n",
    ],
)
async def test_head_that_readers_could_disagree_about_gets_400(tmp_path: Path, request_head: bytes) -> None:
    async with proxied(tmp_path) as s:
        assert await s.status(request_head) == b"400"


async def test_second_request_on_a_connection_reaches_no_other_target(tmp_path: Path) -> None:
    async with proxied(tmp_path) as s:
        first = f"GET {s.home.url}/ HTTP/1.1\r\n\r\n"
        await s.send(f"{first}GET {s.canary.url}/ HTTP/1.1\r\n\r\n".encode())


async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, GuardedProxy(s.guard, connections_max=1) as proxy:
        await proxy.start(s.path)
        reader, writer = await asyncio.open_unix_connection(str(s.path))
        writer.write(f"CONNECT {LOOPBACK}:{s.home.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        assert await s.status(b"") == b"503"
        writer.close()


async def test_connection_on_which_nothing_moves_ends_and_makes_room(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, GuardedProxy(s.guard, connections_max=1, idle_s=0.2) as proxy:
        await proxy.start(s.path)
        tunnel = f"CONNECT {LOOPBACK}:{s.home.port} HTTP/1.1\r\n\r\n".encode()

        # On a busy machine the same time may be too short for the rest too.
        async def is_made_and_ended() -> bool:
            return await s.send(tunnel) == b"HTTP/1.1 200 Connection established\r\n\r\n"

        async def is_reached() -> bool:
            return (await s.send(f"GET {s.home.url}/ HTTP/1.1\r\n\r\n".encode())).endswith(b"reached")

        await until(is_made_and_ended)
        await until(lambda: s.home.open_count == 0)
        await until(is_reached)


async def test_request_that_never_becomes_whole_ends(tmp_path: Path) -> None:
    async with scene(tmp_path) as s, GuardedProxy(s.guard, idle_s=0.1) as proxy:
        await proxy.start(s.path)
        assert await s.status(b"GET http://example.com/ HTTP/1.1\r\n") == b"408"


async def test_closing_ends_tunnels_and_takes_the_socket_away(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        proxy = GuardedProxy(s.guard)
        await proxy.start(s.path)
        assert stat.S_IMODE(s.path.stat().st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(str(s.path))
        writer.write(f"CONNECT {LOOPBACK}:{s.home.port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await proxy.close()
        await proxy.close()
        assert await reader.read() == b""
        writer.close()
        assert not s.path.exists()
        await until(lambda: s.home.open_count == 0)


async def test_client_that_vanishes_ends_its_tunnel(tmp_path: Path) -> None:
    async with proxied(tmp_path) as s:
        _, writer = await asyncio.open_unix_connection(str(s.path))
        writer.write(f"CONNECT {LOOPBACK}:{s.home.port} HTTP/1.1\r\n\r\n".encode())
        await until(lambda: s.home.open_count == 1)
        writer.transport.abort()
        await until(lambda: s.home.open_count == 0)


async def test_path_where_no_socket_can_be_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "p.sock", tmp_path / ("x" * 200)):
        with pytest.raises(Unavailable) as caught:
            await GuardedProxy(Guard()).start(path)
        assert caught.value.code == "proxy_unavailable"


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=300))
async def test_noise_is_answered_or_dropped_and_reaches_nothing(tmp_path: Path, noise: bytes) -> None:
    async with proxied(tmp_path) as s:
        answer = await s.send(noise + b"\r\n\r\n")
        assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 403", b"")
        assert s.home.connections_count == 0


@pytest.mark.parametrize(
    ("is_own", "origin", "status"),
    [
        (True, "", b"200"),
        (True, "Origin: {own}\r\n", b"200"),
        (True, "Origin: https://evil.example.com\r\n", b"403"),
        (True, "Origin: null\r\n", b"403"),
        (False, "", b"403"),
        (False, "Origin: {own}\r\n", b"403"),
    ],
)
async def test_opened_target_is_for_its_own_pages_where_pages_are_known(
    tmp_path: Path, is_own: bool, origin: str, status: bytes
) -> None:
    async with scene(tmp_path) as s, GuardedProxy(s.guard, is_own=lambda endpoint: is_own) as proxy:
        await proxy.start(s.path)
        head = origin.format(own=s.home.url)
        assert await s.status(f"GET {s.home.url}/ HTTP/1.1\r\n{head}\r\n".encode()) == status
        assert (s.home.connections_count > 0) is (status == b"200")
