"""Access as HTTP carries it: credentials in headers, and the checks that only browsers make necessary.

Owns: reading credentials from a request; refusing a Host, an Origin or a site that is not ours.
Does not own: checking credentials (access.authentication).
Invariants: a token in an address is refused even if it is valid, because addresses are logged. A page on the web reaches
a daemon on loopback neither by a name it controls (DNS rebinding) nor through somebody's browser.
"""

from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import Request

from palyra.core.errors import Unauthorized
from palyra.gateway.access.authentication import is_plausible
from palyra.gateway.access.caller import PresentedCredentials
from palyra.gateway.http.settings import HttpSettings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
NAMES_REMEMBERED_MAX = 256  # Parsing a name costs more than all the rest of a small request.
CSRF_HEADER = "x-csrf-token"

_QUERY_NAMES = ("token=", "access_token=", "api_key=", "authorization=")
_OWN_SITES = frozenset({"same-origin", "none"})


class OriginChecks:
    """The names of this server, and the pages that requests may come from."""

    def __init__(self, settings: HttpSettings) -> None:
        self._names = LOOPBACK_NAMES | frozenset(name.lower() for name in (settings.host, *settings.hosts))

    def check_host(self, request: Request) -> None:
        """The Host must be a name of this server, and a browser's Origin must be that same host."""
        hosts = request.headers.getlist("host")
        name = host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not (name in self._names or name == _address_reached(request)):
            raise Unauthorized("host_refused", "the Host header is not a name of this server; see [server] hosts")
        origins = request.headers.getlist("origin")
        if origins and (len(origins) > 1 or not _is_same(origins[0], hosts[0])):
            raise Unauthorized("origin_refused", "the request comes from a page of another origin")

    def check_site(self, request: Request) -> None:
        """A request that a browser sends for another page is refused.

        Another port of this machine is another origin but the same site, and shares our cookies, so SameSite is not
        enough.
        """
        if any(site not in _OWN_SITES for site in request.headers.getlist("sec-fetch-site")):
            raise Unauthorized("site_refused", "the browser says that another page sent this request")


def presented_in(request: Request) -> PresentedCredentials:
    """The credentials of a request. An Authorization header, whatever it holds, leaves the cookie unread."""
    headers = request.headers
    bearer = _bearer(request)
    cookie = _cookie(request) if "authorization" not in headers and "cookie" in headers else None
    if bearer is None and cookie is None:
        _refuse_query(request)
    return PresentedCredentials(bearer=bearer, cookie=cookie, csrf=headers.get(CSRF_HEADER, ""), peer=peer_of(request))


def peer_of(request: Request) -> str | None:
    client = request.scope.get("client")
    return client[0] if client else None


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


def _bearer(request: Request) -> str | None:
    values = request.headers.getlist("authorization")
    scheme, _, text = (values[0] if len(values) == 1 else "").partition(" ")
    bearer = text.strip()
    return bearer if scheme.lower() == "bearer" and is_plausible(bearer) else None


def _cookie(request: Request) -> str | None:
    value = request.cookies.get(cookie_name(request), "")
    return value if is_plausible(value) else None


def _refuse_query(request: Request) -> None:
    query = request.scope["query_string"].decode("latin-1").lower()
    if any(f"&{query}".find(f"&{name}") >= 0 for name in _QUERY_NAMES):
        message = "a token in an address is refused, because addresses are logged; send Authorization: Bearer …"
        raise Unauthorized("token_in_query", message)


def _address_reached(request: Request) -> str | None:
    """The address of ours that the client connected to. A name that leads here can be rebound; an address cannot."""
    server = request.scope.get("server")
    return server[0] if server else None


def _is_same(origin: str, host: str) -> bool:
    """Compares without the scheme: behind a proxy that ends TLS, ours differs from the browser's."""
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest.lower() == host.lower()
