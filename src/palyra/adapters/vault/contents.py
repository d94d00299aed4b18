"""What a vault holds: the secrets as records, their limits, and their encryption under a given key.

Does not own: files (vault).
After the first line come a nonce of 12 random bytes and the ciphertext (ChaCha20-Poly1305) of a MessagePack map. The
first line is its additional data.
Invariant: no record shows a value when printed.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from palyra.adapters.vault.header import HEADER_BYTES_MAX, damaged
from palyra.core.errors import Invalid

SECRETS_COUNT_MAX = 1000
VALUE_BYTES_MAX = 64 * 1024
NAME_BYTES_MAX = 128
NONCE_BYTES = 12
_TAG_BYTES = 16
_ENTRY_OVERHEAD_BYTES = 32  # Counts lengths, the time, and the array around them.
FILE_BYTES_MAX = HEADER_BYTES_MAX + SECRETS_COUNT_MAX * (VALUE_BYTES_MAX + NAME_BYTES_MAX + _ENTRY_OVERHEAD_BYTES)


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    value: str
    set_at_ms: int

    def __repr__(self) -> str:
        return f"Entry(set_at_ms={self.set_at_ms})"


Entries = Mapping[str, Entry]
_decoder = msgspec.msgpack.Decoder(dict[str, Entry])


def with_entry(entries: Entries, name: str, entry: Entry) -> Entries:
    """Returns the secrets with a new one, or with a new value for one. Raises Invalid if a limit is passed."""
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise Invalid("secret_name_invalid", f"a secret's name has 1 to {NAME_BYTES_MAX} characters")
    _require_value(entry.value, name)
    changed = {**entries, name: entry}
    if len(changed) > SECRETS_COUNT_MAX:
        message = (
            f"the vault holds {SECRETS_COUNT_MAX} secrets, which is the most; remove one first: palyra secrets rm NAME"
        )
        raise Invalid("vault_full", message)
    return changed


def encrypt(header: bytes, key: bytes, entries: Entries) -> bytes:
    """Returns the whole file."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return header + nonce + ChaCha20Poly1305(key).encrypt(nonce, msgspec.msgpack.encode(entries), header)


def decrypt(header: bytes, body: bytes, key: bytes, path: Path) -> Entries:
    if len(body) < NONCE_BYTES + _TAG_BYTES:
        raise damaged(path, "is cut short")
    try:
        plain = ChaCha20Poly1305(key).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], header)
    except InvalidTag as cause:
        raise damaged(path, "was altered or cut short") from cause
    try:
        entries = _decoder.decode(plain)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # The cause is dropped, because its text could hold a part of a secret.
        raise damaged(path, "holds something else than secrets") from None
    if not _is_within_limits(entries):
        raise damaged(path, "holds more than any release of ours would write")
    return entries


def _require_value(value: str, name: str) -> None:
    if not value:
        raise Invalid("secret_empty", f"the value for {name} is empty; nothing was changed")
    if _size(value) is None:
        raise Invalid("secret_not_text", f"the value for {name} is not text in UTF-8; encode it, for example as base64")
    if not _is_storable(value):
        message = f"the value for {name} is larger than {VALUE_BYTES_MAX} bytes; nothing was changed"
        raise Invalid("secret_too_large", message)


def _is_within_limits(entries: Entries) -> bool:
    return len(entries) <= SECRETS_COUNT_MAX and all(
        len(name.encode()) <= NAME_BYTES_MAX and _is_storable(entry.value) for name, entry in entries.items()
    )


def _is_storable(value: str) -> bool:
    size = _size(value)
    return size is not None and 0 < size <= VALUE_BYTES_MAX


def _size(value: str) -> int | None:
    """Returns the size in bytes; None if the value is no text."""
    try:
        return len(value.encode("utf-8"))
    except UnicodeEncodeError:
        return None
