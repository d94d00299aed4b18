"""Partial files: the whole new content of a workspace file, durable beside it, before a rename puts it in place.

Does not own: the rename, nor the boundary of the workspace (workspace).
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from palyra.adapters.files.workspace import WorkspacePath

MARK = "user.palyra.effect"  # This attribute names the effect that wrote the very content of a file.
_PERMISSIONS = 0o777  # These bits of a file's mode are kept: new content is never setuid.
_EXECUTE_BITS = 0o111


class Writing(msgspec.Struct, frozen=True):
    """A file to be replaced, and the name of its partial file."""

    place: WorkspacePath
    body: bytes
    partial_name: str


def is_kept_executable(paths: Iterable[str], workspace: tuple[str, ...]) -> bool:
    """Tells whether one of these files can be executed. New content keeps the permissions, so it could be as well."""
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(os.stat(os.path.join(workspace[0], path)).st_mode)
    return any(stat.S_ISREG(mode) and mode & _EXECUTE_BITS for mode in found)


def fill_partial(writing: Writing, folder: int, before: os.stat_result | None) -> None:
    """Writes the partial file durably beside the file it will replace, with that file's owner and mode."""
    with suppress(FileNotFoundError):
        os.unlink(writing.partial_name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(writing.partial_name, flags, 0o666 if before is None else 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as stream:
        stream.write(writing.body)
        stream.flush()
        if before is not None:
            _keep_attributes(file, before)
        os.fsync(file)


def _keep_attributes(file: int, before: os.stat_result) -> None:
    """Keeps the owner as far as the daemon's user may.

    The mode is always kept, and set last, because the owner could clear it.
    """
    now = os.fstat(file)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):
            os.fchown(file, before.st_uid, before.st_gid)
    os.fchmod(file, before.st_mode & _PERMISSIONS)
