"""Guarded exchanges. Owns: one request to a chosen address, its redirects, and how much of the answer is read.

Not: what the answer means. Redirects are followed by hand and judged each. Only one that stays on the host is followed,
since it was this host that a policy allowed; an upgrade from http to https on the usual ports stays on it. Any other is
given back with its address. So headers never travel to another host, and nothing is kept between exchanges.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urljoin

import msgspec
from msgspec.structs import replace

from palyra.adapters.net.client import HttpClient, Outgoing, Reply, Timeouts
from palyra.adapters.net.guard import CONNECT_S, Guard
from palyra.adapters.net.guard_unpack import ACCEPTED, make_unpacker
from palyra.adapters.net.response import READ_BYTES
from palyra.core.errors import Invalid, Unavailable
from palyra.core.hosts import CODE, UrlTarget

REDIRECTS_MAX = 5
TOTAL_S = 40.0
BODY_BYTES_MAX = 5 * 1024 * 1024

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_MOVED = frozenset({301, 302})
_OF_A_BODY = frozenset({"content-type", "content-language", "content-location"})


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Its headers and body may hold secrets and are not shown."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Asked({self.method} {self.url!r}, {len(self.body)} bytes)"


class FetchedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What came back from `target`. `note` says why the body is not whole; `elsewhere` is where a redirect leads."""

    target: UrlTarget
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    note: str = ""
    elsewhere: str = ""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class GuardedExchange:
    """Each has its own connections; leaving or cancelling it closes them."""

    def __init__(self, guard: Guard, total_s: float = TOTAL_S, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._guard = guard
        self._total_s = total_s
        self._room = body_bytes_max

    async def perform(self, asked: FetchRequest) -> FetchedResponse:
        """Raises Invalid `address_refused`, and Unavailable for whatever keeps an answer from coming."""
        due_s = asyncio.get_running_loop().time() + self._total_s
        client = HttpClient(self._room + 4 * READ_BYTES, self._guard.make_connector)
        try:
            return await self._follow(client, asked, due_s)
        finally:
            await client.close()

    async def _follow(self, client: HttpClient, asked: FetchRequest, due_s: float) -> FetchedResponse:
        target = self._guard.judge(asked.url)
        for _ in range(REDIRECTS_MAX + 1):
            answer = await self._once(client, target, asked, due_s)
            after = self._judge_redirect(answer)
            if after is None:
                return answer
            if not is_same_site(target, after):
                return replace(answer, elsewhere=after.url)
            target, asked = after, _redirected(asked, answer.status)
        raise Unavailable("too_many_redirects", f"{target.endpoint.host} redirects more than {REDIRECTS_MAX} times")

    async def _once(self, client: HttpClient, target: UrlTarget, asked: FetchRequest, due_s: float) -> FetchedResponse:
        left_s = _left_s(due_s)
        outgoing = Outgoing(
            url=target.url,
            headers={"Accept": "*/*", "User-Agent": "palyra", **asked.headers, "Accept-Encoding": ACCEPTED},
            body=asked.body,
            timeouts=Timeouts(connect_s=min(CONNECT_S, left_s), first_byte_s=left_s),
        )
        async with client.request(asked.method, outgoing) as reply:
            answer = FetchedResponse(
                target=target, status=reply.status, reason=reply.reason, headers=tuple(reply.headers.items())
            )
            if asked.method == "HEAD" or (reply.status in _REDIRECTS and answer.header("location")):
                return answer
            body, note = await self._read(reply, due_s)
            return replace(answer, body=body, note=note)

    def _judge_redirect(self, answer: FetchedResponse) -> UrlTarget | None:
        location = answer.header("location")
        if answer.status not in _REDIRECTS or not location:
            return None
        try:
            after = urljoin(answer.target.url, location.partition("#")[0])
            return self._guard.judge(after)
        except ValueError as cause:
            raise Invalid(CODE, "it redirects to something that is no address") from cause
        except Invalid as cause:
            raise Invalid(CODE, f"it redirects to an address that is refused: {cause.message}") from cause

    async def _read(self, reply: Reply, due_s: float) -> tuple[bytes, str]:
        """The unpacked body as far as there is room and time, and why it is not whole."""
        unpacker = make_unpacker(reply.headers.get("Content-Encoding", ""))
        body = bytearray()
        packed_size = 0
        while packed_size <= self._room:
            try:
                chunk = await reply.read_some(_left_s(due_s))
            except Unavailable as cause:
                return bytes(body), f"The body ends here: {cause.message}."
            packed_size += len(chunk)
            # One byte more than is kept shows that there is more.
            body += unpacker.feed(chunk, self._room + 1 - len(body)) if unpacker else chunk
            if len(body) > self._room:
                break
            if not chunk or (unpacker and unpacker.is_ended):
                return bytes(body), ""
        return bytes(body[: self._room]), f"The body was cut: only {self._room} bytes of it are read."


def _left_s(due_s: float) -> float:
    return max(due_s - asyncio.get_running_loop().time(), 0.001)


def is_same_site(before: UrlTarget, after: UrlTarget) -> bool:
    """The same host and port and scheme, or from http to https where both are on their usual ports."""
    if before.endpoint.host != after.endpoint.host:
        return False
    places = (before.scheme, before.endpoint.port), (after.scheme, after.endpoint.port)
    return places[0] == places[1] or places == (("http", 80), ("https", 443))


def _redirected(asked: FetchRequest, status: int) -> FetchRequest:
    """As browsers do: what was posted is not posted again, unless the status says so."""
    is_changed = status == _SEE_OTHER or (status in _MOVED and asked.method == "POST")
    if not is_changed or asked.method == "HEAD":
        return asked
    headers = {name: value for name, value in asked.headers.items() if name.lower() not in _OF_A_BODY}
    return replace(asked, method="GET", headers=headers, body=b"")
