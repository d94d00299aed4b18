"""A disk whose fsync hangs on demand: an apsw VFS over the ordinary one with a gate before every sync."""

import threading
from typing import Any

import apsw

NAME = "palyra-slow"


class SlowDisk(apsw.VFS):
    """Is registered while the object lives; `hold` makes every sync wait for `release`."""

    def __init__(self) -> None:
        self._gate = threading.Event()
        self._gate.set()
        self.is_waiting = threading.Event()
        super().__init__(NAME, "", maxpathname=1024)

    def hold(self) -> None:
        self.is_waiting.clear()
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    def pass_gate(self) -> None:
        if not self._gate.is_set():
            self.is_waiting.set()
            self._gate.wait()

    def xOpen(self, name: Any, flags: list[int]) -> "_SlowFile":
        return _SlowFile(self, name, flags)


class _SlowFile(apsw.VFSFile):
    def __init__(self, disk: SlowDisk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:
        self._disk.pass_gate()
        super().xSync(flags)
