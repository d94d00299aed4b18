"""Links whose names something outside the sandbox obeys: writing what they lead to is writing them.

Owns: finding them, and joining them with what git obeys by other names (repositories).
Does not own: what a name means (core.drafts.outside, core.sensitive_files), judging (policy).
The look-up is bounded: the links that lie in a root itself, and in the few folders below it that hold hooks or settings.
A command may make as many links as it likes, so what a path costs does not depend on their number.
"""

import os
import stat
from bisect import bisect_left
from collections.abc import Iterable
from itertools import islice

from palyra.adapters.files.repositories import find_named, find_repositories
from palyra.core.drafts.outside import is_git_data, is_run_next, is_run_outside
from palyra.core.sensitive_files import is_sensitive

FOLDERS = ("", ".git", ".git/hooks", ".githooks", ".husky", ".github", ".vscode", ".claude", ".cursor")
ENTRIES_MAX = 200_000  # Of one folder. In a larger one a link could hide, so its root counts as what git obeys.
HOPS_MAX = 16
RESOLVES_MAX = 16
NAMES_MAX = 16  # Of one path. One that has more counts as what git obeys: nobody makes so many links by chance.
OBEYED = ".git/config"

Named = tuple[str, str]  # The name of a link below its root, and an absolute path that it leads to.


class Links:
    """Links by the paths that they lead to."""

    def __init__(self, found: Iterable[Named]) -> None:
        self._names: dict[str, dict[str, None]] = {}
        for name, target in found:
            self._names.setdefault(target, {})[name] = None
        self._targets = sorted(self._names)

    def __bool__(self) -> bool:
        return bool(self._targets)

    def names_of(self, path: str) -> tuple[str, ...]:
        """Returns the other names by which an absolute path is reached. A link to a folder leads to all that is below."""
        found: dict[str, None] = {}
        for end in (len(path), *(place for place in range(len(path) - 1, 0, -1) if path[place] == "/")):
            names = self._names.get(path[:end], ())
            if len(found) + len(names) > NAMES_MAX:
                return (OBEYED,)
            found |= dict.fromkeys(name + path[end:] for name in names)
        return tuple(found)

    def names_behind(self, path: str) -> tuple[str, ...]:
        """Returns the names whose way leads through this path. If it becomes a link, they lead somewhere else."""
        found: dict[str, None] = {}
        place = bisect_left(self._targets, f"{path}/")
        while place < len(self._targets) and self._targets[place].startswith(f"{path}/"):
            found |= self._names[self._targets[place]]
            if len(found) > NAMES_MAX:
                return (OBEYED,)
            place += 1
        return tuple(found)


def find_links(roots: Iterable[str], paths: Iterable[str]) -> Links:
    """Returns the links of these roots, and for the absolute paths also the repositories they lie in."""
    whole, found = tuple(paths), list[Named]()
    for root in map(os.path.realpath, roots):
        found += (link for folder in FOLDERS for link in _links_in(root, folder))
        inside = [path for path in whole if path.startswith(f"{root}/")]
        found += ((name, place) for name, named in find_named(root, inside) for place in way_of(named))
        found += find_repositories(root, inside)
    return Links(found)


def linked_names(paths: Iterable[str], workspace: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of links that lead to any of these paths, which are relative to the first root or absolute.

    What git stores is written by git. A tool that writes it brings content into reach that nobody judged.
    """
    whole = [_resolve(os.path.join(workspace[0], path)) for path in paths]
    links = find_links(workspace, whole)
    names = tuple(name for path in whole for name in links.names_of(path))
    return (*names, OBEYED) if any(map(is_git_data, (*whole, *names))) else names


def _resolve(path: str) -> str:
    """Follows links. A link that goes away between two looks is looked at again; one that never rests is an error."""
    for _ in range(RESOLVES_MAX):
        try:
            return os.path.realpath(path)
        except OSError:
            continue
    return os.path.realpath(path)


def _links_in(root: str, folder: str) -> list[Named]:
    place = os.path.join(root, folder) if folder else root
    names: list[str] = []
    try:
        if not stat.S_ISDIR(os.lstat(place).st_mode):
            return []  # A folder that is a link itself is found where it lies.
        with os.scandir(place) as entries:
            names += (entry.name for entry in islice(entries, ENTRIES_MAX) if entry.is_symlink())
            if next(entries, None) is not None:
                return [(OBEYED, root)]
    except OSError:
        return []
    known = (f"{folder}/{name}" if folder else name for name in names)
    return [(name, target) for name in known if _is_obeyed(name) for target in _targets(os.path.join(root, name))]


def _is_obeyed(name: str) -> bool:
    return is_sensitive(name) or is_run_outside(name, is_link=True) or is_run_next(name)


def _targets(link: str) -> list[str]:
    return way_of(link)[1:]


def way_of(path: str) -> list[str]:
    """Returns the links on the way of a path, and its end. Whoever replaces one of them changes the end."""
    found: list[str] = []
    place, rest = "/", path.split("/")
    while rest and len(found) < HOPS_MAX:
        part = rest.pop(0)
        if part == "..":
            place = os.path.dirname(place)
        if part in ("", ".", ".."):
            continue
        here = os.path.join(place, part)
        try:
            target = os.readlink(here)
        except OSError:
            place = here
            continue
        found.append(here)
        place = "/" if target.startswith("/") else place
        rest = target.split("/") + rest
    return found if rest else [*found, place]
