"""The system call filter of the sandbox: which calls a program is refused, as a program of classic BPF.

Does not own: loading the filter (sandbox).
Some refused calls reach parts of the kernel that a command never needs and where faults are often found: bpf, io_uring,
keys, mounts, new namespaces. Others reach out of a sandbox that is otherwise complete: vsock sockets, setuid bits on
files of the workspace, terminal input. memfd takes memory that no limit counts. Everything else is allowed: namespaces
isolate a command, and the filter adds to them. A program that uses another machine's system calls is killed at its
first call.
"""

import errno
import struct
from collections.abc import Iterable

from palyra.adapters.runtimes.shell.system_calls import MACHINES, Machine

# These calls are refused as if the user had no right to them.
_DENIED = (
    "acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime", "clock_settime", "create_module", "delete_module",
    "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "get_kernel_syms", "init_module",
    "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load",
    "keyctl", "lookup_dcookie", "memfd_secret", "migrate_pages", "modify_ldt", "mount", "mount_setattr", "move_mount",
    "move_pages", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree", "open_tree_attr",
    "perf_event_open", "pidfd_getfd", "pivot_root", "process_vm_readv", "process_vm_writev", "ptrace", "query_module",
    "quotactl", "quotactl_fd", "reboot", "request_key", "setdomainname", "sethostname", "setns", "settimeofday",
    "swapoff", "swapon", "syslog", "umount2", "userfaultfd", "uselib", "vhangup", "_sysctl",
)  # fmt: skip
# These calls are refused as if the kernel were older. Programs then fall back to calls whose arguments a filter can
# see.
_ABSENT = ("clone3", "openat2", "memfd_create")

_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME.
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX put text into a terminal's input.
_SOCKET_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6 and netlink are the families that a network namespace isolates.
_PERSONALITIES = (0, 0xFFFFFFFF)  # These are the usual personality, and the query for the current one.
_SET_ID_BITS = 0o6000
_CREATING_FLAGS = 0x40 | 0x400000  # O_CREAT and O_TMPFILE: without them the mode means nothing and may be anything.
# The number says which argument is the mode.
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
_OPENS = {"open": (1, 2), "openat": (2, 3)}  # The numbers say which arguments are the flags and the mode.

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERROR = 0x00050000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _AUDIT_AT, _ARGUMENTS_AT = 0, 4, 16

Instruction = tuple[int, int, int, int]  # Code, jump if true, jump if false, operand.


def make_filter(machine: str) -> bytes | None:
    """Returns the filter for this machine in the kernel's form; None if we have no table for the machine."""
    known = MACHINES.get(machine)
    if known is None:
        return None
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _program(known))


def _program(machine: Machine) -> list[Instruction]:
    program = [_load(_AUDIT_AT), (_EQUAL, 1, 0, machine.audit), _return(_KILL), _load(_NUMBER_AT)]
    if machine.foreign_from is not None:
        program += [(_AT_LEAST, 0, 1, machine.foreign_from), _return(_KILL)]
    for name in _DENIED:
        program += _refusal(machine, name, errno.EPERM)
    for name in _ABSENT:
        program += _refusal(machine, name, errno.ENOSYS)
    for name, check in _checks():
        if name in machine.numbers:
            # A check loads other words, so the number is loaded again after it.
            body = [*check, _load(_NUMBER_AT)]
            program += [(_EQUAL, 0, len(body), machine.numbers[name]), *body]
    return [*program, _return(_ALLOW)]


def _checks() -> Iterable[tuple[str, list[Instruction]]]:
    """Yields the calls that are refused only with certain arguments."""
    for name in ("clone", "unshare"):
        yield name, _refuse_bits(0, _NAMESPACE_FLAGS)
    yield "ioctl", _refuse_values(1, _TERMINAL_INPUT)
    yield "socket", _refuse_others(0, _SOCKET_FAMILIES, errno.EAFNOSUPPORT)
    yield "personality", _refuse_others(0, _PERSONALITIES, errno.EPERM)
    for name, mode in _MODES.items():
        yield name, _refuse_bits(mode, _SET_ID_BITS)
    for name, (flags, mode) in _OPENS.items():
        check = _refuse_bits(mode, _SET_ID_BITS)
        yield name, [_argument(flags), (_ANY_BIT, 0, len(check), _CREATING_FLAGS), *check]


def _refusal(machine: Machine, name: str, error: int) -> list[Instruction]:
    if name not in machine.numbers:
        return []
    return [(_EQUAL, 0, 1, machine.numbers[name]), _refuse(error)]


def _refuse_bits(argument: int, bits: int) -> list[Instruction]:
    return [_argument(argument), (_ANY_BIT, 0, 1, bits), _refuse(errno.EPERM)]


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [each for value in values for each in ((_EQUAL, 0, 1, value), _refuse(errno.EPERM))]
    return [_argument(argument), *tests]


def _refuse_others(argument: int, allowed: tuple[int, ...], error: int) -> list[Instruction]:
    tests = [(_EQUAL, len(allowed) - place, 0, value) for place, value in enumerate(allowed)]
    return [_argument(argument), *tests, _refuse(error)]


def _argument(place: int) -> Instruction:
    """Loads the low half of an argument.

    The arguments checked here are 32 bits wide, and both machines keep the low half first.
    """
    return _load(_ARGUMENTS_AT + 8 * place)


def _load(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


def _refuse(error: int) -> Instruction:
    return _return(_ERROR | error)


def _return(value: int) -> Instruction:
    return (_RETURN, 0, 0, value)
