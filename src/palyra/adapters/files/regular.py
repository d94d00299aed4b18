"""Bounded reads of regular files, and the stamp of what was read.

Owns: opening without following a link or waiting for a pipe, and telling one state of a file from another.
Does not own: who may read a file, nor what is in it.
"""

import errno
import os
import stat
import time
from pathlib import Path

import msgspec

_SETTLED_NS = 1_000_000_000  # The clock of every file system in use is finer than this.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UnfitFile(Exception):
    """There is a link, a folder or a device at the path. The text completes a sentence that names the file."""


class OversizedFile(UnfitFile):
    """The file has more bytes than the reader takes."""


class FileStamp(msgspec.Struct, frozen=True):
    """Values that tell one state of a file from another without reading it."""

    device: int
    inode: int
    changed_at_ns: int
    modified_at_ns: int
    bytes: int

    @property
    def is_settled(self) -> bool:
        """Tells whether every later change has another stamp.

        The clock of files is coarse, and inodes are used again.
        """
        return time.time_ns() - max(self.changed_at_ns, self.modified_at_ns) > _SETTLED_NS


class FileRead(msgspec.Struct, frozen=True):
    """The bytes, with the stamp and the mode of the very file they were read from."""

    data: bytes
    stamp: FileStamp
    mode: int


def stamp_of(path: Path) -> FileStamp | None:
    """Returns the stamp of the path itself, even if it is a link; None if there is nothing."""
    try:
        return _stamp(os.lstat(path))
    except FileNotFoundError:
        return None


def read_regular(path: Path, bytes_max: int) -> FileRead:
    """Reads the whole file. Raises UnfitFile, OversizedFile, or OSError as opening and reading do."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError as cause:
        if cause.errno == errno.ELOOP:
            raise UnfitFile("is a link") from cause
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnfitFile("is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise OversizedFile(f"is larger than {bytes_max} bytes")
    return FileRead(data, _stamp(found), stat.S_IMODE(found.st_mode))


def _stamp(found: os.stat_result) -> FileStamp:
    return FileStamp(found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size)
