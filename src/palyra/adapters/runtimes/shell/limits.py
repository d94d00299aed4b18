"""Limits of a command. Owns: how much it may take, and the lines with which its shell binds itself. Not: watching it.

What the kernel can hold for one process is set by the shell before it reads the command; hard limits cannot be raised again.
What only sums show (memory of a whole tree, the disk) is watched from outside (watch).
"""

import os
import platform
import resource

import msgspec

_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3
# From this kernel on, processes are counted for each user namespace; before, with all others of the daemon's user.
_OWN_COUNT_SINCE = (5, 14)


def _default_memory_bytes() -> int:
    """Half of the machine's memory, so that one command cannot have it all, and at most what a large build takes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(4 * _GIB, total // 2)


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`memory_bytes` bounds each process and all of a command together; `disk_bytes` by how much the disk may fill."""

    memory_bytes: int = msgspec.field(default_factory=_default_memory_bytes)
    processes_count: int = 512
    open_files_count: int = 4096
    file_bytes: int = 4 * _GIB
    disk_bytes: int = 10 * _GIB
    cpu_s: int = 3600  # Of one process; a call ends long before, a background process may be a server.
    temporary_bytes: int = 512 * _MIB  # /tmp and the home, each; they are memory.
    shared_memory_bytes: int = 64 * _MIB
    output_bytes: int = 64 * _MIB  # Whoever prints more prints for nobody.


def limits_script(limits: CommandLimits) -> str:
    """Read by bash as its start-up file, before the command. If a limit cannot be set, the command does not run."""
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
    """The daemon may be bound tighter already, and nobody may raise that."""
    hard = resource.getrlimit(which)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
