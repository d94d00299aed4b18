"""The task supervisor: holds every task that outlives a call.

Owns: references to tasks, logging one that fails, cancelling all at the end. Does not own: what a task does.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from palyra.core.errors import PalyraError

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

    @property
    def names(self) -> frozenset[str]:
        """Returns the names of the tasks that have not ended."""
        return frozenset(task.get_name() for task in self._tasks)

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
