"""An event loop whose time runs faster than the clock on the wall, over real sockets.

Owns: the loop and a clock that agrees with it. Does not own: threads, which keep the time of the wall.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class _QuickSelector(selectors.DefaultSelector):
    pace = 1.0

    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout / self.pace if timeout is not None else None)


class _QuickLoop(asyncio.SelectorEventLoop):
    def __init__(self, pace: float) -> None:
        self._pace, self._began_s = pace, time.monotonic()
        selector = _QuickSelector()
        selector.pace = pace
        super().__init__(selector)

    def time(self) -> float:
        return self._began_s + self._pace * (time.monotonic() - self._began_s)


class QuickClock:
    """Wall-clock milliseconds that pass as the loop's seconds do."""

    def __init__(self, pace: float) -> None:
        self._pace, self._began_s, self._began_ms = pace, time.monotonic(), time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._began_ms + int(1000 * self._pace * (time.monotonic() - self._began_s))


def run_quickly(work: Coroutine[Any, Any, Answer], pace: float) -> Answer:
    with asyncio.Runner(loop_factory=lambda: _QuickLoop(pace)) as runner:
        return runner.run(work)
