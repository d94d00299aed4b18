"""A small text file that only its owner may read. Owns: making, replacing, locking and reading it. Not: what is in it.

Invariants: the file appears whole or not at all, mode 0600; one that others can read is refused, never used. Who changes
what is in it reads and replaces it under its lock, so of two processes that change it at once neither loses anything.
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

from palyra.core.errors import Corrupt, Unavailable

FILE_BYTES_MAX = 4 * 1024 * 1024  # Some ten thousand tokens; more belong into a database.
LOCK_WAIT_S = 10.0  # Changing a file takes milliseconds; who holds its lock this long is stuck.
_LOCK_PAUSE_S = 0.01
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class FileStamp(msgspec.Struct, frozen=True):
    """What tells one state of a file from another without reading it."""

    inode: int
    changed_at_ns: int
    modified_at_ns: int
    bytes: int


def stamp_of(path: Path) -> FileStamp | None:
    """None where there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return FileStamp(found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)


def read_private(path: Path) -> str:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & _OTHERS:
            raise Unavailable(
                "tokens_exposed", f"{path} can be read by others (mode {mode:04o}); run: chmod 600 {path}"
            )
        body = file.read(FILE_BYTES_MAX + 1)
    if len(body) > FILE_BYTES_MAX:
        raise Corrupt("tokens_damaged", f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise Corrupt("tokens_damaged", f"{path} is not text; restore it from a backup or remove it") from cause


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else changes the file within. The lock is on a file beside it, which replacing does not touch."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.lock")
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)  # Lets go of the lock, as the end of the process would.


def _wait_for_lock(descriptor: int, path: Path) -> None:
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            if time.monotonic() >= deadline_s:
                raise Unavailable("tokens_busy", f"another process holds the lock of {path}; try again") from cause
            time.sleep(_LOCK_PAUSE_S)
        else:
            return


def create_private(path: Path, text: str) -> None:
    """Does nothing where there is a file already: of two processes that start at once, one makes it."""
    partial = _write_beside(path, text)
    try:
        os.link(partial, path)  # Unlike a rename, a link never replaces what came first.
    except FileExistsError:
        return
    finally:
        partial.unlink()
        _sync_directory(path.parent)


def replace_private(path: Path, text: str) -> None:
    partial = _write_beside(path, text)
    partial.replace(path)
    _sync_directory(path.parent)


def _write_beside(path: Path, text: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return partial


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
