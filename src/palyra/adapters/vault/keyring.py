"""Keys of the vault: makes its key from the key file or from a passphrase, and recognises a wrong one.

Does not own: asking a person (cli).
Each use has its own key, derived by HKDF-SHA256 from the one in the file, as for sealing. argon2id first turns a
passphrase into such a key. That takes a tenth of a second and much memory, so the result is kept while the lock is the
same.
"""

import hmac
import secrets
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from palyra.adapters.vault.header import CHECK_BYTES, SALT_BYTES, Costs, KeyFileLock, Lock, PassphraseLock
from palyra.core.errors import Invalid, NotFound, PalyraError, Unauthorized, Unavailable

KEY_BYTES = 32
# This is the choice of RFC 9106 for less than gigabytes of memory.
COSTS = Costs(passes=3, memory_kib=64 * 1024, lanes=4)
PASSPHRASE_CHARS_MIN = 8
PASSPHRASE_BYTES_MAX = 4096

_SEALING = b"palyra-vault-v1"
_CHECKING = b"palyra-vault-check-v1"


class Origins(msgspec.Struct, frozen=True):
    """Where keys come from. `load_key` raises FileNotFoundError if there is none; `make_key` makes one."""

    load_key: Callable[[], bytes]
    make_key: Callable[[], bytes]
    ask_passphrase: Callable[[], str]


class Keyring:
    def __init__(self, origins: Origins, costs: Costs = COSTS) -> None:
        self._origins = origins
        self._costs = costs
        self._unlocked: tuple[Lock, bytes] | None = None
        self._refused: tuple[Lock, bytes] | None = None

    def key_for(self, lock: Lock, path: Path) -> bytes:
        """Returns the key that opens this lock."""
        match lock:
            case KeyFileLock():
                return self._key_of_file(lock, path)
            case PassphraseLock():
                return self._key_of_passphrase(lock, path)
            case _:
                assert_never(lock)

    def lock_with_file(self) -> tuple[Lock, bytes]:
        """Returns a lock, and the key that opens it."""
        root = self._origins.make_key()
        return KeyFileLock(check=_check(root)), _derive(root, _SEALING, KEY_BYTES)

    def lock_with_passphrase(self, passphrase: str) -> tuple[Lock, bytes]:
        salt, costs = secrets.token_bytes(SALT_BYTES), self._costs
        root = _stretch(_new_bytes(passphrase), salt, costs)
        lock = PassphraseLock(
            salt=salt.hex(), passes=costs.passes, memory_kib=costs.memory_kib, lanes=costs.lanes, check=_check(root)
        )
        self._unlocked = (lock, root)
        return lock, _derive(root, _SEALING, KEY_BYTES)

    def _key_of_file(self, lock: KeyFileLock, path: Path) -> bytes:
        try:
            root = self._origins.load_key()
        except FileNotFoundError as cause:
            message = f"the key of {path} is gone; restore vault.key from a backup made with --with-keys"
            raise NotFound("vault_key_missing", message) from cause
        if not _is_key_of(lock, root):
            message = (
                f"vault.key is not the key that {path} was sealed with; restore the two together from a backup made "
                "with --with-keys, or move the vault away and set the secrets again"
            )
            raise Unavailable("vault_key_other", message, is_retryable=False)
        return _derive(root, _SEALING, KEY_BYTES)

    def _key_of_passphrase(self, lock: PassphraseLock, path: Path) -> bytes:
        if self._unlocked is None or self._unlocked[0] != lock:
            self._unlocked = (lock, self._unlock(lock, path))
        return _derive(self._unlocked[1], _SEALING, KEY_BYTES)

    def _unlock(self, lock: PassphraseLock, path: Path) -> bytes:
        passphrase = _bytes_of(self._origins.ask_passphrase())
        if self._refused == (lock, passphrase):
            raise _wrong(path)  # Every attempt to use a key comes here, so a wrong one must not cost each time.
        costs = Costs(passes=lock.passes, memory_kib=lock.memory_kib, lanes=lock.lanes)
        root = _stretch(passphrase, bytes.fromhex(lock.salt), costs)
        if not _is_key_of(lock, root):
            self._refused = (lock, passphrase)
            raise _wrong(path)
        return root


def _wrong(path: Path) -> PalyraError:
    return Unauthorized("vault_passphrase_wrong", f"this is not the passphrase of {path}; try again with the right one")


def _stretch(passphrase: bytes, salt: bytes, costs: Costs) -> bytes:
    from argon2.exceptions import HashingError
    from argon2.low_level import Type, hash_secret_raw

    try:
        return hash_secret_raw(
            passphrase,
            salt,
            time_cost=costs.passes,
            memory_cost=costs.memory_kib,
            parallelism=costs.lanes,
            hash_len=KEY_BYTES,
            type=Type.ID,
        )
    except (HashingError, MemoryError) as cause:
        message = f"a passphrase needs {costs.memory_kib // 1024} MiB of memory for a moment; make room and try again"
        raise Unavailable("vault_memory", message) from cause


def _new_bytes(passphrase: str) -> bytes:
    if len(passphrase) < PASSPHRASE_CHARS_MIN:
        message = f"a passphrase has at least {PASSPHRASE_CHARS_MIN} characters; several words make a good one"
        raise Invalid("vault_passphrase_short", message)
    return _bytes_of(passphrase)


def _bytes_of(passphrase: str) -> bytes:
    """Returns the same bytes however a keyboard composed the letters."""
    try:
        encoded = unicodedata.normalize("NFC", passphrase).encode("utf-8")
    except UnicodeEncodeError:
        # The cause is dropped, because it would show a part of the passphrase.
        raise Invalid("vault_passphrase_form", "a passphrase must be text in UTF-8") from None
    if len(encoded) > PASSPHRASE_BYTES_MAX:
        raise Invalid("vault_passphrase_form", f"a passphrase has at most {PASSPHRASE_BYTES_MAX} bytes")
    return encoded


def _is_key_of(lock: Lock, root: bytes) -> bool:
    return hmac.compare_digest(_check(root), lock.check)


def _check(root: bytes) -> str:
    return _derive(root, _CHECKING, CHECK_BYTES).hex()


def _derive(key: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(key)
