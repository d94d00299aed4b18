"""Tokens in two files of a home: `admin.token` holds the admin's token itself (the CLI reads it), `tokens.jsonl` one row
a line with hashes only. Owns: making, finding, issuing and revoking. Not: what a role may do (gateway).

Invariants: both files are looked at again whenever they changed, so revoking, or removing `admin.token`, counts from the
next request on. A file that is damaged or that others can read accepts nobody.
"""

import secrets
from pathlib import Path

import msgspec

from palyra.adapters.tokens.private_file import Stamp, create_private, read_private, replace_private, stamp_of
from palyra.core.errors import Corrupt, NotFound
from palyra.core.ids import Principal
from palyra.ports.tokens import TOKEN_PREFIX, TOKEN_RANDOM_BYTES, Role, TokenRow, hash_token

ADMIN_TOKEN_ID = "admin"  # noqa: S105 - the name of a token and no token.
ADMIN_PRINCIPAL = Principal("user:owner")
ROWS_MAX = 10_000

_TOKEN_LENGTH_MIN = 32  # Shorter text in admin.token was not made by us and could be guessed.
_ID_RANDOM_BYTES = 8
_line_decoder = msgspec.json.Decoder(TokenRow)


class FileTokens:
    """The Tokens port over the two files."""

    def __init__(self, admin_path: Path, rows_path: Path) -> None:
        self._admin_path = admin_path
        self._rows_path = rows_path
        self._admin_stamp: Stamp | None = None
        self._admin: TokenRow | None = None
        self._rows_stamp: Stamp | None = None
        self._rows: dict[str, TokenRow] = {}

    async def find(self, token_hash: str) -> TokenRow | None:
        admin = self._current_admin()
        if admin is not None and secrets.compare_digest(admin.hash, token_hash):
            return admin
        return self._current_rows().get(token_hash)

    def rows(self) -> tuple[TokenRow, ...]:
        """Every token of the file, in the order of issue; the admin's is not among them."""
        return tuple(self._current_rows().values())

    def issue(self, row: TokenRow) -> str:
        """Records a new token for whom `row` says and returns it; this is the only time it can be seen."""
        token = new_token()
        self._write((*self.rows(), msgspec.structs.replace(row, hash=hash_token(token))))
        return token

    def revoke(self, token_id: str) -> TokenRow:
        rows = self.rows()
        found = next((row for row in rows if row.id == token_id), None)
        if found is None:
            raise NotFound("token_unknown", f"there is no token {token_id}; list them first")
        revoked = msgspec.structs.replace(found, revoked=True)
        self._write(tuple(revoked if row.id == token_id else row for row in rows))
        return revoked

    def _write(self, rows: tuple[TokenRow, ...]) -> None:
        if len(rows) > ROWS_MAX:
            raise Corrupt("tokens_full", f"{self._rows_path} would hold more than {ROWS_MAX} tokens; remove old lines")
        replace_private(self._rows_path, "".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows))

    def _current_admin(self) -> TokenRow | None:
        stamp = stamp_of(self._admin_path)
        if stamp != self._admin_stamp:
            self._admin = None if stamp is None else _admin_row(self._admin_path)
            self._admin_stamp = stamp  # Only after reading: a file that could not be read is tried again.
        return self._admin

    def _current_rows(self) -> dict[str, TokenRow]:
        stamp = stamp_of(self._rows_path)
        if stamp != self._rows_stamp:
            self._rows = {} if stamp is None else {row.hash: row for row in _read_rows(self._rows_path)}
            self._rows_stamp = stamp
        return self._rows


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
