"""Control groups of commands: one group for each command, its limits, its events and its removal.

Does not own: where groups can be (groups_place, groups_find).
Invariants: a group bounds a whole command, or there is no group. Making one never raises. If that fails, the command
runs without a group, and the checks of `watch` bound it. A group is removed when its command is over. Removal is tried
again from timers and before the next group is made. The next daemon removes what a killed daemon left.
"""

import asyncio
import os
from contextlib import suppress
from itertools import count

import msgspec
import structlog

from palyra.adapters.runtimes.shell.groups_place import MEMORY, PIDS, WANTED
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.watch import Excess, read_small

NOT_JOINED = (
    120  # The command's shell ends with this exit code if it cannot enter. Nothing of the command has run then.
)
GROUPS_MAX = 256  # Limits the groups of one daemon, with those that cannot be removed yet.
TASKS_PER_PROCESS = 4  # The kernel counts threads too, and a limit of processes is not one of threads.
TASKS_OF_SANDBOX = 8  # The command's shell, the forwarder of the network and its threads.
REMOVE_AGAIN_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_numbers = count(1)  # The numbers are the process's: two makers in one process never use a name twice.

log = structlog.get_logger()


class GroupParent(msgspec.Struct, frozen=True):
    """A folder in which sub-groups are made, and what they bound. `is_unified` means cgroup v2."""

    folder: str
    controllers: frozenset[str]
    is_unified: bool


class NoGroups(msgspec.Struct, frozen=True):
    reason: str


