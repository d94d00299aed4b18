"""The first line of the vault's file: its bytes, and the limits of the costs it may name.

Does not own: keys (keyring), nor what comes after the line (contents).
The line is `palyra-vault 1 {…}` with a line end: the version as plain text, then how the key is obtained. Its bytes are
authenticated together with the secrets.
Invariant: nothing is computed from a header whose costs are beyond the limits. Otherwise whoever can write the file
could make us use all memory there is.
"""

from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec

from palyra.core.errors import Corrupt, PalyraError, Unavailable

VERSION = 1
SALT_BYTES = 16
CHECK_BYTES = 16
HEADER_BYTES_MAX = 1024
REMEDY = "restore it from a backup made with --with-keys, or move it away and set the secrets again"

# This is four times the memory we ask for today, so that a later release may ask for more and this one still reads it.
MEMORY_KIB_MAX = 256 * 1024
PASSES_MAX = 10
LANES_MAX = 16
MEMORY_KIB_PER_LANE_MIN = 8  # Argon2 itself has this minimum.

MAGIC = b"palyra-vault "
_VERSION_DIGITS_MAX = 6

Salt = Annotated[str, msgspec.Meta(pattern=rf"^[0-9a-f]{{{2 * SALT_BYTES}}}\Z")]
Check = Annotated[str, msgspec.Meta(pattern=rf"^[0-9a-f]{{{2 * CHECK_BYTES}}}\Z")]


class LockKind(Enum):
    KEY_FILE = "key-file"
    PASSPHRASE = "passphrase"  # noqa: S105 - a word, and no passphrase


class Costs(msgspec.Struct, frozen=True):
    """What one guess of a passphrase costs whoever makes it, us included."""

    passes: int
    memory_kib: int
    lanes: int


class KeyFileLock(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="lock", tag="key-file"
):
    """`check` is derived from the key. It tells another key from damage."""

    check: Check


class PassphraseLock(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="lock", tag="passphrase"
):
    """argon2id makes the key from the passphrase."""

    salt: Salt
    passes: int
    memory_kib: int
    lanes: int
    check: Check


Lock = KeyFileLock | PassphraseLock
_decoder: msgspec.json.Decoder[Lock] = msgspec.json.Decoder(Lock)


def kind_of(lock: Lock) -> LockKind:
    return LockKind.PASSPHRASE if isinstance(lock, PassphraseLock) else LockKind.KEY_FILE


def encode_header(lock: Lock) -> bytes:
    return MAGIC + str(VERSION).encode() + b" " + msgspec.json.encode(lock) + b"\n"


def split_header(data: bytes, path: Path) -> tuple[bytes, bytes]:
    """Returns the first line as it stands, and the rest."""
    end = data.find(b"\n", 0, HEADER_BYTES_MAX)
    if not data.startswith(MAGIC) or end < 0:
        raise damaged(path, "is no vault, or the beginning of it is lost")
    return data[: end + 1], data[end + 1 :]


def read_lock(header: bytes, path: Path) -> Lock:
    version, _, text = header.removeprefix(MAGIC).partition(b" ")
    if not version.isdigit() or len(version) > _VERSION_DIGITS_MAX or int(version) < VERSION:
        raise damaged(path, "has no version in its first line")
    if int(version) > VERSION:
        message = f"{path} has version {int(version)}, this release knows {VERSION}; use the newer release"
        raise Unavailable("vault_newer", message, is_retryable=False)
    try:
        lock = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as cause:
        raise damaged(path, "has a first line that cannot be read") from cause
    if isinstance(lock, PassphraseLock):
        _require_bearable(lock, path)
    return lock


def damaged(path: Path, what: str) -> PalyraError:
    return Corrupt("vault_damaged", f"{path} {what}; {REMEDY}")


def _require_bearable(lock: PassphraseLock, path: Path) -> None:
    is_bearable = (
        1 <= lock.passes <= PASSES_MAX
        and 1 <= lock.lanes <= LANES_MAX
        and MEMORY_KIB_PER_LANE_MIN * lock.lanes <= lock.memory_kib <= MEMORY_KIB_MAX
    )
    if not is_bearable:
        message = (
            f"{path} asks for costs beyond what any release of ours has written, so its first line was altered; "
            "restore it from a backup made with --with-keys"
        )
        raise Corrupt("vault_costs", message)
