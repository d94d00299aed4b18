"""Finds and reads folders of skills, so that nothing leads outside.

Does not own: what a skill says (front_matter).
Invariants: every step below the base is opened relative to the folder before it and without following links. So neither
a symbolic link nor a folder that is replaced by one leads out. A folder that holds a link, a device or too much is
refused whole.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

import msgspec

from palyra.core.errors import Unavailable
from palyra.core.skills import SkillFile, SkillPlace
from palyra.core.spelling import is_seen

SKILLS_MAX = 200  # Limits the folders read in one place. Nobody could tell more apart.
ENTRIES_MAX = 10_000
FILES_MAX = 200
FOLDERS_MAX = 200  # Empty folders count. A skill is looked through before each turn that names it.
DEPTH_MAX = 8
FOLDER_BYTES_MAX = 16 * 1024 * 1024  # A folder is read whole to be hashed.
PASSED_OVER = frozenset({".git"})  # A skill may be a clone. Its history is no part of it and cannot be read.

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening does not block, so that a pipe in a file's place cannot hold the thread.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

Stamp = tuple[tuple[str, int, int, int, int], ...]
# The arguments are the folder that a file or folder lies in, its name there, its path, and its status.
_OnEntry = Callable[[int, str, str, os.stat_result], None]


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Where skills lie. `anchor` is the operator's own path; `steps` below it are walked without following links."""

    place: SkillPlace
    anchor: str
    steps: tuple[str, ...] = ()
    root: str = ""


class Content(msgspec.Struct, frozen=True):
    """The files of one skill by their paths, as they were read."""

    bodies: dict[str, bytes]

    @property
    def sha256(self) -> str:
        """Hashes every path and body with their lengths, so that no two folders share a hash."""
        digest = hashlib.sha256(b"palyra skill 1\n")
        for path in sorted(self.bodies):
            name, body = path.encode(), self.bodies[path]
            digest.update(f"{len(name)} {len(body)}\n".encode() + name)
            digest.update(body)
        return digest.hexdigest()

    @property
    def files(self) -> tuple[SkillFile, ...]:
        return tuple(SkillFile(path=path, bytes=len(self.bodies[path])) for path in sorted(self.bodies))


class SkillRefused(Exception):
    """The folder cannot be a skill; the text says why."""


@contextmanager
def opened(base: Base) -> Iterator[int | None]:
    """Opens the folder of skills; None if there is none, or there is a link in its place."""
    folder = _open_base(base)
    try:
        yield folder
    finally:
        if folder is not None:
            os.close(folder)


def names_in(folder: int) -> list[str]:
    """Returns what could be a skill, in order. Files beside the folders are ignored; links are listed to be refused."""
    try:
        with os.scandir(folder) as entries:
            found = [entry.name for entry in islice(entries, ENTRIES_MAX) if _is_like_a_folder(entry)]
    except OSError as cause:
        raise Unavailable("skills_unreadable", f"a folder of skills cannot be read: {cause.strerror}") from cause
    return sorted(found)[:SKILLS_MAX]


def holds(folder: int, name: str) -> bool:
    """Tells whether there is something by this name that could be a skill."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def stamp_of(folder: int, name: str) -> Stamp:
    """Returns what tells one state of a skill's folder from another without reading it. Raises SkillRefused."""
    found: list[tuple[str, int, int, int, int]] = []

    def note(_folder: int, _name: str, path: str, status: os.stat_result) -> None:
        found.append((path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))

    _visit_skill(folder, name, note)
    return tuple(sorted(found))


def read_content(folder: int, name: str) -> Content:
    """Reads every file of a skill now. Raises SkillRefused."""
    bodies: dict[str, bytes] = {}
    left = FOLDER_BYTES_MAX

    def keep(inner: int, file_name: str, path: str, _status: os.stat_result) -> None:
        nonlocal left
        bodies[path] = _read_file(inner, file_name, path, left)
        left -= len(bodies[path])

    _visit_skill(folder, name, keep)
    return Content(bodies)


def _is_like_a_folder(entry: "os.DirEntry[str]") -> bool:
    return not entry.name.startswith(".") and (entry.is_dir(follow_symlinks=False) or entry.is_symlink())


def _open_base(base: Base) -> int | None:
    try:
        return _walk(base)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as cause:
        # Whoever writes in a workspace must not be able to take the other skills away.
        if base.place is SkillPlace.WORKSPACE:
            return None
        raise Unavailable("skills_unreadable", f"{base.anchor} cannot be read: {cause.strerror}") from cause


def _walk(base: Base) -> int:
    folder = os.open(base.anchor, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for step in base.steps:
        try:
            inner = os.open(step, _FOLDER_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _visit_skill(folder: int, name: str, on_file: _OnEntry) -> None:
    files_count = folders_count = 0

    def counted(inner: int, entry_name: str, path: str, status: os.stat_result) -> None:
        nonlocal files_count, folders_count
        if stat.S_ISDIR(status.st_mode):
            folders_count += 1
        else:
            files_count += 1
            on_file(inner, entry_name, path, status)
        if files_count > FILES_MAX or folders_count > FOLDERS_MAX:
            raise SkillRefused(f"it holds more than {FILES_MAX} files or {FOLDERS_MAX} folders")

    try:
        _visit(folder, name, "", counted)
    except OSError as cause:
        raise SkillRefused(f"it cannot be read: {cause.strerror}") from cause


def _visit(parent: int, name: str, prefix: str, on_entry: _OnEntry) -> None:
    """Calls `on_entry` for every regular file and folder below. `prefix` is the path so far, with a slash at its end."""
    if prefix.count("/") > DEPTH_MAX:
        raise SkillRefused(f"its folders are nested deeper than {DEPTH_MAX}")
    _require_no_link(parent, name)
    folder = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    try:
        with os.scandir(folder) as entries:
            listed = [entry.name for entry in islice(entries, ENTRIES_MAX)]
        for inner_name in sorted(listed):
            if inner_name not in PASSED_OVER:
                _visit_entry(folder, inner_name, prefix, on_entry)
    finally:
        os.close(folder)


def _visit_entry(folder: int, name: str, prefix: str, on_entry: _OnEntry) -> None:
    if not all(map(is_seen, name)):
        raise SkillRefused("a file in it has a name that cannot be shown")
    path = f"{prefix}{name}"
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        on_entry(folder, name, path, status)
        _visit(folder, name, f"{path}/", on_entry)
    elif stat.S_ISREG(status.st_mode):
        on_entry(folder, name, path, status)
    elif stat.S_ISLNK(status.st_mode):
        raise SkillRefused(f"{path} is a symbolic link; put the file itself there")
    else:
        raise SkillRefused(f"{path} is a device, pipe or socket")


def _require_no_link(parent: int, name: str) -> None:
    """Refuses a link. This is for the words only: opening would refuse it as well."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise SkillRefused("the folder is a symbolic link; put the folder itself there")


def _read_file(folder: int, name: str, path: str, bytes_max: int) -> bytes:
    file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise SkillRefused(f"{path} is no regular file")
        pieces: list[bytes] = []
        left = bytes_max + 1
        while left > 0 and (piece := os.read(file, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(file)
    if left <= 0:
        raise SkillRefused(f"its files have more than {FOLDER_BYTES_MAX} bytes together")
    return b"".join(pieces)
