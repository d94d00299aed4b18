"""The credentials a client presents, and the caller they stand for.

Owns: the two records that every protocol shares, and whether a person or a program speaks.
Does not own: finding the credentials in a request (gateway.http), checking them (authentication).
Invariant: MCP is spoken by programs, so there a person speaks only with a token that was made for one. Elsewhere a
program speaks only with a token that was made for one.
"""

import msgspec
from msgspec.structs import replace

from palyra.core.caller_trust import trust_of_caller
from palyra.core.ids import Principal
from palyra.core.taint import CLIENT, label
from palyra.core.trust import Trust
from palyra.gateway.access.console_sessions import ConsoleSession
from palyra.ports.tokens import Role, Speaks


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
    speaks: Speaks | None = None

    @property
    def client(self) -> str | None:
        """The source of a program's words; None where a person speaks."""
        return label(CLIENT, self.token_id) if self.speaks is Speaks.PROGRAM else None

    @property
    def trust(self) -> Trust:
        """The trust of what the caller says."""
        return trust_of_caller(self.principal, self.client)


def over_mcp(caller: Caller) -> Caller:
    """The caller as MCP knows it: a program, whatever its token may do, unless the token was made for a person."""
    return caller if caller.speaks is Speaks.PERSON else replace(caller, speaks=Speaks.PROGRAM)


NOBODY = Caller(
    "", Principal("system:nobody"), Role.VIEWER
)  # The caller of public operations, which look at no caller.
