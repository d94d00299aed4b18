"""Folders of drafts that nothing needs any more: moved aside at once, removed a little later.

Owns: when they are removed, and what a kill left of them. Does not own: which drafts are needed (store, engine).
To remove the folders of a draft takes longer than to make them, and no result has to wait for that. A folder that was
moved aside is in nobody's way, also if the same draft begins again.
"""

import asyncio
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

import structlog

from palyra.adapters.drafts.tree import remove_tree
from palyra.ports.services import ServiceHealth, ServiceState

TRASH_PREFIX = "gone-"
REMOVE_AFTER_S = 1.0  # By then the result of the call is recorded, and the next turn has begun.
_numbers = count(1)  # The numbers are the process's: two stores of one home never use a name twice.

log = structlog.get_logger()


class DraftTrash:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._waiting: list[str] = []
        self._is_closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def put(self, folder: Path) -> None:
        """Moves a folder aside. An absent one is no error."""
        aside = str(self._home / f"{TRASH_PREFIX}{os.getpid()}-{next(_numbers)}")
        with suppress(FileNotFoundError):
            folder.rename(aside)
            self._waiting.append(aside)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._remove_later())

    async def close(self) -> None:
        """Removes now what was moved aside."""
        if self._task is not None:
            self._is_closing.set()
            await self._task
            self._is_closing.clear()

    def health(self) -> ServiceHealth:
        """Never fails: what cannot be removed now is removed by the next start."""
        return ServiceHealth(state=ServiceState.OK if self._waiting else ServiceState.IDLE)

    async def _remove_later(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(REMOVE_AFTER_S):
                    await self._is_closing.wait()
            waiting, self._waiting = self._waiting, []
            await asyncio.to_thread(_remove_all, waiting)


def sweep_trash(home: Path) -> int:
    """Removes what a kill left, and returns its number. Only the daemon whose home it is may call this."""
    left = [str(path) for path in home.glob(f"{TRASH_PREFIX}*")]
    _remove_all(left)
    return len(left)


def _remove_all(folders: list[str]) -> None:
    for folder in folders:
        try:
            remove_tree(folder)
        except OSError as cause:
            log.warning("draft_not_removed", folder=os.path.basename(folder), reason=cause.strerror)
