"""Request rates. Owns: a token bucket for each bearer token. Not: who is exempt (access).

A bucket holds a minute's worth: a burst may use it up at once, then requests come as fast as it fills again.
"""

from collections.abc import Callable

BUCKETS_MAX = 4096  # Full buckets need no memory: beyond this they are forgotten.


class Buckets:
    def __init__(self, per_minute: int, monotonic_s: Callable[[], float]) -> None:
        self._size = float(per_minute)
        self._per_s = per_minute / 60
        self._now_s = monotonic_s
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, token_id: str) -> bool:
        """Whether one more request may pass now."""
        now_s = self._now_s()
        level = self._level(token_id, now_s)
        if level < 1:
            return False
        if len(self._levels) >= BUCKETS_MAX and token_id not in self._levels:
            self._forget_full(now_s)
        self._levels[token_id] = (level - 1, now_s)
        return True

    def _level(self, token_id: str, now_s: float) -> float:
        level, at_s = self._levels.get(token_id, (self._size, now_s))
        return min(self._size, level + (now_s - at_s) * self._per_s)

    def _forget_full(self, now_s: float) -> None:
        self._levels = {name: held for name, held in self._levels.items() if self._level(name, now_s) < self._size}
