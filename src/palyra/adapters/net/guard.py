"""The SSRF guard. Owns: that what connects reaches only addresses that were judged. Not: the rule itself (core.hosts).

A name is resolved once; every answer is judged, and one refused answer refuses the name, since nobody honest answers with
a public and a private address. The connection goes to the very addresses that were judged: no name is resolved again after
that, so a server of names that changes its mind changes nothing. Sockets are checked once more as they are made.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from palyra.adapters.net.guard_lookup import SystemLookup
from palyra.core.errors import Invalid, Unavailable
from palyra.core.hosts import (
    CODE,
    AddressRefusal,
    HostPort,
    UrlTarget,
    allowed,
    judge_endpoint,
    judge_url,
    refuse_address,
)

LOOKUP_S = 5.0
CONNECT_S = 10.0
ANSWERS_MAX = 64  # No honest name has more addresses.
OPENED_MAX = 1024  # Addresses that names of `[http] allow` led to; forgotten and learned again beyond this.

_Judged = TypeVar("_Judged", UrlTarget, HostPort)
Resolve = Callable[[str], Awaitable[Sequence[str]]]
SocketAddress = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


class Guard:
    """One for the whole daemon. `allow` are the hosts and ports that the operator opened, public or not."""

    def __init__(
        self, allow: Iterable[tuple[str, int]] = (), resolve: Resolve | None = None, lookup_s: float = LOOKUP_S
    ) -> None:
        self._allow = frozenset(allowed(host, port) for host, port in allow)
        self._resolve = resolve or SystemLookup()
        self._lookup_s = lookup_s
        self._opened: set[tuple[str, int]] = set()

    def judge(self, url: str) -> UrlTarget:
        """Raises Invalid `address_refused`."""
        return _settled(judge_url(url, self._allow))

    def judge_endpoint(self, authority: str) -> HostPort:
        """Of a text such as `host:443`. Raises Invalid `address_refused`."""
        return _settled(judge_endpoint(authority, self._allow))

    def is_opened(self, endpoint: HostPort) -> bool:
        return endpoint in self._allow

    async def addresses(self, endpoint: HostPort) -> tuple[str, ...]:
        """Where to connect to: all judged. Raises Invalid `address_refused`, Unavailable `name_unknown`."""
        if endpoint.is_address:
            self._check((endpoint.host,), endpoint)
            return (endpoint.host,)
        answers = tuple(dict.fromkeys(await self._look_up(endpoint.host)))
        if not answers:
            raise Unavailable("name_unknown", f"the name {endpoint.host} has no address; check how it is written")
        if len(answers) > ANSWERS_MAX:
            raise Invalid(CODE, f"the name {endpoint.host} has more than {ANSWERS_MAX} addresses")
        self._check(answers, endpoint)
        return answers

    async def open(self, endpoint: HostPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to one of the judged addresses."""
        reason = "no address answered"
        async with asyncio.timeout(CONNECT_S + self._lookup_s):
            for address in await self.addresses(endpoint):
                try:
                    return await asyncio.open_connection(sock=await self._connected(address, endpoint.port))
                except OSError as cause:
                    reason = cause.strerror or reason
        raise Unavailable("connect_failed", f"no connection to {endpoint}: {reason}")

    def make_connector(self) -> aiohttp.BaseConnector:
        """For HttpClient: every connection is new, since a kept one belongs to whoever opened it."""
        return aiohttp.TCPConnector(
            resolver=_JudgedResolver(self), use_dns_cache=False, force_close=True, socket_factory=self.make_socket
        )

    def make_socket(self, wanted: SocketAddress) -> socket.socket:
        """The second look: whatever asked for it, no socket is made for an address that was not judged."""
        address, port = str(wanted[4][0]), int(wanted[4][1])
        if not self._is_judged(address, port):
            raise OSError(f"{address} was not judged")
        made = socket.socket(wanted[0], wanted[1], wanted[2])
        made.setblocking(False)
        return made

    async def _connected(self, address: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = self.make_socket((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)))
        with ExitStack() as unless_connected:
            unless_connected.callback(made.close)
            await asyncio.get_running_loop().sock_connect(made, (address, port))
            unless_connected.pop_all()
        return made

    async def _look_up(self, name: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._lookup_s):
                return await self._resolve(name)
        except TimeoutError as cause:
            raise Unavailable(
                "name_unknown", f"the name {name} was not resolved within {self._lookup_s:g} s"
            ) from cause
        except OSError as cause:
            raise Unavailable("name_unknown", f"the name {name} is not known; check how it is written") from cause

    def _check(self, answers: tuple[str, ...], endpoint: HostPort) -> None:
        if endpoint in self._allow:
            if len(self._opened) > OPENED_MAX:
                self._opened.clear()
            self._opened.update((answer, endpoint.port) for answer in answers)
            return
        for answer in answers:
            reason = refuse_address(answer)
            if reason is not None:
                what = "" if endpoint.is_address else f"the name {endpoint.host} leads to a refused address: "
                raise Invalid(CODE, f"{what}{reason}")

    def _is_judged(self, address: str, port: int) -> bool:
        is_opened = (address, port) in self._opened or HostPort(address, port) in self._allow
        return is_opened or refuse_address(address) is None


class _JudgedResolver(AbstractResolver):
    """What aiohttp asks for the addresses of a name, and then connects to."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        answers = await self._guard.addresses(HostPort(host, port))
        return [_resolved(host, answer, port) for answer in answers]

    async def close(self) -> None:
        """Nothing is held open."""


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)


def _settled(judged: _Judged | AddressRefusal) -> _Judged:
    if isinstance(judged, AddressRefusal):
        raise Invalid(CODE, judged.reason)
    return judged
