"""Limits of a command: how much it may take, and the script by which its shell limits itself.

Does not own: checks of sums (watch).
The shell sets the limits that the kernel keeps for one process before it reads the command. Hard limits cannot be
raised again. Limits that only sums show (memory of a whole tree, the disk) are checked from outside.
"""

import os
import platform
import resource

import msgspec

_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3
# From this kernel on, processes are counted for each user namespace. Before, they count with all others of the daemon's
# user.
_OWN_COUNT_SINCE = (5, 14)


def _default_memory_bytes() -> int:
    """Returns half of the machine's memory, and at most what a large build takes. One command cannot have all of it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(4 * _GIB, total // 2)


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_bytes` bounds each process and the whole command; `disk_bytes` bounds by how much the disk may fill."""

    memory_bytes: int = msgspec.field(default_factory=_default_memory_bytes)
    processes_count: int = 512
    open_files_count: int = 4096
    file_bytes: int = 4 * _GIB
    disk_bytes: int = 10 * _GIB
    # The limit is that of one process. A call ends long before; a background process may be a server.
    cpu_s: int = 3600
    temporary_bytes: int = 512 * _MIB  # /tmp and the home have this much each. Both are in memory.
    shared_memory_bytes: int = 64 * _MIB
    output_bytes: int = 64 * _MIB  # Nobody reads more output than this.


def limits_script(limits: CommandLimits) -> str:
    """Returns the script that bash reads as its start-up file. If a limit cannot be set, the command does not run."""
    wanted = [
        ("c", 0, resource.RLIMIT_CORE, 1),
        ("f", limits.file_bytes, resource.RLIMIT_FSIZE, _KIB),
        ("n", limits.open_files_count, resource.RLIMIT_NOFILE, 1),
        ("t", limits.cpu_s, resource.RLIMIT_CPU, 1),
        ("d", limits.memory_bytes, resource.RLIMIT_DATA, _KIB),
    ]
    if kernel_version() >= _OWN_COUNT_SINCE:
        wanted.append(("u", limits.processes_count, resource.RLIMIT_NPROC, 1))
    lines = [f"ulimit -{letter} {_bounded(value, which) // unit}" for letter, value, which, unit in wanted]
    return "unset BASH_ENV\n" + " && ".join(lines) + " || exit 125\n"


def kernel_version() -> tuple[int, int]:
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(letter for letter in minor if letter.isdigit()) or 0)


def _bounded(value: int, which: int) -> int:
    """Returns the value, lowered to a limit of the daemon. Nobody may raise that limit."""
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
