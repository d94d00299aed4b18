"""Finds control groups: reads where the daemon is, moves it into a leaf, and removes what a killed daemon left.

Does not own: the choice of a place (groups_place).
Invariants: only processes of this daemon are ever moved. Only groups that carry our name and whose daemon is dead are
ever removed. Nothing here raises for a tree that cannot be read or written.
"""

import os
import re
import signal
from contextlib import suppress

import msgspec
import structlog

from palyra.adapters.runtimes.shell.groups import GroupParent, Groups, write
from palyra.adapters.runtimes.shell.groups_place import (
    DAEMON_LEAF,
    MEMORY,
    PIDS,
    WANTED,
    GroupState,
    Layout,
    lay_out,
    ready_places,
    should_step_down,
    why_none,
)
from palyra.adapters.runtimes.shell.watch import processes_below

SELF = "/proc/self"
SWEPT_MAX = 4096
_MOVE_TURNS = 5  # A child may start another while it is moved.
_OURS_MAX = 10_000
_NAME = re.compile(r"palyra-([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,20})-[0-9]{1,20}")
_START_FIELD = 19  # Counts the fields after the program's name in /proc/<pid>/stat.

log = structlog.get_logger()


class GroupPlace(msgspec.Struct, frozen=True):
    """Where this process is in the trees of control groups."""

    layout: Layout
    chain: tuple[GroupState, ...]


def find_place(proc: str = SELF) -> GroupPlace:
    layout = lay_out(_text(f"{proc}/cgroup"), _text(f"{proc}/mountinfo"))
    return GroupPlace(layout, tuple(_see(folder) for folder in layout.unified))


def possible_branches(place: GroupPlace) -> list[tuple[GroupParent, ...]]:
    """Returns what may be worth trying, best first."""
    unified = [(GroupParent(ready.folder, WANTED, True),) for ready in ready_places(place.chain)]
    old = tuple(
        GroupParent(folder, frozenset({controller}), False)
        for controller, folder in place.layout.old
        if _is_writable(folder)
    )
    return [*unified, *([old] if old else []), *([(branch,) for branch in old] if len(old) > 1 else [])]


def why_no_branches(place: GroupPlace) -> str:
    """Says in words why there are no groups, and what to do."""
    old = [folder for _, folder in place.layout.old]
    if not old and should_step_down(place.chain, _ours()):
        own = place.chain[0].folder
        return f"none before the daemon has started in {own} and made room there, as it does by itself"
    why = f"{' and '.join(old)} cannot be written" if old else why_none(place.chain)
    return f"{why}; run the daemon as a service with Delegate=yes, see docs/sandbox.md"


def open_groups(branches: tuple[GroupParent, ...]) -> Groups:
    """Removes what killed daemons left, then returns the maker of groups."""
    return Groups(branches, owner_name(), sweep(branches))


def step_down(proc: str = SELF) -> bool:
    """Moves this daemon into a leaf of its own group if commands can then get groups beside it.

    Tells whether it moved.
    """
    chain = find_place(proc).chain
    if not should_step_down(chain, _ours()):
        return False
    own, leaf = chain[0].folder, f"{chain[0].folder}/{DAEMON_LEAF}"
    try:
        with suppress(FileExistsError):
            os.mkdir(leaf, 0o755)
        _move_all(own, leaf)
        write(f"{own}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(WANTED)))
    except OSError as cause:
        log.warning("group_unavailable", reason=cause.strerror, path=cause.filename or own)
        _step_back(own, leaf)
        return False
    return True


def sweep(branches: tuple[GroupParent, ...]) -> tuple[str, ...]:
    """Removes the groups of dead daemons, with what runs in them. Returns the names of those still there."""
    left: set[str] = set()
    for branch in branches:
        for name in _dead(branch.folder):
            folder = f"{branch.folder}/{name}"
            _kill_all(folder, branch.is_unified)
            try:
                os.rmdir(folder)
            except OSError:
                left.add(name)
    return tuple(sorted(left))


def owner_name() -> str:
    """Returns a name of this daemon that no other process can have, even after its process id is used again."""
    return f"palyra-{_namespace()}-{os.getpid()}-{_start_of(os.getpid())}"


def _dead(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.startswith("palyra-")][:SWEPT_MAX]
    except OSError:
        return []
    return [name for name in names if (found := _NAME.fullmatch(name)) is not None and _is_dead(found)]


def _is_dead(name: re.Match[str]) -> bool:
    """Tells whether the daemon of that name is dead.

    One of another process namespace is invisible here and counts as running.
    """
    namespace, pid, start = (int(word) for word in name.groups())
    if namespace != _namespace():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return _start_of(pid) not in (start, None)


def _kill_all(folder: str, is_unified: bool) -> None:
    """Kills the commands in a group whose daemon was killed before they were bound to die with it."""
    if is_unified:
        with suppress(OSError):
            write(f"{folder}/cgroup.kill", "1")
            return
    for pid in _pids(folder):
        with suppress(OSError):
            _kill_one(pid, folder)


def _kill_one(pid: int, folder: str) -> None:
    handle = os.pidfd_open(pid)
    try:
        if pid in _pids(folder):  # The process id must not belong to another process by now.
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


def _move_all(own: str, leaf: str) -> None:
    for _ in range(_MOVE_TURNS):
        pids = _pids(own)
        if not pids:
            return
        if not pids <= _ours():
            raise PermissionError(0, "another process came into the daemon's group")
        for pid in pids:
            with suppress(ProcessLookupError):
                write(f"{leaf}/cgroup.procs", str(pid))


def _step_back(own: str, leaf: str) -> None:
    for pid in _pids(leaf) & _ours():
        with suppress(OSError):
            write(f"{own}/cgroup.procs", str(pid))
    with suppress(OSError):
        os.rmdir(leaf)


def _see(folder: str) -> GroupState:
    bounds = {MEMORY: ("memory.max", "memory.high"), PIDS: ("pids.max",)}
    return GroupState(
        folder=folder,
        is_writable=_is_writable(folder),
        controllers=frozenset(_text(f"{folder}/cgroup.controllers").split()),
        handed_on=frozenset(_text(f"{folder}/cgroup.subtree_control").split()),
        bounded=frozenset(
            name for name, files in bounds.items() if any(_is_bound(f"{folder}/{file}") for file in files)
        ),
        pids=_pids(folder),
    )


def _is_bound(path: str) -> bool:
    return _text(path).strip() not in ("", "max")


def _is_writable(folder: str) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK)


def _ours() -> frozenset[int]:
    """Returns the daemon, its children, and the supervisor that forked it."""
    return frozenset(processes_below(os.getpid(), _OURS_MAX)) | _supervisor()


def _supervisor() -> frozenset[int]:
    """Returns the parent if it is the daemon's supervisor: the child of a plain fork has its parent's command line."""
    parent = os.getppid()
    own = _text("/proc/self/cmdline")
    return frozenset({parent}) if own and own == _text(f"/proc/{parent}/cmdline") else frozenset()


def _pids(folder: str) -> frozenset[int]:
    return frozenset(int(word) for word in _text(f"{folder}/cgroup.procs").split() if word.isdecimal())


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _start_of(pid: int) -> int | None:
    """Returns when the process started, in the kernel's ticks; None if that cannot be told."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[_START_FIELD]) if len(fields) > _START_FIELD and fields[_START_FIELD].isdecimal() else None


def _text(path: str) -> str:
    """Returns the text of a file, empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(1024 * 1024)
    except OSError:
        return ""
