"""Checks what a command's whole tree of processes takes of the machine, and when that is too much.

Does not own: ending the command (child).
The kernel bounds each process. These checks bound all of them together if no control group does. They look at the
memory and number of the tree, how far the disk filled since the command began, and what the machine has left.
"""

import os
from enum import Enum

import msgspec

from palyra.adapters.runtimes.shell.limits import CommandLimits

LOOK_EVERY_S = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MACHINE_FLOOR_PART = 32  # A command ends when less than this part of the machine's memory is left,
_MACHINE_FLOOR_BYTES = 256 * 1024 * 1024  # or less than this: memory may hide where no process has it mapped.
_DISK_FLOOR_BYTES = 256 * 1024 * 1024
_DISK_SHARE_BYTES = 64 * 1024 * 1024  # Only a command that filled the disk by at least this is to blame for a full one.
_INODES_MAX = 1_000_000


class Excess(Enum):
    """Why a command was ended. The values are stable: they are the codes of its error."""

    MEMORY = "memory_limit"
    PROCESSES = "process_limit"
    DISK = "disk_limit"
    OUTPUT = "output_limit"


class _Free(msgspec.Struct, frozen=True):
    bytes: int
    inodes: int


class LimitCheck:
    """Checks one command. It is made before the command starts, so that it knows how full the disk was."""

    def __init__(self, limits: CommandLimits, roots: tuple[str, ...]) -> None:
        self._limits = limits
        self._before = {root: _free(root) for root in roots}

    def look(self, first: int) -> Excess | None:
        """Returns the limit that was passed, if any. `first` is the process that started all others of the command."""
        pids = processes_below(first, self._limits.processes_count + 2)
        if len(pids) > self._limits.processes_count + 1:
            return Excess.PROCESSES
        if sum(_memory_bytes(pid) for pid in pids) > self._limits.memory_bytes or _is_machine_short():
            return Excess.MEMORY
        return Excess.DISK if any(self._is_filled(root) for root in self._before) else None

    def _is_filled(self, root: str) -> bool:
        before, now = self._before[root], _free(root)
        taken = before.bytes - now.bytes
        is_full = now.bytes < _DISK_FLOOR_BYTES and taken > _DISK_SHARE_BYTES
        return taken > self._limits.disk_bytes or is_full or before.inodes - now.inodes > _INODES_MAX


def processes_below(first: int, count_max: int) -> list[int]:
    """Returns the process and its descendants, at most `count_max`.

    A process whose parent is gone becomes a child of the sandbox's first process.
    """
    found = [first]
    for pid in found:
        if len(found) >= count_max:
            break
        found += _children(pid)
    return found[:count_max]


def _children(pid: int) -> list[int]:
    """Returns the children of all its threads; none if the kernel does not tell, or the process is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        found += [int(word) for word in read_small(f"/proc/{pid}/task/{thread}/children").split()]
    return found


def has_no_child(pid: int) -> bool:
    """Tells whether a process of one thread has no child, not even an ended one. False if the kernel does not tell.

    The kernel looks for the first child under its lock, so an empty answer is true.
    """
    try:
        file = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not os.read(file, 1)
    except OSError:
        return False
    finally:
        os.close(file)


def _memory_bytes(pid: int) -> int:
    """Returns its memory without the files it has mapped, which the kernel can drop."""
    words = read_small(f"/proc/{pid}/statm").split()
    if len(words) < 3:
        return 0
    return (int(words[1]) - int(words[2])) * _PAGE_BYTES


def _is_machine_short() -> bool:
    lines = dict(line.split(b":", 1) for line in read_small("/proc/meminfo").splitlines() if b":" in line)
    if b"MemAvailable" not in lines or b"MemTotal" not in lines:
        return False
    left, total = (int(lines[name].split()[0]) * 1024 for name in (b"MemAvailable", b"MemTotal"))
    return left < min(_MACHINE_FLOOR_BYTES, total // _MACHINE_FLOOR_PART)


def _free(root: str) -> _Free:
    try:
        found = os.statvfs(root)
    except OSError:
        return _Free(0, 0)
    return _Free(found.f_bavail * found.f_frsize, found.f_favail)


def read_small(path: str) -> bytes:
    """Reads a small file of the kernel, empty if it is gone: processes end while they are looked at."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, 64 * 1024)
    except OSError:
        return b""
    finally:
        os.close(file)
