"""The Clock port: wall-clock milliseconds for events. Does not own: timers (engine.session.deadlines)."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int: ...
