"""The system's clock.

Owns: wall-clock milliseconds that never go back in this process, and never behind a time that is known to have been.
Not: timers, which must not follow changes of the wall clock.

If the machine's clock is behind, time goes on from the known one at half its speed until the machine's has caught up.
So what has expired stays expired, nothing stands still meanwhile, and a wrong time is left behind by itself.
"""

import time


class _Mark:
    """The newest time given out, and when that was by a clock that nobody sets. One for the whole process."""

    def __init__(self) -> None:
        self._known = (0, 0)  # Replaced as one, because threads share it.

    def now_ns(self) -> int:
        wall_ns, steady_ns = time.time_ns(), time.monotonic_ns()
        known_ns, since_ns = self._known
        if wall_ns < known_ns:
            return known_ns + (steady_ns - since_ns) // 2
        self._known = (wall_ns, steady_ns)
        return wall_ns

    def advance(self, known_ns: int) -> None:
        self._known = (max(self.now_ns(), known_ns), time.monotonic_ns())


_mark = _Mark()


class SystemClock:
    def now_ms(self) -> int:
        return _mark.now_ns() // 1_000_000


def advance_clock(at_ms: int) -> int:
    """Goes on from this time if the machine's clock is behind it. Returns by how many milliseconds it is."""
    behind_ms = at_ms - time.time_ns() // 1_000_000
    if behind_ms > 0:
        _mark.advance(at_ms * 1_000_000)
    return max(0, behind_ms)
