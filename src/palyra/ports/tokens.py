"""The Tokens port. Owns: what a bearer token stands for, and how one is named without keeping it. Not: HTTP (gateway).

A token is 256 random bits, so a plain SHA-256 is enough to store it by: a slow hash such as argon2 protects words that
people choose and others can guess, and would cost every request tens of milliseconds to protect against nothing here.
Invariant: a token itself is never stored, logged or compared; only its hash is.
"""

import hashlib
from enum import Enum
from typing import Protocol

import msgspec

from palyra.core.ids import Principal

TOKEN_RANDOM_BYTES = 32
TOKEN_PREFIX = "palyra_"  # noqa: S105 - lets people and scanners tell what they have found.


class Role(Enum):
    """What a token may do, each including those before it: look, work, operate, administer."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"


_RANKS = {role: rank for rank, role in enumerate(Role)}


class TokenRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`hash` is the token's SHA-256 in hex."""

    id: str
    hash: str
    principal: Principal
    role: Role
    created_at_ms: int
    expires_at_ms: int | None = None
    revoked: bool = False


class Tokens(Protocol):
    async def find(self, token_hash: str) -> TokenRow | None:
        """The row of that hash as it is now: a revocation is seen by the next call."""
        ...


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def is_valid(row: TokenRow, now_ms: int) -> bool:
    return not row.revoked and (row.expires_at_ms is None or now_ms < row.expires_at_ms)


def includes(role: Role, needed: Role) -> bool:
    return _RANKS[role] >= _RANKS[needed]
