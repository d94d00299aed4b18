"""The credentials a client presents, and the caller they stand for.

Owns: the two records that every protocol shares.
Does not own: finding the credentials in a request (gateway.http), checking them (authentication).
"""

import msgspec

from palyra.core.ids import Principal
from palyra.gateway.access.console_sessions import ConsoleSession
from palyra.ports.tokens import Role


class PresentedCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sent, unchecked. `cookie` is the id of a console session, `peer` the address it connects from."""

    bearer: str | None = None
    cookie: str | None = None
    csrf: str = ""
    peer: str | None = None


class Caller(msgspec.Struct, frozen=True):
    """Who asks, as their token says, or the token that their console session was opened with."""

    token_id: str
    principal: Principal
    role: Role
    actions: tuple[str, ...] = ()
    token_hash: str = ""
    session: ConsoleSession | None = None


NOBODY = Caller(
    "", Principal("system:nobody"), Role.VIEWER
)  # The caller of public operations, which look at no caller.
