"""Tokens in two files of a home: `admin.token` holds the admin's token, `tokens.jsonl` a row of hashes a line.

Owns: making, finding, issuing and revoking tokens.
Does not own: what a role may do (gateway), nor how files are read and replaced (adapters.files).
Invariants: a change starts from what the file says under its lock, so no process undoes another's. Both files are read
again whenever they changed, so revoking, or removing `admin.token`, counts from the next request on. A file that is
damaged, or that others can read, accepts nobody.
"""

import hmac
import secrets
from pathlib import Path

import msgspec

from palyra.adapters.files.private import FileKind, ParsedFile, PrivateFile
from palyra.adapters.tokens.last_use import LastUses
from palyra.core.errors import Corrupt, NotFound
from palyra.core.ids import Principal
from palyra.ports.tokens import ADMIN_TOKEN_ID, TOKEN_PREFIX, TOKEN_RANDOM_BYTES, Role, TokenRow, hash_token

ADMIN_PRINCIPAL = Principal("user:owner")
ROWS_MAX = 10_000
LAST_USE_NAME = "tokens.last-use.json"
TOKENS = FileKind(
    noun="tokens",
    remedy="restore it from a backup or remove it",
    bytes_max=4 * 1024 * 1024,  # Some ten thousand tokens fit; more belong into a database.
)

_TOKEN_LENGTH_MIN = 32  # Shorter text in admin.token was not made by us and could be guessed.
_line_decoder = msgspec.json.Decoder(TokenRow)


class FileTokens:
    """The Tokens and TokenRegister ports over the two files."""

    def __init__(self, admin_path: Path, rows_path: Path) -> None:
        self._admin_file = PrivateFile(admin_path, TOKENS)
        self._rows_file = PrivateFile(rows_path, TOKENS)
        self._uses = LastUses(PrivateFile(rows_path.with_name(LAST_USE_NAME), TOKENS))
        self._admin = ParsedFile(self._admin_file, lambda data: _admin_row(data, self._admin_file))
        self._rows = ParsedFile(self._rows_file, lambda data: _read_rows(data, self._rows_file))

    async def find(self, token_hash: str) -> TokenRow | None:
        admin = self._admin.now()
        if admin is not None and hmac.compare_digest(admin.hash, token_hash):
            return admin
        return self._rows.now().get(token_hash)

    def used(self, token_id: str, at_ms: int) -> None:
        self._uses.note(token_id, at_ms)

    def rows(self) -> tuple[TokenRow, ...]:
        admin = self._admin.now()
        return (*(() if admin is None else (admin,)), *self._rows.now().values())

    def last_uses(self) -> dict[str, int]:
        return self._uses.times()

    def flush_uses(self) -> None:
        """Writes the noted uses. Whoever keeps time calls this, at most once a minute."""
        self._uses.flush()

    def issue(self, row: TokenRow) -> str:
        token = new_token()
        with self._rows_file.locked() as replace:
            rows = self._rows.read().values()
            replace(self._encoded([*rows, msgspec.structs.replace(row, hash=hash_token(token))]))
        return token

    def revoke(self, token_id: str) -> TokenRow:
        with self._rows_file.locked() as replace:
            rows = list(self._rows.read().values())
            found = next((row for row in rows if row.id == token_id), None)
            if found is None:
                raise NotFound("token_unknown", f"there is no token {token_id}; list them first")
            revoked = msgspec.structs.replace(found, revoked=True)
            replace(self._encoded([revoked if row.id == token_id else row for row in rows]))
        return revoked

    def rotate_admin(self) -> str:
        token = new_token()
        with self._admin_file.locked() as replace:
            replace(f"{token}\n".encode())
        return token

    def _encoded(self, rows: list[TokenRow]) -> bytes:
        if len(rows) > ROWS_MAX:
            path = self._rows_file.path
            raise Corrupt("tokens_full", f"{path} would hold more than {ROWS_MAX} tokens; remove old lines")
        return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def ensure_admin_token(path: Path) -> str:
    """Returns the admin's token, made if there is none yet."""
    file = PrivateFile(path, TOKENS)
    if file.stamp() is None:
        file.create(f"{new_token()}\n".encode())
    found = file.read()
    return _admin_token(b"" if found is None else found.data, file)


def new_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_RANDOM_BYTES)


def _admin_row(data: bytes | None, file: PrivateFile) -> TokenRow | None:
    if data is None:
        return None
    return TokenRow(
        id=ADMIN_TOKEN_ID,
        hash=hash_token(_admin_token(data, file)),
        principal=ADMIN_PRINCIPAL,
        role=Role.ADMIN,
        created_at_ms=0,
    )


def _admin_token(data: bytes, file: PrivateFile) -> str:
    token = _text(data, file).strip()
    if len(token) < _TOKEN_LENGTH_MIN or not token.isascii() or not token.isprintable():
        message = f"{file.path} holds no token; remove it and start again to have a new one made"
        raise Corrupt("admin_token_damaged", message)
    return token


def _read_rows(data: bytes | None, file: PrivateFile) -> dict[str, TokenRow]:
    """Returns the rows by hash, in the order of the file."""
    lines = [line for line in _text(data or b"", file).splitlines() if line.strip()]
    rows = [_read_row(file, number, line) for number, line in enumerate(lines, 1)]
    return {row.hash: row for row in rows}


def _read_row(file: PrivateFile, number: int, line: str) -> TokenRow:
    try:
        return _line_decoder.decode(line)
    except msgspec.DecodeError as cause:
        raise Corrupt("tokens_damaged", f"{file.path} line {number} is not a token's row: {cause}") from cause


def _text(data: bytes, file: PrivateFile) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise file.damaged("is not text") from cause
