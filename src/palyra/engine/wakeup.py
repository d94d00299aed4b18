"""A bell. Owns: waking the one task that waits for it. Not: what there is to wait for.

An asyncio.Event asks for the running loop with every wait, which is a system call; a stream waits once for every token.
"""

import asyncio


class Wakeup:
    """Rung before anybody waits, it is heard by the next who does, until it is stilled."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._has_rung = False

    def ring(self) -> None:
        self._has_rung = True
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    @property
    def is_awaited(self) -> bool:
        """Somebody waits, and it has not rung."""
        return self._waiting is not None and not self._waiting.done()

    def still(self) -> None:
        self._has_rung = False

    async def wait(self) -> None:
        if self._has_rung:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None
