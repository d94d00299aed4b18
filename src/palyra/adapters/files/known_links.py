"""Links whose names something outside the sandbox obeys: writing what they lead to is writing them.

Owns: finding them, and joining them with what git obeys by other names (repositories).
Does not own: what a name means (core.drafts.outside, core.sensitive_files), judging (policy).
The look-up is bounded: the links that lie in a root itself, and in the few folders below it that hold hooks or settings.
"""

import os
import stat
from collections.abc import Iterable
from itertools import islice

from palyra.adapters.files.repositories import find_named, find_repositories
from palyra.core.drafts.outside import is_run_next, is_run_outside
from palyra.core.sensitive_files import is_sensitive

FOLDERS = ("", ".git", ".git/hooks", ".githooks", ".husky", ".github", ".vscode", ".claude", ".cursor")
ENTRIES_MAX = 20_000  # Of one folder. A larger one is not searched further.
HOPS_MAX = 16
RESOLVES_MAX = 16

Links = tuple[tuple[str, str], ...]  # The name of a link below its root, and an absolute path that it leads to.


def find_links(roots: Iterable[str], paths: Iterable[str]) -> Links:
    """Returns the links of these roots, and for the absolute paths also the repositories they lie in."""
    whole, found = tuple(paths), list[tuple[str, str]]()
    for root in map(os.path.realpath, roots):
        found += (link for folder in FOLDERS for link in _links_in(root, folder))
        inside = [path for path in whole if path.startswith(f"{root}/")]
        found += ((name, place) for name, named in find_named(root, inside) for place in way_of(named))
        found += find_repositories(root, inside)
    return tuple(found)


def names_of(path: str, links: Links) -> tuple[str, ...]:
    """Returns the other names by which an absolute path is reached. A link to a folder leads to all that is below."""
    exact = (name for name, target in links if path == target)
    below = (name + path[len(target) :] for name, target in links if path.startswith(f"{target}/"))
    return tuple(dict.fromkeys((*exact, *below)))


def names_behind(path: str, links: Links) -> tuple[str, ...]:
    """Returns the names whose way leads through this path. If it becomes a link, they lead somewhere else."""
    return tuple(dict.fromkeys(name for name, target in links if target.startswith(f"{path}/")))


def linked_names(paths: Iterable[str], workspace: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of links that lead to any of these paths, which are relative to the first root or absolute."""
    whole = [_resolve(os.path.join(workspace[0], path)) for path in paths]
    links = find_links(workspace, whole)
    return tuple(name for path in whole for name in names_of(path, links))


def _resolve(path: str) -> str:
    """Follows links. A link that goes away between two looks is looked at again; one that never rests is an error."""
    for _ in range(RESOLVES_MAX):
        try:
            return os.path.realpath(path)
        except OSError:
            continue
    return os.path.realpath(path)


def _links_in(root: str, folder: str) -> list[tuple[str, str]]:
    place = os.path.join(root, folder) if folder else root
    try:
        if not stat.S_ISDIR(os.lstat(place).st_mode):
            return []  # A folder that is a link itself is found where it lies.
        with os.scandir(place) as entries:
            names = [entry.name for entry in islice(entries, ENTRIES_MAX) if entry.is_symlink()]
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
