"""Authentication: the caller that presented credentials stand for, and how often a caller may ask.

Owns: checking tokens and console sessions, the CSRF token, the rate of each token, and the rate of failures.
Does not own: where a protocol carries credentials (gateway.http), what a caller may do (roles).
Invariants: it fails closed. Only hashes are looked up and compared, in constant time.
"""

import hmac
import logging
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from palyra.core.errors import PalyraError, Unauthorized, Unavailable
from palyra.gateway.access.caller import Caller, PresentedCredentials
from palyra.gateway.access.console_sessions import ConsoleSession
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.access.rate_limits import FAILURES_PER_MINUTE, INBOUND_PER_MINUTE, RateLimits
from palyra.ports.tokens import Role, TokenRow, hash_token, is_valid

SECRET_LENGTH_MAX = 512  # Tokens and session ids have about 50 characters; anything longer than this is neither.
ADDRESSES_REMEMBERED_MAX = 256  # Parsing an address costs more than all the rest of a small request.

_IPV6_HOST_BITS = 64  # The network of one customer, who has all of its addresses.

_log = logging.getLogger("palyra.gateway")


class Authentication:
    def __init__(self, credentials: Credentials, requests_per_minute: int, monotonic_s: Callable[[], float]) -> None:
        self.credentials = credentials
        self._requests = RateLimits(requests_per_minute, monotonic_s)
        self._failures = RateLimits(FAILURES_PER_MINUTE, monotonic_s)
        self._inbound = RateLimits(INBOUND_PER_MINUTE, monotonic_s)

    async def authenticate(self, presented: PresentedCredentials) -> Caller:
        """A bearer token wins over a console session; a wrong token is not mended by one."""
        bearer, cookie = presented.bearer, presented.cookie
        if bearer is None and cookie is not None and is_plausible(cookie):
            return await self._by_session(cookie)
        if bearer is None or not is_plausible(bearer):
            raise Unauthorized(
                "token_missing", "send Authorization: Bearer with a token; the owner's is in admin.token"
            )
        row = await self._valid_row(hash_token(bearer))
        if row is None:
            raise Unauthorized("token_invalid", "the token is unknown, expired or revoked; ask for a new one")
        return _caller(row, None)

    def check_csrf(self, caller: Caller, presented: PresentedCredentials) -> None:
        """Unauthorized unless a console session sends its own CSRF token along. A bearer token needs none."""
        session = caller.session
        if session is None:
            return
        if not hmac.compare_digest(presented.csrf.encode("latin-1"), session.csrf_token.encode("latin-1")):
            raise Unauthorized("csrf_refused", "send the CSRF token of the console session in X-CSRF-Token")

    def check_rate(self, caller: Caller, peer: str | None) -> None:
        """Unavailable beyond the rate of the caller's token. An administrator on this machine has no limit."""
        if caller.role is Role.ADMIN and peer is not None and _is_loopback(peer):
            return
        if not self._requests.take(caller.token_id):
            raise Unavailable("rate_limited", "too many requests with this token; wait a moment")

    def check_inbound_rate(self, peer: str | None) -> None:
        """Unavailable beyond the rate at which one network may send signed requests."""
        if not self._inbound.take(_network(peer) if peer is not None else "unknown"):
            raise Unavailable("rate_limited", "too many signed requests from this network; wait a moment")

    def count_failure(self, refused: PalyraError, peer: str | None) -> PalyraError:
        """The error to answer refused credentials with.

        Valid credentials are never delayed by the failures of others: that would let anyone lock out everyone.
        """
        network = _network(peer) if peer is not None else "unknown"
        if not self._failures.take(network):
            return Unavailable("too_many_failures", "too many requests with refused credentials; wait a moment")
        _log.info("refused a request from %s: %s", network, refused.code)
        return refused

    async def _by_session(self, session_id: str) -> Caller:
        session = self.credentials.logins.find(session_id)
        row = await self._valid_row(session.token_hash) if session is not None else None
        if session is None or row is None:
            raise Unauthorized("session_invalid", "the console session has ended; log in with a new link")
        return _caller(row, session)

    async def _valid_row(self, token_hash: str) -> TokenRow | None:
        """Whole hashes are compared in constant time, so the time an answer takes tells nothing of any token."""
        credentials, now_ms = self.credentials, self.credentials.clock.now_ms()
        row = await credentials.tokens.find(token_hash)
        if row is None or not hmac.compare_digest(row.hash, token_hash) or not is_valid(row, now_ms):
            return None
        credentials.tokens.used(row.id, now_ms)
        return row


def is_plausible(secret: str) -> bool:
    """Whether a text can be a token or the id of a console session at all."""
    return bool(secret) and secret.isascii() and len(secret) <= SECRET_LENGTH_MAX


def _caller(row: TokenRow, session: ConsoleSession | None) -> Caller:
    return Caller(row.id, row.principal, row.role, row.actions, row.hash, session, row.speaks)


@lru_cache(ADDRESSES_REMEMBERED_MAX)
def _network(address: str) -> str:
    """The address, or the network of an IPv6 address; never anything a client could have written."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Address(int(parsed) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS))
    return str(parsed)


@lru_cache(ADDRESSES_REMEMBERED_MAX)
def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
