"""The vault as a file. Owns: reading it whole, replacing it whole, and one writer at a time. Not: what is in it.

Invariants: the file is the old one or the new one, mode 0600, whatever kills us; one that others can read is refused, never
used; who changes it holds `<name>.lock`, so that of two changes at once none is lost.
"""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from palyra.adapters.vault.header import damaged
from palyra.core.errors import Unavailable

LOCK_WAIT_S = 30.0  # The largest vault is written in under a second; nobody holds the lock while a person is asked.
_LOCK_PAUSE_S = 0.02
_SETTLED_NS = 1_000_000_000  # Coarser than the clock of any file system in use.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class VaultStamp(msgspec.Struct, frozen=True):
    """What tells one state of a file from another without reading it."""

    device: int
    inode: int
    changed_at_ns: int
    modified_at_ns: int
    bytes: int

    @property
    def is_settled(self) -> bool:
        """Whether a later change is sure to have another stamp: the clock of files is coarse, and inodes are used again."""
        return time.time_ns() - max(self.changed_at_ns, self.modified_at_ns) > _SETTLED_NS


def stamp_of(path: Path) -> VaultStamp | None:
    """None where there is no file."""
    try:
        return _stamp(os.stat(path))
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise _unreadable(path, cause) from cause


def read_private(path: Path, bytes_max: int) -> tuple[bytes, VaultStamp] | None:
    """The bytes and the stamp of the very file they were read from; None where there is no file."""
    try:
        # Without waiting: where a pipe lies in its place, opening it would never end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            _require_private(path, found)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(bytes_max + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise _unreadable(path, cause) from cause
    if len(data) > bytes_max:
        raise damaged(path, "is larger than any vault")
    return data, _stamp(found)


def replace_private(path: Path, data: bytes) -> None:
    """With the lock held. When it returns, the new file survives a power cut."""
    try:
        for stale in path.parent.glob(f"{_partial_prefix(path)}*"):
            stale.unlink()  # With the lock held, it is what a crash left.
        partial = path.with_name(f"{_partial_prefix(path)}{secrets.token_hex(8)}")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_directory(path.parent)
    except OSError as cause:
        message = f"{path} could not be written ({cause.strerror}); check space and permissions, then try again"
        raise Unavailable("vault_unwritable", message) from cause


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Makes the directory where there is none. The lock goes with the process, however that ends."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as cause:
        message = f"{lock} could not be made ({cause.strerror}); check --home and permissions"
        raise Unavailable("vault_unwritable", message) from cause
    try:
        _wait_for(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, lock: Path) -> None:
    end_s = time.monotonic() + LOCK_WAIT_S
    while not _try_lock(descriptor, lock):
        if time.monotonic() > end_s:
            raise Unavailable("vault_busy", f"another process has held {lock} for {LOCK_WAIT_S:g} s; try again")
        time.sleep(_LOCK_PAUSE_S)


def _try_lock(descriptor: int, lock: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as cause:
        message = f"{lock} cannot be locked ({cause.strerror}); put the home on a local disk"
        raise Unavailable("vault_unwritable", message) from cause
    return True


def _require_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise damaged(path, "is no file")
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS:
        message = f"{path} can be read by others (mode {mode:04o}); run: chmod 600 {path}"
        raise Unavailable("vault_exposed", message, is_retryable=False)


def _stamp(found: os.stat_result) -> VaultStamp:
    return VaultStamp(found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)


def _unreadable(path: Path, cause: OSError) -> Unavailable:
    message = f"{path} cannot be read ({cause.strerror}); give it to the user who runs palyra"
    return Unavailable("vault_unreadable", message, is_retryable=False)


def _partial_prefix(path: Path) -> str:
    return f".{path.name}.partial-"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
