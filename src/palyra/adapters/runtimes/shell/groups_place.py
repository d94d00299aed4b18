"""Chooses where commands may have their control groups, from the kernel's lists of groups.

Does not own: reading and writing the files (groups_find).
Invariants: the functions are pure; texts and observations go in, folders come out. A text that cannot be parsed names
nothing and is never an error.
"""

import re

import msgspec

MEMORY, PIDS = "memory", "pids"
WANTED = frozenset({MEMORY, PIDS})
DAEMON_LEAF = "palyra-daemon"
_UNIFIED, _OLD = "cgroup2", "cgroup"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_CHAIN_LENGTH_MAX = 64  # Nobody nests groups deeper. Each level takes a look at the disk.


class Mount(msgspec.Struct, frozen=True):
    """A tree of groups, or its part from `root` on, as it is seen at `point`."""

    kind: str
    root: str
    point: str
    is_read_only: bool
    options: frozenset[str]


class Layout(msgspec.Struct, frozen=True):
    """The daemon's groups: `old` are those in v1.

    `unified` is its own group in cgroup v2 and those that hold it, nearest first.
    """

    unified: tuple[str, ...] = ()
    old: tuple[tuple[str, str], ...] = ()


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a v2 group. `handed_on` is what its sub-groups can bound, `bounded` what it bounds itself."""

    folder: str
    is_writable: bool = False
    controllers: frozenset[str] = frozenset()
    handed_on: frozenset[str] = frozenset()
    bounded: frozenset[str] = frozenset()
    pids: frozenset[int] = frozenset()


class Ready(msgspec.Struct, frozen=True):
    """A group that can have sub-groups with limits at once.

    `left` is what no longer bounds a command in such a sub-group.
    """

    folder: str
    left: frozenset[str]


def lay_out(memberships: str, mounts: str) -> Layout:
    """Builds the layout from the texts of /proc/self/cgroup and /proc/self/mountinfo."""
    paths, trees = parse_memberships(memberships), parse_mounts(mounts)
    own = _first_folder(paths.get(""), [tree for tree in trees if tree.kind == _UNIFIED])
    old = {
        controller: _first_folder(
            paths.get(controller), [tree for tree in trees if tree.kind == _OLD and controller in tree.options]
        )
        for controller in (MEMORY, PIDS)
    }
    return Layout(
        unified=_chain(*own) if own is not None else (),
        old=tuple((controller, found[0]) for controller, found in old.items() if found is not None),
    )


def parse_memberships(text: str) -> dict[str, str]:
    """Returns the path of the own group for each controller. The group of v2 has the name ''."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        number, *rest = line.split(":", 2)
        if len(rest) != 2 or not rest[1].startswith("/"):
            continue
        names = [""] if number == "0" and not rest[0] else [name for name in rest[0].split(",") if name]
        found |= dict.fromkeys(names, rest[1])
    return found


def parse_mounts(text: str) -> list[Mount]:
    """Returns the trees of control groups. Those that can be written come first."""
    found: list[Mount] = []
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        place, tree = before.split(" "), after.split(" ")
        if len(place) < 6 or len(tree) < 3 or tree[0] not in (_UNIFIED, _OLD):
            continue
        options = frozenset(tree[2].split(","))
        is_read_only = "ro" in place[5].split(",") or "ro" in options
        found.append(Mount(tree[0], _plain(place[3]), _plain(place[4]), is_read_only, options))
    return sorted(found, key=lambda mount: mount.is_read_only)


def ready_places(chain: tuple[GroupState, ...]) -> tuple[Ready, ...]:
    """Returns the usable groups, nearest first.

    A group is left out if commands there would escape a memory limit that somebody set for the daemon.
    """
    found: list[Ready] = []
    left: frozenset[str] = frozenset()
    for seen in chain:
        if seen.is_writable and seen.handed_on >= WANTED and MEMORY not in left:
            found.append(Ready(seen.folder, left))
        left |= seen.bounded
    return tuple(found)


def should_step_down(chain: tuple[GroupState, ...], ours: frozenset[int]) -> bool:
    """Tells whether the daemon gets groups, or better ones, by moving into a leaf of its own group.

    Nothing else may be in that group.
    """
    if any(not ready.left for ready in ready_places(chain)):
        return False
    return bool(chain) and chain[0].is_writable and chain[0].controllers >= WANTED and chain[0].pids <= ours


def why_none(chain: tuple[GroupState, ...]) -> str:
    """Says what prevents groups in v2, for whoever sets the daemon up."""
    if not chain:
        return "control groups are not mounted here"
    own = chain[0]
    if not any(seen.is_writable for seen in chain):
        return f"{own.folder} and what holds it cannot be written"
    if not own.controllers >= WANTED:
        return f"{own.folder} has no controller for {' and '.join(sorted(WANTED - own.controllers))}"
    if any(seen.is_writable and seen.handed_on >= WANTED for seen in chain):
        return f"commands would leave the bound of memory that is set for {own.folder}"
    return f"{own.folder} hands no controllers on and is not the daemon's alone"


def _chain(own: str, top: str) -> tuple[str, ...]:
    found = [own]
    while found[-1] != top and len(found) < _CHAIN_LENGTH_MAX:
        found.append(found[-1].rpartition("/")[0])
    return tuple(found)


def _first_folder(path: str | None, trees: list[Mount]) -> tuple[str, str] | None:
    """Returns where the group with this path is seen, and the mount it is seen through."""
    for tree in trees:
        inside = _below(path, tree.root) if path is not None else None
        if inside is not None and tree.point.startswith("/") and "\0" not in f"{tree.point}{inside}":
            top = tree.point.rstrip("/")
            return f"{top}{inside}", top
    return None


def _below(path: str, root: str) -> str | None:
    """Returns the rest of the path, '' or with a slash before it; None if it does not lie below, or is out of sight."""
    path, root = path.rstrip("/"), root.rstrip("/")
    if ".." in path.split("/") or ".." in root.split("/") or not f"{path}/".startswith(f"{root}/"):
        return None
    return path[len(root) :]


def _plain(word: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)
