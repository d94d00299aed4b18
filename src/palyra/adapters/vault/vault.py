"""The vault: secrets by name, read again when the file changed, and changed by one writer at a time.

Does not own: who may ask (app.secrets).
A vault that does not exist is an empty one. The first secret makes it, under the key file. Decrypted values are in
memory only.
Invariant: a file that cannot be read is never replaced by what we remember of it.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from palyra.adapters.files.private import FileKind, PrivateFile
from palyra.adapters.files.regular import FileStamp
from palyra.adapters.vault.contents import FILE_BYTES_MAX, Entries, Entry, decrypt, encrypt, with_entry
from palyra.adapters.vault.header import REMEDY, Lock, LockKind, encode_header, kind_of, read_lock, split_header
from palyra.adapters.vault.keyring import Keyring
from palyra.core.errors import Conflict, NotFound

KIND = FileKind(noun="vault", remedy=REMEDY, bytes_max=FILE_BYTES_MAX)


class SecretRow(msgspec.Struct, frozen=True):
    """What may be shown of a secret."""

    name: str
    set_at_ms: int


class _Opened(msgspec.Struct, frozen=True):
    lock: Lock
    key: bytes
    entries: Entries

    def __repr__(self) -> str:
        return "_Opened()"


class Vault:
    def __init__(self, path: Path, keyring: Keyring) -> None:
        self._path = path
        self._file = PrivateFile(path, KIND)
        self._keyring = keyring
        self._stamp: FileStamp | None = None
        self._opened: _Opened | None = None

    def get(self, name: str) -> str | None:
        opened = self._current()
        entry = opened.entries.get(name) if opened is not None else None
        return entry.value if entry is not None else None

    def rows(self) -> tuple[SecretRow, ...]:
        opened = self._current()
        entries = opened.entries if opened is not None else {}
        return tuple(SecretRow(name, entry.set_at_ms) for name, entry in sorted(entries.items()))

    def values(self) -> frozenset[str]:
        """Returns every value, for redaction."""
        opened = self._current()
        return frozenset(entry.value for entry in opened.entries.values()) if opened is not None else frozenset()

    def lock_kind(self) -> LockKind | None:
        """Tells how the vault is locked, without opening it; None if there is no vault."""
        found = self._file.read()
        return kind_of(self._lock_of(found.data)) if found is not None else None

    def set(self, name: str, value: str, at_ms: int) -> bool:
        """Sets a secret. Tells whether there was one of this name before."""
        had_one = False

        def put(opened: _Opened) -> _Opened:
            nonlocal had_one
            had_one = name in opened.entries
            return msgspec.structs.replace(opened, entries=with_entry(opened.entries, name, Entry(value, at_ms)))

        self._change(put)
        return had_one

    def remove(self, name: str) -> None:
        def take(opened: _Opened) -> _Opened:
            if name not in opened.entries:
                raise NotFound("secret_unknown", f"the vault holds no secret {name}; see palyra secrets list")
            rest = {other: entry for other, entry in opened.entries.items() if other != name}
            return msgspec.structs.replace(opened, entries=rest)

        self._change(take)

    def lock_with_passphrase(self, passphrase: str) -> None:
        """Locks the vault: from now on it opens with this passphrase alone."""
        self._change(lambda opened: _Opened(*self._keyring.lock_with_passphrase(passphrase), opened.entries))

    def lock_with_file(self) -> None:
        """Locks the vault: from now on it opens with the key file alone."""

        def relock(opened: _Opened) -> _Opened:
            if kind_of(opened.lock) is LockKind.KEY_FILE:
                raise Conflict("vault_unprotected", "the vault has no passphrase to remove", is_retryable=False)
            return _Opened(*self._keyring.lock_with_file(), opened.entries)

        self._change(relock)

    def _change(self, change: Callable[[_Opened], _Opened]) -> None:
        self._current()  # If a person must be asked for a passphrase, that happens before others have to wait for us.
        with self._file.locked() as replace:
            opened = self._read()
            if opened is None:
                opened = _Opened(*self._keyring.lock_with_file(), {})
            changed = change(opened)
            header = encode_header(changed.lock)
            replace(encrypt(header, changed.key, changed.entries))
        self._stamp = self._opened = None

    def _current(self) -> _Opened | None:
        stamp = self._file.stamp()
        if stamp is None or stamp != self._stamp:
            return self._read()
        return self._opened

    def _read(self) -> _Opened | None:
        # A file that cannot be read now is tried again, and no older value is given out.
        self._stamp = self._opened = None
        found = self._file.read()
        if found is None:
            return None
        header, body = split_header(found.data, self._path)
        lock = read_lock(header, self._path)
        key = self._keyring.key_for(lock, self._path)
        self._opened = _Opened(lock, key, decrypt(header, body, key, self._path))
        self._stamp = found.stamp if found.stamp.is_settled else None
        return self._opened

    def _lock_of(self, data: bytes) -> Lock:
        return read_lock(split_header(data, self._path)[0], self._path)
