"""A lock that one process holds at a time. The kernel releases it when the process ends, however it ends.

Owns: waiting for the lock, no longer than `LOCK_WAIT_S`. Does not own: what the lock protects.
Invariant: the lock file stays. Removing it would let two processes lock two files of one name.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_WAIT_S = (
    30.0  # The largest file under a lock is written in under a second. Nobody asks a person while holding one.
)
_LOCK_PAUSE_S = 0.01
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Holds the lock within the block.

    TimeoutError: another process does not release it. OSError: it cannot be made or locked.
    """
    descriptor = os.open(lock, _OPEN, 0o600)
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while not _is_taken(descriptor):
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"another process has held the lock for {LOCK_WAIT_S:g} s")
        time.sleep(_LOCK_PAUSE_S)


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
