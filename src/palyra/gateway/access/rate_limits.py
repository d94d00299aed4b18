"""Request rates. Owns: a bucket for each bearer token, or for each address. Not: who is exempt (access).

A bucket holds a minute's worth: a burst may use it up at once, then requests come as fast as it fills again.
"""

from collections.abc import Callable

BUCKETS_MAX = 4096  # Full buckets need no memory: beyond this they are forgotten.
SHARED = "*"  # Who comes when there is no room for another bucket shares this one.


class RateLimits:
    def __init__(self, per_minute: int, monotonic_s: Callable[[], float]) -> None:
        self._size = float(per_minute)
        self._per_s = per_minute / 60
        self._now_s = monotonic_s
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, token_id: str) -> bool:
        """Whether one more request may pass now."""
        now_s = self._now_s()
        name = self._room_for(token_id, now_s)
        level = self._level(name, now_s)
        if level < 1:
            return False
        self._levels[name] = (level - 1, now_s)
        return True

    def _room_for(self, token_id: str, now_s: float) -> str:
        if token_id in self._levels or len(self._levels) < BUCKETS_MAX:
            return token_id
        self._forget_full(now_s)
        return token_id if len(self._levels) < BUCKETS_MAX else SHARED

    def _level(self, token_id: str, now_s: float) -> float:
        level, at_s = self._levels.get(token_id, (self._size, now_s))
        return min(self._size, level + (now_s - at_s) * self._per_s)

    def _forget_full(self, now_s: float) -> None:
        self._levels = {name: held for name, held in self._levels.items() if self._level(name, now_s) < self._size}
