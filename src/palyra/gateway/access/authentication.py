"""Access. Owns: who a request comes from, by which name it reached us, and how often it may come. Not: what they may do (roles).

Order: the token or the console session first, so that a stranger learns nothing but 401; then Host, Origin and the CSRF
token, so that a page on the web cannot reach a daemon on loopback through a name it controls (DNS rebinding) or through
somebody's browser; then the rate.
Invariant: fails closed. A token in a query is refused even where it would be right: addresses end up in logs.
"""

import hmac
import logging
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.requests import Request

from palyra.core.errors import PalyraError, Unauthorized, Unavailable
from palyra.gateway.access.console_sessions import ConsoleSession
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.access.rate_limits import RateLimits
from palyra.gateway.http.route import Caller
from palyra.gateway.http.settings import FAILURES_PER_MINUTE, HttpSettings
from palyra.ports.tokens import Role, TokenRow, hash_token, is_valid

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
TOKEN_LENGTH_MAX = 512  # Ours have 50; anything this long is no token.
NAMES_REMEMBERED_MAX = 256  # Parsing a name costs more than all the rest of a small request.
CSRF_HEADER = "x-csrf-token"
READING_METHODS = frozenset({"GET", "HEAD"})

_QUERY_NAMES = ("token=", "access_token=", "api_key=", "authorization=")
_OWN_SITES = frozenset({"same-origin", "none"})
_IPV6_HOST_BITS = 64  # One customer's network: who has it has all its addresses.

_log = logging.getLogger("palyra.gateway")


class Authentication:
    def __init__(self, settings: HttpSettings, doors: Credentials, monotonic_s: Callable[[], float]) -> None:
        self.doors = doors
        self._buckets = RateLimits(settings.requests_per_minute, monotonic_s)
        self._failures = RateLimits(FAILURES_PER_MINUTE, monotonic_s)
        self._names = LOOPBACK_NAMES | frozenset(name.lower() for name in (settings.host, *settings.hosts))

    async def authenticate(self, request: Request) -> Caller:
        session_id = None if "authorization" in request.headers else _session_id(request)
        if session_id is not None:
            return await self._by_session(session_id)
        token_hash = hash_token(_bearer(request))
        row = await self._valid_row(token_hash)
        if row is None:
            raise Unauthorized("token_invalid", "the token is unknown, expired or revoked; ask for a new one")
        return _caller(row, None)

    def check_name(self, request: Request) -> None:
        """The Host must be a name of ours, and a browser's Origin must be that same host."""
        hosts = request.headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self._names or name == _address_reached(request)):
            raise Unauthorized("host_refused", "the Host header is not a name of this server; see [server] hosts")
        origins = request.headers.getlist("origin")
        if origins and (len(origins) > 1 or not _is_same(origins[0], hosts[0])):
            raise Unauthorized("origin_refused", "the request comes from a page of another origin")

    def check_site(self, request: Request, caller: Caller | None) -> None:
        """What a browser sends for another page is refused, and what changes something by cookie needs the CSRF token.

        Another port of this machine is another origin, but the same site, and shares our cookies: SameSite alone is no wall.
        """
        if any(site not in _OWN_SITES for site in request.headers.getlist("sec-fetch-site")):
            raise Unauthorized("site_refused", "the browser says that another page sent this request")
        session = caller.session if caller is not None else None
        if session is None or request.scope["method"] in READING_METHODS:
            return
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode("latin-1"), session.csrf_token.encode("latin-1")):
            raise Unauthorized("csrf_refused", "send the CSRF token of the console session in X-CSRF-Token")

    def check_rate(self, caller: Caller, request: Request) -> None:
        if caller.role is Role.ADMIN and _is_loopback(request):
            return
        if not self._buckets.take(caller.token_id):
            raise Unavailable("rate_limited", "too many requests with this token; wait a moment")

    def count_failure(self, refused: PalyraError, request: Request) -> PalyraError:
        """What to answer refused credentials with. Valid ones are never held up by it: that would let anyone lock out all."""
        address = _client_network(request)
        if not self._failures.take(address):
            return Unavailable("too_many_failures", "too many requests with refused credentials; wait a moment")
        _log.info("refused a request from %s: %s", address, refused.code)
        return refused

    async def _by_session(self, session_id: str) -> Caller:
        session = self.doors.logins.find(session_id)
        row = await self._valid_row(session.token_hash) if session is not None else None
        if session is None or row is None:
            raise Unauthorized("session_invalid", "the console session has ended; log in with a new link")
        return _caller(row, session)

    async def _valid_row(self, token_hash: str) -> TokenRow | None:
        """Only hashes are compared, and in constant time: what differs where tells nothing of any token."""
        doors, now_ms = self.doors, self.doors.clock.now_ms()
        row = await doors.tokens.find(token_hash)
        if row is None or not hmac.compare_digest(row.hash, token_hash) or not is_valid(row, now_ms):
            return None
        doors.tokens.used(row.id, now_ms)
        return row


def cookie_name(request: Request) -> str:
    """With our port: browsers send a host's cookies to all its ports, so two daemons on one machine need two names."""
    server = request.scope.get("server")
    return f"palyra_session_{server[1] if server else 0}"


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


def _caller(row: TokenRow, session: ConsoleSession | None) -> Caller:
    return Caller(row.id, row.principal, row.role, row.actions, row.hash, session)


def _session_id(request: Request) -> str | None:
    if "cookie" not in request.headers:
        return None
    value = request.cookies.get(cookie_name(request), "")
    return value if value and value.isascii() and len(value) <= TOKEN_LENGTH_MAX else None


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


def _client_network(request: Request) -> str:
    client = request.scope.get("client")
    return _network(client[0]) if client else "unknown"


@lru_cache(NAMES_REMEMBERED_MAX)
def _network(address: str) -> str:
    """The address, or the network of an IPv6 address; never anything a client could have written."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS))
    return str(parsed)


def _is_loopback(request: Request) -> bool:
    client = request.scope.get("client")
    return client is not None and _is_loopback_address(client[0])


@lru_cache(NAMES_REMEMBERED_MAX)
def _is_loopback_address(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
