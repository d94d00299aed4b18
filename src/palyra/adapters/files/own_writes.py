"""Remembers which files this daemon itself wrote last, so that a conflict with a person is told from one with a call.

Owns: a bounded memory of this process. After a restart nothing is known, and every change counts as a person's.
"""

import os
from collections import OrderedDict
from threading import Lock

REMEMBERED_MAX = 50_000


class OwnWrites:
    """The path of each file, with the inode and the time of change it had when this daemon left it."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = Lock()

    def note(self, path: str) -> None:
        """Notes that this daemon has just written, or removed, the file."""
        mark = _mark(path)
        with self._lock:
            self._left[path] = mark
            self._left.move_to_end(path)
            while len(self._left) > REMEMBERED_MAX:
                self._left.popitem(last=False)

    def is_own(self, path: str) -> bool:
        with self._lock:
            return self._left.get(path) == _mark(path)


def _mark(path: str) -> tuple[int, int]:
    try:
        found = os.lstat(path)
    except OSError:
        return (0, 0)
    return found.st_ino, found.st_ctime_ns


OWN_WRITES = OwnWrites()
