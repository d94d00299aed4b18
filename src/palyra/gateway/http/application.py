"""The ASGI application. Owns: the way of one request from bytes to answer, and the request edge. Not: sockets (server).

Order of refusals: 401, then Host, Origin and CSRF, then the rate, then 404 and 405, then what the access policy says of the
action, then query and body. So a stranger cannot tell which routes exist, and nothing of a body is read for somebody who
may not send it.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from palyra.core.errors import PalyraError, Unavailable
from palyra.core.ids import Principal
from palyra.gateway.access.authentication import READING_METHODS, Authentication
from palyra.gateway.access.viewer import eyes_for
from palyra.gateway.facade import Engine
from palyra.gateway.http.request_reader import read_json, read_query
from palyra.gateway.http.responses import answer_error, answer_unexpected, status_of
from palyra.gateway.http.route import AnyHttpRoute, Caller, HttpCall, HttpRouteTable, MethodRefused, Unread, segments_of
from palyra.gateway.http.settings import HttpSettings
from palyra.gateway.routes.table import ROUTES
from palyra.gateway.services import GatewayServices
from palyra.ports.tokens import Role

NOBODY = Caller("", Principal("system:nobody"), Role.VIEWER)  # Asks on public routes, which look at no caller.


class Gateway:
    """Wire one for a daemon; `server` runs it, and it can be called by any ASGI server."""

    def __init__(
        self,
        engine: Engine,
        access: Authentication,
        settings: HttpSettings,
        routes: Sequence[AnyHttpRoute] = ROUTES,
    ) -> None:
        self._desk = GatewayServices(
            engine, settings, access.doors, frozenset(route.action for route in routes if not route.is_public)
        )
        self._access = access
        self._table = HttpRouteTable(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request edge: whatever goes wrong below becomes an answer here, or the end of one that has begun."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        is_answering = False
        try:
            answer = await self._answer(request)
            is_answering = True
            await answer(scope, receive, send)
        except ClientDisconnect:
            return
        except Exception as cause:
            failure = self._failure(cause, request)
            if not is_answering:
                await failure(scope, receive, send)

    def end_streams(self) -> None:
        """Every stream is completed with what it has; its client may resume elsewhere with its cursor."""
        self._desk.seats.end_all()

    @property
    def stream_count(self) -> int:
        return self._desk.seats.taken_count

    async def _answer(self, request: Request) -> ASGIApp:
        method = request.scope["method"]
        place = self._table.find(segments_of(request.scope))
        public = place.public(method)
        if public is not None:
            self._access.check_name(request)
            if method not in READING_METHODS:
                self._access.check_site(request, None)
            return await self._call(public, request, NOBODY, {})
        caller = await self._access.authenticate(request)
        self._access.check_name(request)
        self._access.check_site(request, caller)
        self._access.check_rate(caller, request)
        route = place.route(method)
        return await self._call(route, request, caller, place.parameters(route))

    async def _call(self, route: AnyHttpRoute, request: Request, caller: Caller, values: dict[str, str]) -> ASGIApp:
        eyes = caller.principal if route.is_public else await eyes_for(self._desk, route, caller, values)
        query = read_query(request, route.query)
        try:
            async with asyncio.timeout(route.timeout_s):
                body = Unread() if route.body is Unread else await read_json(request, route.body)
                return await route.endpoint(
                    HttpCall(self._desk, request, caller, route.action, eyes, values, query, body)
                )
        except TimeoutError as cause:
            raise Unavailable("timeout", f"no answer within {route.timeout_s:g} s; try again later") from cause

    def _failure(self, cause: Exception, request: Request) -> ASGIApp:
        headers = {"connection": "close"} if _has_body_left(request) else {}
        if isinstance(cause, MethodRefused):
            headers["allow"] = ", ".join(cause.allowed)
        if not isinstance(cause, PalyraError):
            return answer_unexpected(cause)
        if status_of(cause) == HTTPStatus.UNAUTHORIZED:
            cause = self._access.count_failure(cause, request)
        return answer_error(cause, headers)


def _has_body_left(request: Request) -> bool:
    """Whether a body may still be on its way that nobody will read: the connection is then not worth keeping."""
    return "transfer-encoding" in request.headers or len(request.headers.get("content-length", "")) > 5
