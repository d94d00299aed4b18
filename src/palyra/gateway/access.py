"""Access. Owns: who a request comes from, by which name it reached us, and how often it may come. Not: what a principal may see.

Order: the token first, so that a stranger learns nothing but 401; then Host and Origin, so that a page on the web cannot
reach a daemon on loopback through a name it controls (DNS rebinding); then the role; then the rate.
Invariant: fails closed. A token in a query is refused even where it would be right: addresses end up in logs.
"""

import hmac
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request

from palyra.core.errors import Unauthorized, Unavailable
from palyra.gateway.buckets import Buckets
from palyra.gateway.routes import AnyRoute, Caller
from palyra.gateway.settings import HttpSettings
from palyra.ports.clock import Clock
from palyra.ports.tokens import Role, Tokens, hash_token, includes, is_valid

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
TOKEN_LENGTH_MAX = 512  # Ours have 50; anything this long is no token.
NAMES_REMEMBERED_MAX = 256  # Parsing a name costs more than all the rest of a small request.

_QUERY_NAMES = ("token=", "access_token=", "api_key=", "authorization=")


class Access:
    def __init__(self, settings: HttpSettings, tokens: Tokens, clock: Clock, monotonic_s: Callable[[], float]) -> None:
        self._tokens = tokens
        self._clock = clock
        self._buckets = Buckets(settings.requests_per_minute, monotonic_s)
        self._names = LOOPBACK_NAMES | frozenset(name.lower() for name in (settings.host, *settings.hosts))

    async def authenticate(self, request: Request) -> Caller:
        token_hash = hash_token(_bearer(request))
        row = await self._tokens.find(token_hash)
        if row is None or not hmac.compare_digest(row.hash, token_hash) or not is_valid(row, self._clock.now_ms()):
            raise Unauthorized("token_invalid", "the token is unknown, expired or revoked; ask for a new one")
        return Caller(row.id, row.principal, row.role)

    def check_name(self, request: Request) -> None:
        """The Host must be a name of ours, and a browser's Origin must be that same host."""
        hosts = request.headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self._names or name == _address_reached(request)):
            raise Unauthorized("host_refused", "the Host header is not a name of this server; see [server] hosts")
        origin = request.headers.get("origin")
        if origin is not None and not _is_same(origin, hosts[0]):
            raise Unauthorized("origin_refused", "the request comes from a page of another origin")

    def check_role(self, caller: Caller, route: AnyRoute) -> None:
        if not includes(caller.role, route.role):
            raise Unauthorized("role_insufficient", f"this needs the role {route.role.value}, not {caller.role.value}")

    def check_rate(self, caller: Caller, request: Request) -> None:
        if caller.role is Role.ADMIN and _is_loopback(request):
            return
        if not self._buckets.take(caller.token_id):
            raise Unavailable("rate_limited", "too many requests with this token; wait a moment")


@lru_cache(NAMES_REMEMBERED_MAX)
def host_name(host: str) -> str | None:
    """The name in a Host header without its port, lower case; None if it is no host."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # Raises if it is no port.
    except ValueError:
        return None
    is_bare = parts.netloc == host and parts.username is None and not parts.path
    return parts.hostname if is_bare else None


def _bearer(request: Request) -> str:
    values = request.headers.getlist("authorization")
    scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
    token = token.strip()
    if scheme.lower() == "bearer" and token and token.isascii() and len(token) <= TOKEN_LENGTH_MAX:
        return token
    query = request.scope["query_string"].decode("latin-1").lower()
    if any(f"&{query}".find(f"&{name}") >= 0 for name in _QUERY_NAMES):
        message = "a token in an address is refused, because addresses are logged; send Authorization: Bearer …"
        raise Unauthorized("token_in_query", message)
    raise Unauthorized("token_missing", "send Authorization: Bearer with a token; the owner's is in admin.token")


def _address_reached(request: Request) -> str | None:
    """The address of ours that the client connected to. A name that leads here can be rebound; an address cannot."""
    server = request.scope.get("server")
    return server[0] if server else None


def _is_same(origin: str, host: str) -> bool:
    """Compares without the scheme: behind a proxy that ends TLS, ours differs from the browser's."""
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()


def _is_loopback(request: Request) -> bool:
    client = request.scope.get("client")
    return client is not None and _is_loopback_address(client[0])


@lru_cache(NAMES_REMEMBERED_MAX)
def _is_loopback_address(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
