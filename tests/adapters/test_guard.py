"""The guard: names are resolved once, every answer is judged, and nothing is reached that was not judged."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from palyra.adapters.net.client import HttpClient, Outgoing
from palyra.adapters.net.guard import ANSWERS_MAX, Guard, SocketAddress
from palyra.adapters.net.guard_lookup import SystemLookup
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.hosts import CODE, HostPort
from tests.support.dns_server import A, DnsServer, dns_server
from tests.support.sites import LOOPBACK, Site, ok, site
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
PUBLIC = "93.184.216.34"  # Never reached: no test may leave the machine.
NAME = "site.example.com"
TEST_S = 20.0


class WatchedGuard(Guard):
    """Remembers for which addresses a socket was made."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.tried: list[str] = []

    def make_socket(self, wanted: SocketAddress) -> socket.socket:
        made = super().make_socket(wanted)
        self.tried.append(str(wanted[4][0]))
        return made


@asynccontextmanager
async def world() -> AsyncIterator[tuple[DnsServer, Site]]:
    async with asyncio.timeout(TEST_S), dns_server() as names, site() as canary:
        canary.answers["/"] = ok(b"reached")
        yield names, canary


async def get(guard: Guard, url: str) -> bytes:
    client = HttpClient(make_connector=guard.make_connector)
    try:
        async with client.get(Outgoing(url=url, headers={})) as reply:
            return await reply.read_some(TEST_S)
    finally:
        await client.close()


async def code_of_get(guard: Guard, url: str) -> str:
    with pytest.raises(PalyraError) as caught:
        await get(guard, url)
    return caught.value.code


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["10.1.2.3"],
        ["169.254.169.254"],
        [PUBLIC, "127.0.0.1"],
        ["127.0.0.1", PUBLIC],
        ["::1"],
        [PUBLIC, "fd00::1"],
        [PUBLIC, "::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["alias:other.example.com", "127.0.0.1"],
        ["alias:a.example.com", "alias:b.example.com", PUBLIC, "192.168.0.1"],
        ["0.0.0.0"],
    ],
)
async def test_name_with_one_refused_answer_is_refused_and_nothing_is_reached(answers: list[str]) -> None:
    async with world() as (names, canary):
        names.zone[NAME] = [answers]
        guard = WatchedGuard(resolve=names.resolve)
        assert await code_of_get(guard, f"http://{NAME}:{canary.port}/") == CODE
        with pytest.raises(Invalid):
            await guard.open(HostPort(NAME, canary.port))
        assert (guard.tried, canary.connections_count) == ([], 0)


async def test_name_that_rebinds_is_asked_once_and_what_it_said_first_is_what_is_tried() -> None:
    async with world() as (names, canary):
        names.zone[NAME] = [[PUBLIC], [LOOPBACK]]
        guard = WatchedGuard(resolve=names.resolve)
        assert await code_of_get(guard, f"http://{NAME}:{canary.port}/") == "connect_failed"
        assert names.asked.count((NAME, A)) == 1
        assert guard.tried == [PUBLIC]
        assert await code_of_get(guard, f"http://{NAME}:{canary.port}/") == CODE
        assert (guard.tried, canary.connections_count) == ([PUBLIC], 0)


async def test_rebinding_between_judging_and_a_tunnel_changes_nothing() -> None:
    async with world() as (names, canary):
        names.zone[NAME] = [[PUBLIC], [LOOPBACK]]
        guard = WatchedGuard(resolve=names.resolve)
        with pytest.raises(Unavailable) as caught:
            await guard.open(HostPort(NAME, canary.port))
        assert (caught.value.code, guard.tried, canary.connections_count) == ("connect_failed", [PUBLIC], 0)


async def test_allowed_name_may_lead_to_a_private_address() -> None:
    async with world() as (names, canary):
        names.zone[NAME] = [[LOOPBACK]]
        guard = Guard([(NAME, canary.port)], names.resolve)
        assert await get(guard, f"http://{NAME}:{canary.port}/") == b"reached"
        assert f"Host: {NAME}:{canary.port}".encode() in canary.requests[0]


async def test_allowed_address_is_not_open_to_names_that_lead_to_it() -> None:
    """Else any page could reach it under a name of its own."""
    async with world() as (names, canary):
        names.zone[NAME] = [[LOOPBACK]]
        guard = Guard([(LOOPBACK, canary.port)], names.resolve)
        assert await code_of_get(guard, f"http://{NAME}:{canary.port}/") == CODE
        assert canary.connections_count == 0
        assert await get(guard, f"{canary.url}/") == b"reached"


async def test_connector_refuses_addresses_that_nobody_judged_before() -> None:
    """The second look: a caller that forgot to judge reaches nothing all the same."""
    async with world() as (_, canary):
        assert await code_of_get(Guard(), f"{canary.url}/") == "connect_failed"
        for written in ("2130706433", "127.1", "[::ffff:127.0.0.1]", "[::1]"):
            await code_of_get(Guard(), f"http://{written}:{canary.port}/")
        assert canary.connections_count == 0


async def test_name_that_is_never_answered_ends_in_time() -> None:
    async with world() as (names, canary):
        names.silent.add(NAME)
        guard = Guard(resolve=names.resolve, lookup_s=0.05)
        assert await code_of_get(guard, f"http://{NAME}:{canary.port}/") == "name_unknown"


async def test_unknown_name_and_name_with_too_many_addresses() -> None:
    async with world() as (names, _):
        guard = Guard(resolve=names.resolve)
        with pytest.raises(Unavailable) as unknown:
            await guard.addresses(HostPort(NAME, 80))
        assert unknown.value.code == "name_unknown"
        most = [f"8.8.8.{last}" for last in range(ANSWERS_MAX)]
        names.zone.update({"most.example.com": [most], "more.example.com": [[*most, "8.8.9.1"]]})
        assert len(await guard.addresses(HostPort("most.example.com", 80))) == ANSWERS_MAX
        with pytest.raises(Invalid):
            await guard.addresses(HostPort("more.example.com", 80))


async def test_cancelled_lookup_ends_at_once() -> None:
    async with world() as (names, canary):
        names.silent.add(NAME)
        guard = Guard(resolve=names.resolve)
        task = asyncio.create_task(get(guard, f"http://{NAME}:{canary.port}/"))
        await until(lambda: names.asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_proxy_and_cookies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as (_, canary), site() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        canary.answers["/"] = ok(b"reached", "Set-Cookie: a=b")
        guard = Guard([(LOOPBACK, canary.port)])
        assert await get(guard, f"{canary.url}/") == b"reached"
        assert await get(guard, f"{canary.url}/") == b"reached"
        assert proxy.connections_count == 0
        assert b"cookie" not in canary.requests[1].lower()


async def test_system_lookup_gives_all_addresses_and_bounds_how_many_are_asked_at_once() -> None:
    assert list(await SystemLookup()(LOOPBACK)) == [LOOPBACK]
    with pytest.raises(OSError):
        await SystemLookup()("no-such-name.invalid")
    with pytest.raises(OSError, match="too many"):
        await SystemLookup(lookups_max=0)(LOOPBACK)
    one = SystemLookup(lookups_max=1)
    await one(LOOPBACK)

    async def is_answered() -> bool:
        try:
            return bool(await one(LOOPBACK))
        except OSError:
            return False

    await until(is_answered)
