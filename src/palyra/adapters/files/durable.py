"""Durable writes: when a function here returns, what it wrote survives a power cut.

Owns: new files, whole replacements, exclusive creation, folders, and the removal of partial files.
Does not own: errors in our words, locks, or reading; callers see OSError.
Invariants: under its final name a file is the old one or the new one, never between. A write that fails removes its
partial file. A killed write leaves it, and `clear_partials` removes it.
"""

import os
import secrets
from pathlib import Path

PRIVATE = 0o600
PUBLIC = 0o644
PRIVATE_FOLDER = 0o700
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write_new(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Writes a file that must not exist yet, with exactly this mode. Its name is durable once its folder is synced."""
    descriptor = os.open(path, _NEW_FILE, PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def replace_whole(path: Path, data: bytes, mode: int = PRIVATE) -> None:
    """Makes the file hold `data`, whether or not there was one."""
    partial = _beside(path, "partial")
    write_new(partial, data, mode)
    try:
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create_whole(path: Path, data: bytes, mode: int = PRIVATE) -> bool:
    """Creates the file. Returns False, and changes nothing, if there is one.

    Of two processes that start at once, one creates it.
    """
    # The name differs from a replacement's: the holder of the lock may remove those, and creating needs no lock.
    partial = _beside(path, "new")
    write_new(partial, data, mode)
    try:
        os.link(partial, path)  # Unlike a rename, a link never replaces what came first.
    except FileExistsError:
        return False
    finally:
        partial.unlink()
        sync_folder(path.parent)
    return True


def clear_partials(path: Path) -> None:
    """Removes what killed replacements of this file left. Only the one who may replace the file may call this."""
    for left in path.parent.glob(f".{path.name}.partial-*"):
        left.unlink(missing_ok=True)


def ensure_folder(folder: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Creates the folder and those above it; each is durable."""
    if folder.is_dir():
        return
    ensure_folder(folder.parent, mode)
    folder.mkdir(mode=mode, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in the folder durable."""
    descriptor = os.open(folder, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}-{secrets.token_hex(8)}")
