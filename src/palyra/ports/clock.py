"""The Clock port. Owns: wall-clock milliseconds for events. Not: timers."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...
