"""Walks a folder for a reference: its names, and which of its files may be shown.

Does not own: reading the files (files).
Folders come level by level, so that what lies near the top is seen first. Hidden entries, links, devices, files that
hold keys and what `.gitignore` and `.ignore` name are left out. The walk ends after ENTRIES_LOOKED_MAX entries, so a
folder of any size costs the same.
"""

import os
from collections import deque

import msgspec
from msgspec.structs import replace

from palyra.adapters.files.ignore_levels import IgnoreLevels, read_levels
from palyra.adapters.files.workspace import WorkspacePath, open_itself
from palyra.core.errors import PalyraError
from palyra.core.sensitive_files import is_secret
from palyra.core.spelling import spell_out

ENTRIES_LOOKED_MAX = 4_000
LISTED_MAX = 120
DEPTH_MAX = 8
IGNORE_BYTES_MAX = 64 * 1024  # The daemon itself matches these rules, so an ignore file is bounded tightly.
NOT_ENTERED = frozenset({"node_modules", "__pycache__"})
_IGNORE_FILES = (".git", ".gitignore", ".ignore")


class FolderView(msgspec.Struct, frozen=True, kw_only=True):
    """`names` are the listed entries below the folder, folders with a slash. `files` are the files among all entries."""

    lines: tuple[str, ...]
    names: tuple[str, ...]
    files: tuple[str, ...]
    looked_count: int
    unlisted_count: int
    is_partial: bool


class _Entry(msgspec.Struct, frozen=True):
    name: str
    is_folder: bool
    size_bytes: int


class _Folder(msgspec.Struct, frozen=True):
    """A folder to look at: its parts below the one that was asked for, and the ignore files above it."""

    below: tuple[str, ...]
    levels: IgnoreLevels


def walk_folder(place: WorkspacePath) -> FolderView:
    """Raises NotFound, Unauthorized or Invalid if the place is no folder of the workspace."""
    walk = _FolderWalk(place)
    walk.run()
    return walk.view()


class _FolderWalk:
    def __init__(self, place: WorkspacePath) -> None:
        self._place = place
        self._looked_count = 0
        self._unlisted_count = 0
        self._is_partial = False
        self._lines: list[str] = []
        self._names: list[str] = []
        self._files: list[str] = []

    def run(self) -> None:
        queue = deque([_Folder((), self._levels_above())])
        while queue and not self._is_partial:
            queue.extend(self._look(queue.popleft()))
        self._is_partial = self._is_partial or bool(queue)

    def view(self) -> FolderView:
        return FolderView(
            lines=tuple(self._lines),
            names=tuple(self._names),
            files=tuple(self._files),
            looked_count=self._looked_count,
            unlisted_count=self._unlisted_count,
            is_partial=self._is_partial,
        )

    def _levels_above(self) -> IgnoreLevels:
        """Reads the ignore files of the folders above, from the root on. Their rules count here too."""
        levels = IgnoreLevels()
        for count in range(len(self._place.parts)):
            above = replace(self._place, parts=self._place.parts[:count])
            with open_itself(above) as folder:
                levels = _read_levels(folder, above.parts, levels)
        return levels

    def _look(self, wanted: _Folder) -> list[_Folder]:
        place = replace(self._place, parts=(*self._place.parts, *wanted.below))
        try:
            with open_itself(place) as folder:
                levels = _read_levels(folder, place.parts, wanted.levels)
                entries = self._entries(folder)
        except PalyraError:
            if not wanted.below:
                raise
            return []  # The folder is gone, was replaced by a link, or may not be read.
        return [inner for entry in entries if (inner := self._take(entry, wanted, levels)) is not None]

    def _entries(self, folder: int) -> list[_Entry]:
        found: list[_Entry] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._looked_count == ENTRIES_LOOKED_MAX:
                    self._is_partial = True
                    break
                self._looked_count += 1
                one = _read_entry(entry)
                if one is not None:
                    found.append(one)
        return sorted(found, key=lambda each: (each.is_folder, each.name))

    def _take(self, entry: _Entry, wanted: _Folder, levels: IgnoreLevels) -> _Folder | None:
        below = (*wanted.below, entry.name)
        parts = (*self._place.parts, *below)
        slash = "/" if entry.is_folder else ""
        path = "/".join(parts) + slash
        if is_secret(path) or levels.is_ignored(path.encode()):
            return None
        self._list("/".join(below) + slash, entry)
        if not entry.is_folder:
            self._files.append("/".join(below))
            return None
        is_entered = entry.name not in NOT_ENTERED and len(below) < DEPTH_MAX
        return _Folder(below, levels) if is_entered else None

    def _list(self, name: str, entry: _Entry) -> None:
        if len(self._lines) == LISTED_MAX:
            self._unlisted_count += 1
            return
        self._names.append(name)
        self._lines.append(spell_out(name) if entry.is_folder else f"{spell_out(name)} {entry.size_bytes}")


def _read_levels(folder: int, parts: tuple[str, ...], levels: IgnoreLevels) -> IgnoreLevels:
    there = [name for name in _IGNORE_FILES if _exists(folder, name)]
    length = sum(len(part.encode()) + 1 for part in parts)
    return read_levels(folder, there, length, levels, IGNORE_BYTES_MAX)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _read_entry(entry: "os.DirEntry[str]") -> _Entry | None:
    """Returns a file or a folder that is not hidden. Anything else, and a name that is no Unicode, is left out."""
    if entry.name.startswith("."):
        return None
    try:
        entry.name.encode()
        if entry.is_dir(follow_symlinks=False):
            return _Entry(entry.name, True, 0)
        if entry.is_file(follow_symlinks=False):
            return _Entry(entry.name, False, entry.stat(follow_symlinks=False).st_size)
    except (OSError, UnicodeEncodeError):
        pass
    return None
