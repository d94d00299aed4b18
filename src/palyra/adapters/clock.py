"""The system's clock. Owns: wall-clock milliseconds. Not: timers, which must not follow changes of the wall clock."""

import time


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
