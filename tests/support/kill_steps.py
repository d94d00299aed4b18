"""Kills an act, or fills its disk, at its n-th access to the disk.

A step is every moment before and after a call that changes the disk. Use it only in a process of its own, because it
forks: a fork of the test process would inherit its threads' locks.
"""

import errno
import os
import signal
import sys
from collections.abc import Callable

from palyra.core.errors import PalyraError

# fmt: off
TOUCHES = frozenset({
    "open", "mkdir", "rename", "replace", "link", "fsync", "fchmod", "unlink", "rmdir", "write", "flush", "close", "flock",
})
# fmt: on
NEEDS_SPACE = frozenset({"open", "mkdir", "replace", "link", "fsync", "write", "flush"})
_REFUSED = 3


def die_at(point: int, act: Callable[[], object]) -> bool:
    """Tells whether the act was killed before it ended."""
    status = _status_of(point, act, ("c_call", "c_return"), TOUCHES, lambda: os.kill(os.getpid(), signal.SIGKILL))
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError("the act failed by itself")
    return os.WIFSIGNALED(status)


def fill_disk_at(point: int, act: Callable[[], object]) -> bool:
    """Tells whether the act was refused with an error of ours, because the disk was full at one of its steps."""
    code = os.waitstatus_to_exitcode(_status_of(point, act, ("c_call",), NEEDS_SPACE, _find_no_space))
    if code not in (0, _REFUSED):
        raise RuntimeError("the act failed by itself")
    return code == _REFUSED


def _find_no_space() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _status_of(
    point: int, act: Callable[[], object], events: tuple[str, ...], touches: frozenset[str], fail: Callable[[], None]
) -> int:
    child = os.fork()
    if child == 0:
        os._exit(_act_until(point, act, events, touches, fail))
    return os.waitpid(child, 0)[1]


def _act_until(
    point: int, act: Callable[[], object], events: tuple[str, ...], touches: frozenset[str], fail: Callable[[], None]
) -> int:
    left = point

    def step(_frame: object, event: str, argument: object) -> None:
        nonlocal left
        if event in events and getattr(argument, "__name__", "") in touches:
            left -= 1
            if left == 0:
                fail()

    sys.setprofile(step)
    try:
        act()
    except PalyraError:
        return _REFUSED
    finally:
        sys.setprofile(None)
    return 0
