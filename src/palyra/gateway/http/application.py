"""The ASGI application: one request in, one answer out.

Owns: the order of checks, calling the endpoint, and turning every failure into an answer.
Does not own: sockets (server), endpoints (gateway.routes), decisions about access (gateway.access).
Invariant: refusals come in this order: 401; Host, Origin and CSRF; the rate; 404 and 405; the access policy; query and
body. So a stranger cannot tell which routes exist, and no body is read for somebody who may not send it.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palyra.core.errors import PalyraError, Unavailable
from palyra.engine.engine import Engine
from palyra.gateway.access.authentication import Authentication
from palyra.gateway.access.caller import NOBODY, Caller
from palyra.gateway.http.request_access import OriginChecks, peer_of, presented_in
from palyra.gateway.http.request_ids import REQUEST_ID_HEADER, request_id_of
from palyra.gateway.http.request_reader import read_json, read_query
from palyra.gateway.http.responses import answer_error, answer_unexpected, status_of
from palyra.gateway.http.route import (
    READING_METHODS,
    HttpCall,
    HttpRoute,
    HttpRouteTable,
    MethodRefused,
    Unread,
    segments_of,
)
from palyra.gateway.http.settings import JSON_BYTES_MAX, REQUEST_TIMEOUT_S, HttpSettings
from palyra.gateway.openai.errors import is_openai_path, shape_error
from palyra.gateway.routes.table import ROUTES
from palyra.gateway.services import GatewayServices


class Gateway:
    """Wire one for a daemon; `server` runs it, and it can be called by any ASGI server."""

    def __init__(
        self, engine: Engine, access: Authentication, settings: HttpSettings, routes: Sequence[HttpRoute] = ROUTES
    ) -> None:
        actions = frozenset(route.action for route in routes if route.needs_credentials)
        self._services = GatewayServices(engine, settings, access.credentials, actions)
        self._access = access
        self._origins = OriginChecks(settings)
        self._table = HttpRouteTable(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request edge: whatever goes wrong below becomes an answer here, or the end of one that has begun."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        request_id = request_id_of(request)
        is_answering = False

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REQUEST_ID_HEADER, request_id.encode("ascii"))]
            await send(message)

        try:
            answer = await self._answer(request)
            is_answering = True
            await answer(scope, receive, send_named)
        except ClientDisconnect:
            return
        except Exception as cause:
            failure = self._failure(cause, request, request_id)
            if not is_answering:
                await failure(scope, receive, send_named)

    def end_streams(self) -> None:
        """Every stream is completed with what it has; its client may resume elsewhere with its cursor."""
        self._services.slots.end_all()

    @property
    def services(self) -> GatewayServices:
        """For other protocols, which share streams, viewers and everything else."""
        return self._services

    @property
    def stream_count(self) -> int:
        return self._services.slots.taken_count

    async def _answer(self, request: Request) -> ASGIApp:
        method = request.scope["method"]
        is_reading = method in READING_METHODS
        place = self._table.find(segments_of(request.scope))
        public = place.open(method)
        if public is not None and public.is_signed:
            # A signature stands for no browser and no name of ours, so neither Host nor Origin is looked at.
            self._access.check_inbound_rate(peer_of(request))
            return await self._call(public, request, NOBODY, place.parameters(public))
        if public is not None:
            self._origins.check_host(request)
            if not is_reading:
                self._origins.check_site(request)
            return await self._call(public, request, NOBODY, {})
        presented = presented_in(request)
        caller = await self._access.authenticate(presented)
        self._origins.check_host(request)
        self._origins.check_site(request)
        if not is_reading:
            self._access.check_csrf(caller, presented)
        self._access.check_rate(caller, presented.peer)
        route = place.route(method)
        return await self._call(route, request, caller, place.parameters(route))

    async def _call(self, route: HttpRoute, request: Request, caller: Caller, path: dict[str, str]) -> ASGIApp:
        services, viewer = self._services, caller.principal
        if route.needs_credentials:
            viewer = await services.viewers.viewer_for(caller, route, route.resource_in(path))
        query = read_query(request, route.query)
        try:
            async with asyncio.timeout(min(route.timeout_s, REQUEST_TIMEOUT_S)):
                body = Unread() if route.body is Unread else await self._read(route, request)
            async with asyncio.timeout(route.timeout_s):
                call = HttpCall(services, request, caller, route.action, viewer, path, query, body)
                return await route.endpoint(call)
        except TimeoutError as cause:
            raise Unavailable("timeout", f"no answer within {route.timeout_s:g} s; try again later") from cause

    async def _read(self, route: HttpRoute, request: Request) -> msgspec.Struct:
        """Reads a body. One that may be larger than most counts as an upload, of which there are few at once."""
        announced = request.headers.get("content-length", "")
        is_small = announced.isdecimal() and int(announced[:20]) <= JSON_BYTES_MAX
        if is_small or route.body_bytes_max <= JSON_BYTES_MAX:
            return await read_json(request, route.body, route.body_bytes_max)
        with self._services.uploading():
            return await read_json(request, route.body, route.body_bytes_max)

    def _failure(self, cause: Exception, request: Request, request_id: str) -> ASGIApp:
        headers = {"connection": "close"} if _has_body_left(request) else {}
        if isinstance(cause, MethodRefused):
            headers["allow"] = ", ".join(cause.allowed)
        shape = shape_error if is_openai_path(request.scope["path"]) else None
        if not isinstance(cause, PalyraError):
            return answer_unexpected(cause, request_id, shape)
        if status_of(cause) == HTTPStatus.UNAUTHORIZED:
            cause = self._access.count_failure(cause, peer_of(request))
        if shape is not None and not cause.is_retryable:
            headers["x-should-retry"] = "false"
        return answer_error(cause, headers, shape)


def _has_body_left(request: Request) -> bool:
    """Whether a body may still be on its way that nobody will read: the connection is then not worth keeping."""
    return "transfer-encoding" in request.headers or len(request.headers.get("content-length", "")) > 5
