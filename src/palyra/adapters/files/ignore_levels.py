"""The ignore files that count in a folder, found while walking down to it.

Does not own: their rules (ignore), nor the walk (search_child, adapters.references).
"""

import os
import stat
from collections.abc import Collection
from typing import NamedTuple

from palyra.adapters.files.ignore import IGNORE_BYTES_MAX, IgnoreRules

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class IgnoreLevel(NamedTuple):
    """The rules of an ignore file, and the length of its folder's path."""

    rules: IgnoreRules
    length: int


class IgnoreLevels(NamedTuple):
    """The ignore files that count in a folder, of each kind the deepest first."""

    own: tuple[IgnoreLevel, ...] = ()
    git: tuple[IgnoreLevel, ...] = ()

    def is_ignored(self, path: bytes) -> bool:
        """Tells whether the path is ignored. Rules for searching outrank git's, at whatever depth they stand."""
        for level in (*self.own, *self.git):
            verdict = level.rules.verdict(path[level.length :])
            if verdict is not None:
                return verdict
        return False


def read_levels(
    folder: int, names: Collection[str], length: int, levels: IgnoreLevels, bytes_max: int = IGNORE_BYTES_MAX
) -> IgnoreLevels:
    """Adds the ignore files of a folder. `length` is that of the folder's path below the walk's root."""
    own, git = levels
    if ".git" in names:
        git = ()  # This is a repository of its own, so the rules around it do not apply.
    if ".gitignore" in names:
        git = (*_read_level(folder, ".gitignore", length, bytes_max), *git)
    if ".ignore" in names:
        own = (*_read_level(folder, ".ignore", length, bytes_max), *own)
    return IgnoreLevels(own, git)


def _read_level(folder: int, name: str, length: int, bytes_max: int) -> tuple[IgnoreLevel, ...]:
    """Reads an ignore file. Git takes none that is a link; nor do we."""
    try:
        file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError:
        return ()
    try:
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        return (IgnoreLevel(IgnoreRules(os.read(file, bytes_max)), length),) if is_file else ()
    finally:
        os.close(file)
