"""The Tokens port: what a bearer token stands for, and how a token is named without being stored.

Does not own: HTTP (gateway).
A token is 256 random bits, so a plain SHA-256 is enough to store it by. A slow hash such as argon2 protects words that
people choose and others can guess. Here it would cost every request tens of milliseconds and protect nothing.
Invariant: a token itself is never stored, logged or compared; only its hash is.
"""

import hashlib
from enum import Enum
from typing import Protocol

import msgspec

from palyra.core.ids import Principal

TOKEN_RANDOM_BYTES = 32
TOKEN_PREFIX = "palyra_"  # noqa: S105 - lets people and scanners tell what they have found.
ADMIN_TOKEN_ID = "admin"  # noqa: S105 - the name of a token and no token.
LABEL_LENGTH_MAX = 100
ACTIONS_MAX = 32


class Role(Enum):
    """What a token may do. Each role includes those before it: look, work, operate, administer."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


class Speaks(Enum):
    """Who writes what is said with a token: a person, or a program, whose words are a task and nobody's orders."""

    PERSON = "person"
    PROGRAM = "program"


_RANKS = {role: rank for rank, role in enumerate(Role)}


class TokenRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`hash` is the token's SHA-256 in hex.

    `actions` narrows the role to some actions, or to all actions of a noun. An empty one does not narrow the role.
    `speaks` is None where nobody said it: then the protocol decides (gateway.access.caller).
    """

    id: str
    hash: str
    principal: Principal
    role: Role
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked: bool = False
    label: str = ""
    actions: tuple[str, ...] = ()
    speaks: Speaks | None = None


class Tokens(Protocol):
    """Looks up the token of a request."""

    async def find(self, token_hash: str) -> TokenRow | None:
        """Returns the row of that hash as it is now: the next call sees a revocation."""
        ...

    def used(self, token_id: str, at_ms: int) -> None:
        """Notes the use in memory; a crash may lose the last minute of it."""
        ...


class TokenRegister(Protocol):
    """What an administrator changes. Every method works on files and may wait for another process."""

    def rows(self) -> tuple[TokenRow, ...]:
        """Returns every token: the node's own admin token first, then the others in the order of issue."""
        ...

    def last_uses(self) -> dict[str, int]:
        """Returns when each token was last used, to the minute."""
        ...

    def issue(self, row: TokenRow) -> str:
        """Records a new token for the principal of `row`, and returns the token, which can be seen only this once."""
        ...

    def revoke(self, token_id: str) -> TokenRow:
        """Revokes a token. Raises NotFound if there is none. Revoking again changes nothing."""
        ...

    def rotate_admin(self) -> str:
        """Replaces the node's own admin token; the old one is refused from now on."""
        ...


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def is_valid(row: TokenRow, now_ms: int) -> bool:
    return not row.revoked and (row.expires_at_ms is None or now_ms < row.expires_at_ms)


def state_of(row: TokenRow, now_ms: int) -> str:
    if row.revoked:
        return "revoked"
    return "valid" if is_valid(row, now_ms) else "expired"


def includes(role: Role, needed: Role) -> bool:
    return _RANKS[role] >= _RANKS[needed]


def covers(actions: tuple[str, ...], action: str) -> bool:
    """Tells whether a token narrowed to `actions` may do `action`: `runs` stands for every `runs.…`."""
    return not actions or action in actions or action.partition(".")[0] in actions