class ControlGroup:
    """The group of one command. Its folders exist once it has been made.

    `entries` are the open files to enter by. A thread that writes a zero to each is inside, with all that it starts.
    """

    def __init__(self, branches: tuple[GroupParent, ...], name: str) -> None:
        self._branches = branches
        self._folders = tuple(f"{branch.folder}/{name}" for branch in branches)
        self.words = words_for(branches)
        self.entries: tuple[int, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        return self._folders

    def create(self, limits: CommandLimits) -> None:
        """Creates the folders. If that fails it raises OSError, and nothing of the group is left."""
        made: list[str] = []
        try:
            for branch, folder in zip(self._branches, self._folders, strict=True):
                os.mkdir(folder, 0o755)
                made.append(folder)
                for file, value in _settings(branch, folder, limits):
                    write(f"{folder}/{file}", value)
                self.entries += (os.open(f"{folder}/{_join_file(branch)}", os.O_WRONLY | os.O_CLOEXEC),)
        except OSError:
            self.shut()
            for folder in made:
                _is_removed(folder)
            raise

    def shut(self) -> None:
        """Closes the entries, once the command's shell has them."""
        for file in self.entries:
            os.close(file)
        self.entries = ()

    def excess(self) -> Excess | None:
        """Returns which limit the kernel had to enforce since the group was made, if any."""
        counts = [_held(branch, folder) for branch, folder in zip(self._branches, self._folders, strict=True)]
        if any(memory for memory, _ in counts):
            return Excess.MEMORY
        return Excess.PROCESSES if any(tasks for _, tasks in counts) else None

    def kill(self) -> None:
        """Kills everything in the group if the kernel can do that.

        Elsewhere whoever ends the command has to do it alone.
        """
        for branch, folder in zip(self._branches, self._folders, strict=True):
            if branch.is_unified:
                with suppress(OSError):
                    write(f"{folder}/cgroup.kill", "1")

    def remove(self) -> bool:
        """Removes the group and tells whether it is gone. The kernel may need a moment after the last process."""
        self.shut()
        return not [folder for folder in self._folders if not _is_removed(folder)]


class Groups:
    """Makes groups. `owner` begins the name of each, and tells the next daemon whether this one still runs.

    `left` are groups of a killed daemon that could not be removed at once.
    """

    def __init__(self, branches: tuple[GroupParent, ...], owner: str, left: tuple[str, ...] = ()) -> None:
        self._branches = branches
        self._owner = owner
        self._kept: set[ControlGroup] = set()
        self._left = {ControlGroup(branches, name) for name in left}
        self._fault: str | None = None
        self.words = words_for(branches)

    @property
    def count(self) -> int:
        return len(self._kept)

    def make(self, limits: CommandLimits) -> ControlGroup | None:
        """Makes a group; None if that is not possible now. The log says why."""
        for group in list(self._left):
            self._try_to_remove(group)
        if self._fault is not None:
            return None
        if len(self._kept) >= GROUPS_MAX:
            log.warning("group_unavailable", reason=f"there are {GROUPS_MAX} already")
            return None
        group = ControlGroup(self._branches, f"{self._owner}-{next(_numbers)}")
        try:
            group.create(limits)
        except OSError as cause:
            log.warning("group_unavailable", reason=cause.strerror, path=cause.filename)
            return None
        self._kept.add(group)
        return group

    def give_up(self, reason: str) -> None:
        """Stops making groups.

        Commands that cannot enter their groups would never run again, so from now on they have none.
        """
        self._fault = reason
        log.warning("groups_given_up", reason=reason)

    def let_go(self, group: ControlGroup, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Removes the group of a command that is over.

        Without a loop that is tried once, and again before the next group is made.
        """
        self._left.add(group)
        self._remove(group, loop, 0)

    def _remove(self, group: ControlGroup, loop: asyncio.AbstractEventLoop | None, turn: int) -> None:
        if group not in self._left or self._try_to_remove(group) or loop is None:
            return
        if turn < len(REMOVE_AGAIN_S):
            loop.call_later(REMOVE_AGAIN_S[turn], self._remove, group, loop, turn + 1)

    def _try_to_remove(self, group: ControlGroup) -> bool:
        if not group.remove():
            return False
        self._kept.discard(group)
        self._left.discard(group)
        return True


def _join_file(branch: GroupParent) -> str:
    """Returns the file to join by. The shell that joins is one thread.

    v1 can move just that thread, without the wait for all processors that moving a process takes.
    """
    return "cgroup.procs" if branch.is_unified else "tasks"


def words_for(branches: tuple[GroupParent, ...]) -> str:
    """Says for the record of a call what the kernel bounds for the whole command."""
    controllers = frozenset[str]().union(*(branch.controllers for branch in branches))
    return "cgroup" if controllers >= WANTED else f"cgroup.{'.'.join(sorted(controllers))}"


def tasks_max(limits: CommandLimits) -> int:
    return limits.processes_count * TASKS_PER_PROCESS + TASKS_OF_SANDBOX


def join_script(entries: tuple[int, ...], told: int) -> str:
    """Returns the lines by which the command's shell enters its group, and says so, before it reads the command.

    No path leads to a group from inside the sandbox, so the shell has its open files until then.
    """
    joined = " && ".join(f"echo 0 >&{entry}" for entry in entries) or "false"
    return f"{joined} || exit {NOT_JOINED}\necho >&{told}\nexec {' '.join(f'{entry}>&-' for entry in entries)}\n"


def _settings(branch: GroupParent, folder: str, limits: CommandLimits) -> list[tuple[str, str]]:
    """Returns the settings in the order in which they have to be written.

    A command that swaps could take more, so swapping is switched off where possible.
    """
    memory, found = str(limits.memory_bytes), list[tuple[str, str]]()
    if MEMORY in branch.controllers and branch.is_unified:
        found += [("memory.max", memory), *_if_there(folder, ("memory.swap.max", "0"), ("memory.oom.group", "1"))]
    elif MEMORY in branch.controllers:
        found += [("memory.limit_in_bytes", memory), *_if_there(folder, ("memory.memsw.limit_in_bytes", memory))]
    if PIDS in branch.controllers:
        found.append(("pids.max", str(tasks_max(limits))))
    return found


def _if_there(folder: str, *settings: tuple[str, str]) -> list[tuple[str, str]]:
    return [(file, value) for file, value in settings if os.path.exists(f"{folder}/{file}")]


def _held(branch: GroupParent, folder: str) -> tuple[int, int]:
    """Returns how often the kernel killed for lack of memory, and how often it refused a new process or thread."""
    events = "memory.events" if branch.is_unified else "memory.oom_control"
    memory = _count(f"{folder}/{events}", "oom_kill") if MEMORY in branch.controllers else 0
    return memory, _count(f"{folder}/pids.events", "max") if PIDS in branch.controllers else 0


def _count(path: str, name: str) -> int:
    """Returns a count; zero if it cannot be told. Then only the checks of `watch` see an excess."""
    found = [line.split() for line in read_small(path).decode(errors="replace").splitlines()]
    return sum(int(words[1]) for words in found if len(words) == 2 and words[0] == name and words[1].isdecimal())


def _is_removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def write(path: str, value: str) -> None:
    """Writes a file that exists. It never creates one: a folder without the file is no group."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)
