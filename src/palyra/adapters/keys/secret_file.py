"""A secret key in a file. Owns: making it once, atomically, and refusing one that others can read. Not: its use.

The file holds 32 random bytes as one line of hex, mode 0600. Invariant: two processes that start at once end up with
the same key, because the file appears whole and only where there was none.
"""

import os
import secrets
import stat
from pathlib import Path

from palyra.core.errors import Corrupt, Unavailable

KEY_BYTES = 32
_LINE_BYTES_MAX = 2 * KEY_BYTES + 2  # A line of hex and its end; nothing longer is ours.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def load_or_create(path: Path) -> bytes:
    """The key, made if there is none yet."""
    try:
        return load(path)
    except FileNotFoundError:
        _create(path)
        return load(path)


def load(path: Path) -> bytes:
    """FileNotFoundError where there is none; the caller knows whether that is a fault."""
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & _OTHERS:
            message = f"{path} can be read by others (mode {mode:04o}); run: chmod 600 {path}"
            raise Unavailable("key_exposed", message)
        text = file.read(_LINE_BYTES_MAX + 1)
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        message = (
            f"{path} does not hold a key of {KEY_BYTES} bytes in hex; restore it from a backup made with --with-keys"
        )
        raise Corrupt("key_damaged", message)
    return key


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES).hex().encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(partial, path)  # Unlike a rename, a link never replaces a key that came first.
        except FileExistsError:
            return
    finally:
        partial.unlink()
        _sync_directory(path.parent)


def publish(path: Path, line: str) -> None:
    """Writes a small public file whole; the same content again is no change."""
    if path.is_file() and path.read_text(encoding="ascii") == line:
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with partial.open("x", encoding="ascii") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
