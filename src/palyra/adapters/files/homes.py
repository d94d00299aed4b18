"""Workspaces that hold more than a project: somebody's home, or a folder above repositories.

Owns: telling them, and which of their files begin with a dot. Does not own: what is asked (policy), warnings (doctor).
Programs obey dot-files of such a folder at once and everywhere, and no repository shows that they changed.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from palyra.core.drafts.outside import is_cache, is_git_data

ENTRIES_MAX = 2000  # Of the folders that are looked through for repositories.
FRESH_S = 60.0
_known: dict[str, tuple[float, str | None]] = {}


def why_wide(root: str) -> str | None:
    """Returns what makes a workspace too wide, for a person; None if it is an ordinary one."""
    now = time.monotonic()
    found = _known.get(root)
    if found is None or now - found[0] > FRESH_S:
        _known[root] = found = (now, _look(root))
    return found[1]


def is_wide_dot_file(root: str, path: str) -> bool:
    """Tells whether a path relative to the root is a dot-file of a home, or of a folder above repositories."""
    return path.startswith(".") and not is_git_data(path) and not is_cache(path) and why_wide(root) is not None


def _look(root: str) -> str | None:
    real = os.path.realpath(root)
    if _is_home(real):
        return "is a home folder, whose dot-files your shell and your programs obey"
    if any(os.path.lexists(f"{folder}/.git") for folder in (real, *map(str, Path(real).parents))):
        return None
    below = next((folder for folder in islice(_folders(real), ENTRIES_MAX) if os.path.lexists(f"{folder}/.git")), None)
    return None if below is None else f"lies above a repository ({os.path.relpath(below, real)})"


def _is_home(real: str) -> bool:
    homes = (os.path.expanduser("~"), os.environ.get("HOME", ""))
    return any(home and os.path.realpath(home) == real for home in homes)


def _folders(real: str) -> Iterator[str]:
    """Yields the folders in a folder, and those in them."""
    first = list(_inner(real))
    yield from first
    for folder in first:
        yield from _inner(folder)


def _inner(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.path
