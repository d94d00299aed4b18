"""A flag that one task waits for; `set` wakes that task.

Does not own: what there is to wait for.
An asyncio.Event asks for the running loop with every wait, which is a system call. A stream waits once for every token.
"""

import asyncio


class Wakeup:
    """If it is set before anybody waits, the next waiter returns at once. That holds until it is cleared."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    @property
    def is_awaited(self) -> bool:
        """Tells whether somebody waits and it is not set."""
        return self._waiting is not None and not self._waiting.done()

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        if self._is_set:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None
