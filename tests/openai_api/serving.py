"""A real HTTP server over a real engine, for clients that were not written here."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from palyra.adapters.providers.prepared_turns import Turn
from palyra.adapters.providers.scripted import Script, ScriptedProvider
from palyra.engine.engine import Engine
from palyra.gateway.access.authentication import Authentication
from palyra.gateway.access.console_sessions import ConsoleSessions
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.http.application import Gateway
from palyra.gateway.http.server import serve_http
from palyra.gateway.http.settings import HttpSettings
from palyra.gateway.routes.table import ROUTES
from palyra.ports.provider import Delta, ModelRequest
from palyra.ports.tokens import Role, Speaks
from tests.gateway.scene import ADMIN, FixedClock, FixedTokens
from tests.support.engines import Workshop
from tests.support.role_table import RoleTable

USER = "palyra_a-user-of-the-tests-and-nobody-else"
PROGRAM = "palyra_a-program-of-the-owner-in-the-tests"
PERSON = "palyra_the-owner-in-person-in-the-tests"


class Recorded(ScriptedProvider):
    """Keeps what models are sent."""

    def __init__(self, *turns: Turn, more: dict[str, tuple[Turn, ...]] | None = None) -> None:
        """`more` are turns for messages that match a pattern."""
        others = [Script(when=when, turns=given) for when, given in (more or {}).items()]
        super().__init__([*others, Script(turns=turns)])
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        return super().stream(request)


@dataclass
class Served:
    engine: Engine
    address: str

    def client(self, token: str = ADMIN, **options: Any) -> Any:
        """Its many overloads would have to be told apart in every test, so its type is left open."""
        return AsyncOpenAI(base_url=f"{self.address}/v1", api_key=token, **{"max_retries": 0, **options})


@asynccontextmanager
async def serve(workshop: Workshop, **limits: Any) -> AsyncIterator[Served]:
    async with workshop.open() as engine, serve_engine(engine, **limits) as address:
        yield Served(engine, address)


@asynccontextmanager
async def serve_engine(engine: Engine, **limits: Any) -> AsyncIterator[str]:
    settings = HttpSettings(port=0, **limits)
    clock, tokens = FixedClock(), FixedTokens()
    tokens.add(USER, Role.USER, principal="user:alice", id="alice")
    tokens.add(PROGRAM, Role.ADMIN, id="ci", speaks=Speaks.PROGRAM)
    tokens.add(PERSON, Role.ADMIN, id="me", speaks=Speaks.PERSON)
    logins = ConsoleSessions(clock.monotonic_s)
    credentials = Credentials(tokens, tokens, logins, RoleTable(ROUTES), clock)
    access = Authentication(credentials, settings.requests_per_minute, clock.monotonic_s)
    async with serve_http(settings, Gateway(engine, access, settings)) as server:
        yield server.address


def workshop_at(root: Path, *turns: Turn, **fields: object) -> tuple[Workshop, Recorded]:
    provider = Recorded(*turns, **fields)  # type: ignore[arg-type]
    return Workshop(root, provider), provider
