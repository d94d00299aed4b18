"""The machine beneath the daemon: a time that nobody can set, free space, and the folder of artifacts.

Does not own: the wall clock (adapters.clock), nor what is too little (core.healing.rules).
"""

import asyncio
import os
import shutil
import time
from pathlib import Path

from palyra.core.errors import Unavailable


class LocalMachine:
    """Blocking work happens in threads."""

    def __init__(self, home: Path, artifacts: Path) -> None:
        self._home = home
        self._artifacts = artifacts

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def free_bytes(self) -> int:
        try:
            return (await asyncio.to_thread(shutil.disk_usage, self._home)).free
        except OSError as cause:
            raise Unavailable("home_unreadable", f"{self._home} cannot be looked at: {cause.strerror}") from cause

    async def artifacts_problem(self) -> str:
        return await asyncio.to_thread(self._artifacts_problem)

    def _artifacts_problem(self) -> str:
        """Writes nothing: a look every half minute must not keep a disk awake."""
        folder = self._artifacts
        if not folder.is_dir():
            return f"{folder} is no folder"
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{folder} cannot be read or written"
        return ""
