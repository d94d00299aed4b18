"""Spare connections. Owns: one open connection to spare where several answers come at once. Not: the pool, or requests.

Opening a connection takes round trips that whoever waits for a first word would wait for too. Where one exchange is out and
another begins, a third may: so one connection is opened ahead of it, once the server has shown that it answers several at
a time. Nothing is sent on it, and it ends as every idle connection does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

AFTER_S = 0.02  # The words of the answer that has just begun come first.

Open = Callable[[], Awaitable[None]]


class Preconnect:
    """Of one client, by address."""

    def __init__(self) -> None:
        self._out: dict[str, int] = {}
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._opening: set[asyncio.Future[None]] = set()

    @contextmanager
    def out(self, url: str) -> Iterator[None]:
        """Around an exchange."""
        self._out[url] = self._out.get(url, 0) + 1
        try:
            yield
        finally:
            self._out[url] -= 1
            if not self._out[url]:
                del self._out[url]

    def answered(self, url: str, open_one: Open) -> None:
        """Within an exchange, once its answer has begun. `open_one` sees to it that a connection is idle, and raises nothing."""
        if self._out.get(url, 0) > 1 and url not in self._due:
            self._due[url] = asyncio.get_running_loop().call_later(AFTER_S, self._begin, url, open_one)

    async def close(self) -> None:
        for timer in self._due.values():
            timer.cancel()
        self._due.clear()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _begin(self, url: str, open_one: Open) -> None:
        del self._due[url]
        task = asyncio.ensure_future(open_one())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
