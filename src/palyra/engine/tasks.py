"""The task supervisor: holds every task that outlives a call.

Owns: references to tasks, logging one that fails, starting lasting work again, cancelling all at the end.
Does not own: what a task does.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from palyra.core.errors import PalyraError

AGAIN_AFTER_S = 1.0  # Doubled with each failure that follows soon.
AGAIN_AFTER_S_MAX = 60.0
SETTLED_AFTER_S = 300.0  # Work that lasted so long fails for another reason than before.

log = structlog.get_logger()


class TaskSupervisor:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_closing = False

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[Any]:
        """Runs work that lasts as long as the daemon. Where a bug ends it, it begins again after a pause."""
        return self.spawn(self._again(work, name), name)

    @property
    def names(self) -> frozenset[str]:
        """Returns the names of the tasks that have not ended."""
        return frozenset(task.get_name() for task in self._tasks)

    async def _again(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        pause_s, loop = AGAIN_AFTER_S, asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            task = self.spawn(work(), name)
            await asyncio.wait({task})
            if task.cancelled() or task.exception() is None:
                return
            if loop.time() - began_s > SETTLED_AFTER_S:
                pause_s = AGAIN_AFTER_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_AFTER_S_MAX)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, PalyraError):
            # Its message says what happened; a traceback would only bury it.
            log.warning("task_failed", task=task.get_name(), code=error.code, message=error.message)
        elif error is not None:
            log.error("task_failed", task=task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancels the remaining tasks and waits for them."""
        self.is_closing = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
