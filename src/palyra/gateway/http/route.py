"""Routes: one record for each, and the table that finds them by method and path.

Owns: what a route declares, what its endpoint is given, and the lookup.
Does not own: any endpoint (gateway.routes).
Invariants: the dispatcher, the OpenAPI document and the access check read the same record. What an
endpoint is annotated with is what a request is decoded into.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar, get_args
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Scope

from palyra.core.errors import Invalid, NotFound
from palyra.core.ids import Principal
from palyra.gateway.access.caller import Caller
from palyra.gateway.access.resources import AnyResourceKind, Id, ResourceKind, ResourceRef
from palyra.gateway.http.settings import JSON_BYTES_MAX, REQUEST_TIMEOUT_S
from palyra.gateway.services import GatewayServices
from palyra.ports.tokens import Role


class Empty(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameter, or no member, is known."""


class Unread(msgspec.Struct, frozen=True):
    """The body of a route that has none, or that reads it by itself."""


READING_METHODS = frozenset({"GET", "HEAD"})

Query = TypeVar("Query", bound=msgspec.Struct)
Body = TypeVar("Body", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class HttpCall(Generic[Query, Body]):
    """One authenticated request with everything decoded.

    `viewer` is the principal whose permissions apply to the resource in the path: the caller, or its owner where the
    access policy permitted that.
    """

    services: GatewayServices
    request: Request
    caller: Caller
    action: str
    viewer: Principal
    path: dict[str, str]
    query: Query
    body: Body

    @property
    def principal(self) -> Principal:
        return self.caller.principal

    def id_of(self, kind: ResourceKind[Id]) -> Id:
        """The id of that kind in the path; NotFound if it has the wrong form."""
        return kind.read_id(self.path[kind.parameter])

    def require_also(self, action: str) -> None:
        """Unauthorized (403) unless the caller may do this too: what the call asks for leads to it."""
        self.services.viewers.require_also(self.caller, action)

    def may_oversee(self) -> bool:
        """Whether the caller may do this upon everyone's resources."""
        return self.services.viewers.may_oversee(self.caller, self.action)

    def reader(self, is_everyone: bool) -> Principal | None:
        """For lists: the caller, or None for everyone's resources where the access policy permits that."""
        return self.services.viewers.reader_for(self.caller, self.action, is_everyone)


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """`answer` is the record of the answer's body, None for no JSON. `errors` are the statuses besides those of all routes.

    A route is for callers with credentials, unless it `is_public`, or `is_signed`: then the request proves itself by a
    platform's signature, which its endpoint checks.
    `empty_statuses` are further successes, without a body. `refusal` is another form that an error may have.

    `action`, `role` and `others` are those of an `Operation`. `resource` is the kind of resource whose id is in the path.
    `query` and `body` are those of the endpoint's `HttpCall`.
    """

    method: str
    path: str
    summary: str
    endpoint: Callable[[HttpCall[Any, Any]], Awaitable[ASGIApp]]
    _: KW_ONLY
    action: str
    answer: type[msgspec.Struct] | None = None
    status: int = 200
    role: Role = Role.VIEWER
    others: Role | None = None
    resource: AnyResourceKind | None = None
    media_types: tuple[str, ...] = ("application/json",)
    errors: tuple[int, ...] = ()
    empty_statuses: tuple[int, ...] = ()
    refusal: type[msgspec.Struct] | None = None
    timeout_s: float = REQUEST_TIMEOUT_S
    body_bytes_max: int = JSON_BYTES_MAX
    is_public: bool = False
    is_signed: bool = False
    query: type[msgspec.Struct] = field(init=False)
    body: type[msgspec.Struct] = field(init=False)

    def __post_init__(self) -> None:
        query, body = get_args(self.endpoint.__annotations__["call"])
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "body", body)

    @property
    def needs_credentials(self) -> bool:
        return not (self.is_public or self.is_signed)

    @property
    def is_read_only(self) -> bool:
        return self.method in READING_METHODS

    def resource_in(self, path: dict[str, str]) -> ResourceRef | None:
        """The resource that a path names. Further parameters name a part of it."""
        kind = self.resource
        if kind is None:
            return None
        part = "/".join(value for name, value in path.items() if name != kind.parameter)
        return ResourceRef(kind, path[kind.parameter], part)


@dataclass(slots=True)
class _Node:
    """One step of a path: what may follow it, and what is there."""

    literal: dict[str, "_Node"] = field(default_factory=dict)
    parameter: "_Node | None" = None
    routes: dict[str, HttpRoute] = field(default_factory=dict)


class HttpRouteTable:
    """Finds a route in as many steps as its path has segments. A literal segment wins over a parameter."""

    def __init__(self, routes: Iterable[HttpRoute]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def find(self, segments: Iterable[str]) -> "RouteMatch":
        """The routes at a path; a match without routes if there are none."""
        node: _Node | None = self._root
        values = []
        for segment in segments:
            assert node is not None
            following = node.literal.get(segment)
            if following is None and node.parameter is not None and segment:
                values.append(segment)
                following = node.parameter
            node = following
            if node is None:
                return RouteMatch({}, [])
        assert node is not None
        return RouteMatch(node.routes, values)

    def _add(self, route: HttpRoute) -> None:
        node = self._root
        for segment in route.path.split("/")[1:]:
            if segment.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literal.setdefault(segment, _Node())
        if route.method in node.routes:
            raise Invalid("route_twice", f"{route.method} {route.path} is in the table twice")
        node.routes[route.method] = route


def segments_of(scope: Scope) -> list[str]:
    """The steps of a path, each decoded by itself: a name with a slash in it is one step, written with %2F."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%" not in raw:
        path: str = scope["path"]
        return path.split("/")[1:]
    return [unquote(segment) for segment in raw.decode("latin-1").split("/")[1:]]


class RouteMatch(msgspec.Struct, frozen=True):
    """The routes at a path, by method, and the values of its parameters."""

    routes: dict[str, HttpRoute]
    values: list[str]

    def open(self, method: str) -> HttpRoute | None:
        """The route, if it may be used without a token: a public one, or one whose requests are signed."""
        route = self.routes.get(method)
        return route if route is not None and not route.needs_credentials else None

    def route(self, method: str) -> HttpRoute:
        """NotFound: nothing is here. Invalid: what is here takes other methods."""
        if not self.routes:
            raise NotFound("route_unknown", "there is no such route; see /api/v1/openapi.json for those there are")
        route = self.routes.get(method)
        if route is None:
            raise MethodRefused(tuple(sorted(self.routes)))
        return route

    def parameters(self, route: HttpRoute) -> dict[str, str]:
        return dict(zip(parameters_of(route.path), self.values, strict=True)) if self.values else {}


class MethodRefused(Invalid):
    """The path exists, but not with this method."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__("method_not_allowed", f"this path takes {', '.join(allowed)} only")
        self.allowed = allowed


@cache
def parameters_of(path: str) -> list[str]:
    """Of a route's path, of which there are few."""
    return [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]
