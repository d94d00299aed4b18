"""Tokens in two files of a home: `admin.token` holds the admin's token itself (the CLI reads it), `tokens.jsonl` one row
a line with hashes only. Owns: making, finding, issuing and revoking. Not: what a role may do (gateway).

Invariants: changes are made under a lock from what the file says at that moment, so no process undoes another's. Both
files are looked at again whenever they changed, so revoking, or removing `admin.token`, counts from the next request on.
A file that is damaged or that others can read accepts nobody.
"""

import hmac
import secrets
from pathlib import Path

import msgspec

from palyra.adapters.tokens.last_use import LastUses
from palyra.adapters.tokens.private_file import (
    FileStamp,
    create_private,
    locked,
    read_private,
    replace_private,
    stamp_of,
)
from palyra.core.errors import Corrupt, NotFound
from palyra.core.ids import Principal
from palyra.ports.tokens import ADMIN_TOKEN_ID, TOKEN_PREFIX, TOKEN_RANDOM_BYTES, Role, TokenRow, hash_token

ADMIN_PRINCIPAL = Principal("user:owner")
ROWS_MAX = 10_000
LAST_USE_NAME = "tokens.last-use.json"

_TOKEN_LENGTH_MIN = 32  # Shorter text in admin.token was not made by us and could be guessed.
_ID_RANDOM_BYTES = 8
_line_decoder = msgspec.json.Decoder(TokenRow)


class FileTokens:
    """The Tokens and TokenRegister ports over the two files."""

    def __init__(self, admin_path: Path, rows_path: Path) -> None:
        self._admin_path = admin_path
        self._rows_path = rows_path
        self._uses = LastUses(rows_path.with_name(LAST_USE_NAME))
        # Each with the stamp of the file it was read from, as one value: a request may look while a thread changes them.
        self._admin: tuple[FileStamp | None, TokenRow | None] = (None, None)
        self._rows: tuple[FileStamp | None, dict[str, TokenRow]] = (None, {})

    async def find(self, token_hash: str) -> TokenRow | None:
        admin = self._current_admin()
        if admin is not None and hmac.compare_digest(admin.hash, token_hash):
            return admin
        return self._current_rows().get(token_hash)

    def used(self, token_id: str, at_ms: int) -> None:
        self._uses.note(token_id, at_ms)

    def rows(self) -> tuple[TokenRow, ...]:
        admin = self._current_admin()
        return (*(() if admin is None else (admin,)), *self._current_rows().values())

    def last_uses(self) -> dict[str, int]:
        return self._uses.times()

    def flush_uses(self) -> None:
        """To be called by who keeps time, at most once a minute."""
        self._uses.flush()

    def issue(self, row: TokenRow) -> str:
        token = new_token()
        with locked(self._rows_path):
            self._write([*self._read(), msgspec.structs.replace(row, hash=hash_token(token))])
        return token

    def revoke(self, token_id: str) -> TokenRow:
        with locked(self._rows_path):
            rows = self._read()
            found = next((row for row in rows if row.id == token_id), None)
            if found is None:
                raise NotFound("token_unknown", f"there is no token {token_id}; list them first")
            revoked = msgspec.structs.replace(found, revoked=True)
            self._write([revoked if row.id == token_id else row for row in rows])
        return revoked

    def rotate_admin(self) -> str:
        token = new_token()
        with locked(self._rows_path):
            replace_private(self._admin_path, f"{token}\n")
        return token

    def _read(self) -> list[TokenRow]:
        """What the file says now; to be asked under the lock by who then writes."""
        return [] if stamp_of(self._rows_path) is None else _read_rows(self._rows_path)

    def _write(self, rows: list[TokenRow]) -> None:
        if len(rows) > ROWS_MAX:
            raise Corrupt("tokens_full", f"{self._rows_path} would hold more than {ROWS_MAX} tokens; remove old lines")
        replace_private(self._rows_path, "".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows))

    def _current_admin(self) -> TokenRow | None:
        stamp = stamp_of(self._admin_path)
        if stamp != self._admin[0]:
            # Only after reading: a file that could not be read is tried again.
            self._admin = (stamp, None if stamp is None else _admin_row(self._admin_path))
        return self._admin[1]

    def _current_rows(self) -> dict[str, TokenRow]:
        stamp = stamp_of(self._rows_path)
        if stamp != self._rows[0]:
            read = {} if stamp is None else {row.hash: row for row in _read_rows(self._rows_path)}
            self._rows = (stamp, read)
        return self._rows[1]


def ensure_admin_token(path: Path) -> str:
    """The admin's token, made if there is none yet."""
    if stamp_of(path) is None:
        create_private(path, f"{new_token()}\n")
    return _read_admin(path)


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_RANDOM_BYTES)


def new_row(principal: Principal, role: Role, created_at_ms: int, expires_at_ms: int | None) -> TokenRow:
    """A row for `issue`, which fills in the hash."""
    return TokenRow(
        id=secrets.token_hex(_ID_RANDOM_BYTES),
        hash="",
        principal=principal,
        role=role,
        created_at_ms=created_at_ms,
        expires_at_ms=expires_at_ms,
    )


def _admin_row(path: Path) -> TokenRow:
    return TokenRow(
        id=ADMIN_TOKEN_ID,
        hash=hash_token(_read_admin(path)),
        principal=ADMIN_PRINCIPAL,
        role=Role.ADMIN,
        created_at_ms=0,
    )


def _read_admin(path: Path) -> str:
    token = read_private(path).strip()
    if len(token) < _TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable():
        raise Corrupt("admin_token_damaged", f"{path} holds no token; remove it and start again to have a new one made")
    return token


def _read_rows(path: Path) -> list[TokenRow]:
    lines = [line for line in read_private(path).splitlines() if line.strip()]
    return [_read_row(path, number, line) for number, line in enumerate(lines, 1)]


def _read_row(path: Path, number: int, line: str) -> TokenRow:
    try:
        return _line_decoder.decode(line)
    except msgspec.DecodeError as cause:
        raise Corrupt("tokens_damaged", f"{path} line {number} is not a token's row: {cause}") from cause
