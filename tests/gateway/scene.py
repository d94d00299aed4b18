"""A gateway over a real engine, and ways to talk to it: straight as ASGI, or over a real socket.

Owns: tokens and a clock for the gateway, noting what the engine is asked, and one service in place of another.
Does not own: the engine (prepared), any claim.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from palyra.core.ids import Principal
from palyra.engine.engine import Engine
from palyra.engine.hub import Frames
from palyra.gateway.access.authentication import Authentication
from palyra.gateway.access.console_sessions import ConsoleSessions
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.http.application import Gateway
from palyra.gateway.http.server import HttpServer, serve_http
from palyra.gateway.http.settings import HttpSettings
from palyra.gateway.routes.table import ROUTES
from palyra.ports.policy import AccessPolicy
from palyra.ports.tokens import Role, TokenRow, hash_token
from tests.support.role_table import RoleTable

WAIT_S = 60.0  # A bound for what should come at once; no test passes by waiting for it.
NOW_MS = 1_700_000_000_000
ADMIN = "palyra_admin-token-of-the-tests-and-nothing-else"
NEW_ADMIN = "palyra_another-admin-token-of-the-tests-alone"
HOST = "127.0.0.1:7142"
# Written in a target or a body, these stand for the ids of the scene.
SESSION, RUN, APPROVAL = "{session_id}", "{run_id}", "{approval_id}"
GRANT, ARTIFACT, PROCESS, JOB = "{grant_id}", "{artifact_id}", "{process_id}", "{job_id}"
NOTED = (
    "incidents", "marks",
    "sessions", "runs", "approvals", "taint", "feed", "artifacts", "usage", "acts", "skills", "explaining", "status",
    "jobs", "trees", "routines", "previews", "compaction", "memory", "candidates", "caller_tools", "channels", "pairing",
    "outbox", "directory",
)  # fmt: skip


def token_row(token: str, role: Role, principal: str = "user:owner", **changes: object) -> TokenRow:
    fields = {"id": token[-12:], "hash": hash_token(token), "principal": Principal(principal), "role": role}
    return TokenRow(**{**fields, "created_at_ms": 0, **changes})  # type: ignore[arg-type]


class FixedTokens:
    def __init__(self) -> None:
        self.by_token = {ADMIN: token_row(ADMIN, Role.ADMIN, "user:owner", id="admin")}
        self.uses: dict[str, int] = {}

    def add(self, token: str, role: Role, **changes: object) -> str:
        self.by_token[token] = token_row(token, role, **changes)  # type: ignore[arg-type]
        return token

    async def find(self, token_hash: str) -> TokenRow | None:
        return next((row for row in self.by_token.values() if row.hash == token_hash), None)

    def used(self, token_id: str, at_ms: int) -> None:
        self.uses[token_id] = at_ms

    def rows(self) -> tuple[TokenRow, ...]:
        return tuple(self.by_token.values())

    def last_uses(self) -> dict[str, int]:
        return self.uses

    def issue(self, row: TokenRow) -> str:
        token = f"palyra_issued-{row.id}"
        self.by_token[token] = replace(row, hash=hash_token(token))
        return token

    def revoke(self, token_id: str) -> TokenRow:
        token, row = next((token, row) for token, row in self.by_token.items() if row.id == token_id)
        self.by_token[token] = replace(row, revoked=True)
        return self.by_token[token]

    def rotate_admin(self) -> str:
        self.by_token[NEW_ADMIN] = replace(self.by_token[ADMIN], hash=hash_token(NEW_ADMIN))
        self.add(ADMIN, Role.ADMIN, revoked=True)
        return NEW_ADMIN


class FixedClock:
    def __init__(self) -> None:
        self.at_ms = NOW_MS
        self.at_s = 0.0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_s


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Noted:
    """A real service that notes what it is asked. An attribute that a test sets stands in place of the service's own."""

    def __init__(self, service: object, name: str, asked: list[tuple[object, ...]]) -> None:
        self._service = service
        self._name = name
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        if name in ("processes", "changes", "kept"):
            return Noted(found, name, self._asked)
        return self._noting(name, found) if inspect.ismethod(found) else found

    def _noting(self, name: str, method: Callable[..., object]) -> Callable[..., object]:
        def ask(*arguments: object, **named: object) -> object:
            self._asked.append((f"{self._name}.{name}", *arguments, *named.values()))
            return method(*arguments, **named)

        return ask


