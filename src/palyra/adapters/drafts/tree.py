"""Reads files below a root without ever following a link.

Owns: hashes of what lies at a path, the folder that holds it. Does not own: changing anything (apply).
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count

from palyra.adapters.files.archives import FILE_FLAGS, hash_link
from palyra.core.drafts.plan import ABSENT, FOLDER_SHA256, FileState

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # A user may enter what it cannot list.
STRANGE_SHA256 = "strange"  # Stands for the content of a device, a pipe or a socket.
STRANGE = FileState(sha256=STRANGE_SHA256)  # One of these, or a path that leads through a link.
PERMISSIONS = 0o777
_PIECE_BYTES = 1 << 20
_MOVED = "palyra-moved-"
_PROBE = ".palyra-case-"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Tree:
    """A root, opened once. `close` it, or use it in a `with`."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.handle = open_root(root)

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    @contextmanager
    def folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """Opens the folder that holds the path, one component at a time. Yields it with the last name."""
        *folders, name = path.rstrip("/").split("/")
        handle = os.dup(self.handle)
        try:
            for part in folders:
                inner = os.open(part, FOLDER_FLAGS, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle, name
        finally:
            os.close(handle)

    def holds(self, folder: int, path: str) -> bool:
        """Tells whether this open folder still is the one that holds the path: neither it nor the root was moved."""
        try:
            with Tree(self.root) as now, now.folder_of(path) as (found, _):
                return os.path.sameopenfile(found, folder)
        except OSError:
            return False

    def look(self, path: str) -> FileState:
        try:
            with self.folder_of(path) as (folder, name):
                return look_at(folder, name)
        except OSError as cause:
            if cause.errno == errno.ENOENT:
                return ABSENT
            if cause.errno in _GONE:
                # A file stands where a folder was: nothing of that folder is there.
                return ABSENT if not self._passes_link(path) else STRANGE
            raise

    def ignores_case(self, path: str) -> bool:
        """Tells whether names that differ in case are one file in the folder that holds the path, or would hold it.

        A file is made there for a moment. Disks ignore case folder by folder, and not all of them tell.
        """
        name = f"{_PROBE}{secrets.token_hex(8)}"
        with self.nearest(path) as handle:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=handle))
            try:
                return look_at(handle, name.upper()) is not ABSENT
            finally:
                os.unlink(name, dir_fd=handle)

    @contextmanager
    def nearest(self, path: str) -> Iterator[int]:
        """Opens the deepest folder on the way to the path that is there."""
        handle = os.dup(self.handle)
        try:
            for part in path.rstrip("/").split("/")[:-1]:
                try:
                    inner = os.open(part, FOLDER_FLAGS, dir_fd=handle)
                except OSError:
                    break
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def _passes_link(self, path: str) -> bool:
        parts = path.rstrip("/").split("/")[:-1]
        found = self.root
        for part in parts:
            found = f"{found}/{part}"
            if os.path.islink(found):
                return True
        return False


def open_root(root: str) -> int:
    """Opens a root, whose path holds no link: if there is one now, somebody else's folder stands there."""
    handle = os.open("/", _PASSED_FLAGS)
    try:
        *passed, last = [".", *(part for part in root.split("/") if part)]
        for part in passed:
            inner = os.open(part, _PASSED_FLAGS, dir_fd=handle)
            os.close(handle)
            handle = inner
        return os.open(last, FOLDER_FLAGS, dir_fd=handle)
    finally:
        os.close(handle)


def look_at(folder: int, name: str) -> FileState:
    """Returns what lies at a name in an open folder."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return ABSENT
    mode = found.st_mode & PERMISSIONS
    if stat.S_ISDIR(found.st_mode):
        return FileState(sha256=FOLDER_SHA256, mode=mode)
    if stat.S_ISLNK(found.st_mode):
        return FileState(sha256=hash_link(os.readlink(name, dir_fd=folder)), mode=PERMISSIONS)
    if not stat.S_ISREG(found.st_mode):
        return STRANGE
    file = os.open(name, FILE_FLAGS, dir_fd=folder)
    try:
        return FileState(sha256=hash_file(file), mode=mode)
    finally:
        os.close(file)


def hash_file(file: int) -> str:
    digest = hashlib.sha256()
    while piece := os.read(file, _PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def remove_tree(path: str) -> None:
    """Removes a folder with all it holds. Folders without permissions, which overlays make, are opened first.

    A command may have made folders deeper than a path can be long. So each inner folder is moved to the top before it
    is emptied.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        _unlock(path, None)
        top = os.open(path, FOLDER_FLAGS)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _unlock(name: str, folder: int | None) -> None:
    """Lets the owner into a folder. A link that stands there instead is not followed."""
    found = os.open(name, _PASSED_FLAGS, dir_fd=folder)
    try:
        with suppress(PermissionError):
            os.chmod(f"/proc/self/fd/{found}", 0o700)
    finally:
        os.close(found)


def _empty(top: int) -> None:
    pending = _keep_folders(top)
    # A removal that was killed leaves folders which were moved already.
    taken = frozenset(pending)
    free = (each for each in (f"{_MOVED}{number}" for number in count()) if each not in taken)
    while pending:
        name = pending.pop()
        inner = os.open(name, FOLDER_FLAGS, dir_fd=top)
        try:
            for each in _keep_folders(inner):
                moved = next(free)
                os.rename(each, moved, src_dir_fd=inner, dst_dir_fd=top)
                pending.append(moved)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)


def _keep_folders(folder: int) -> list[str]:
    """Removes all files of an open folder, and returns the names of its folders, which can be entered then."""
    found = []
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_inner in listed:
        if is_inner:
            _unlock(name, folder)
            found.append(name)
        else:
            os.unlink(name, dir_fd=folder)
    return found