class Failing:
    """In place of a service, of which every method fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def fail(*_: object, **__: object) -> object:
            raise self._error

        return fail


@dataclass
class Scene:
    """`asked` are the calls of the engine's services, with their arguments. `policy` decides in place of the roles."""

    real: Engine
    ids: dict[str, str] = field(default_factory=dict)
    settings: HttpSettings = field(default_factory=lambda: HttpSettings(port=0))
    client: tuple[str, int] = ("127.0.0.1", 50000)
    policy: AccessPolicy = field(default_factory=lambda: RoleTable(ROUTES))
    tokens: FixedTokens = field(default_factory=FixedTokens)
    clock: FixedClock = field(default_factory=FixedClock)
    asked: list[tuple[object, ...]] = field(default_factory=list)
    engine: Any = field(init=False)
    gateway: Gateway = field(init=False)
    logins: ConsoleSessions = field(init=False)

    def __post_init__(self) -> None:
        self.logins = ConsoleSessions(self.clock.monotonic_s)
        noted = {name: Noted(getattr(self.real, name), name, self.asked) for name in NOTED if hasattr(self.real, name)}
        self.engine = SimpleNamespace(owners=self.real.owners, embedder=getattr(self.real, "embedder", None), **noted)
        credentials = Credentials(self.tokens, self.tokens, self.logins, self.policy, self.clock)
        access = Authentication(credentials, self.settings.requests_per_minute, self.clock.monotonic_s)
        self.gateway = Gateway(cast(Engine, self.engine), access, self.settings)

    def filled(self, text: str) -> str:
        """With the ids of this scene."""
        for name, value in self.ids.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def follow(self, frames: Frames) -> None:
        """Gives these frames to whoever follows something next, in place of the engine's."""

        async def given(*_: object) -> Frames:
            return frames

        self.engine.feed.session = self.engine.feed.all = self.engine.runs.follow = given

    async def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        token: str | None = ADMIN,
    ) -> Answer:
        """One request without a socket. A body of bytes goes as it is, another as JSON."""
        path, _, query = self.filled(target).partition("?")
        sent = {"host": HOST} | ({"authorization": f"Bearer {token}"} if token is not None else {})
        sent |= {name.lower(): value for name, value in (headers or {}).items()}
        raw = body if isinstance(body, bytes) else b"" if body is None else self.filled(json.dumps(body)).encode()
        return await self.raw(method, path, query, list(sent.items()), [raw])

    async def raw(
        self, method: str, path: str, query: str, headers: list[tuple[str, str]], chunks: list[bytes]
    ) -> Answer:
        """The client leaves as soon as the answer has begun: a stream ends with that, another answer comes whole."""
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
            "client": self.client,
            "server": ("192.0.2.7", 7142),
        }
        waiting = [
            {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
            for index, chunk in enumerate(chunks)
        ]
        begun, sent = asyncio.Event(), []

        async def receive() -> dict:
            if waiting:
                return waiting.pop(0)
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            sent.append(message)
            begun.set()

        async with asyncio.timeout(WAIT_S):
            await self.gateway(scope, receive, send)  # type: ignore[arg-type]
        names = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], names, b"".join(message.get("body", b"") for message in sent[1:]))


@asynccontextmanager
async def listening(scene: Scene) -> AsyncIterator[HttpServer]:
    async with serve_http(scene.settings, scene.gateway) as server:
        yield server


@dataclass
class Wire:
    """A client with its hands on the bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.readuntil(mark)

    async def rest(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.read()

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        size = int(await self.until(b"\r\n"), 16)
        async with asyncio.timeout(WAIT_S):
            return (await self.reader.readexactly(size + 2))[:-2]

    async def frame(self) -> bytes:
        """The next block of an event stream; blocks must not be split over chunks for this."""
        chunk = await self.chunk()
        assert chunk.endswith(b"\n\n")
        return chunk


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


def request_bytes(method: str, path: str, body: bytes = b"", /, **headers: str) -> bytes:
    names = {"host": "127.0.0.1", "authorization": f"Bearer {ADMIN}", **headers}
    if body:
        names["content-length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in names.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body
