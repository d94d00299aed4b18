"""Rate limits: one bucket for each name, which is the id of a token or the network of a peer.

Owns: the buckets and how fast they fill. A bucket holds one minute of requests, so a burst may use it up at once.
Does not own: who is exempt (authentication).
Invariant: the number of buckets is bounded; names beyond it share one.
"""

from collections.abc import Callable

REQUESTS_PER_MINUTE = 600
FAILURES_PER_MINUTE = 30  # Refused credentials from one network, before even that answer is kept from it.
INBOUND_PER_MINUTE = 12_000  # Signed requests from one network: a platform sends for many conversations at once.
BUCKETS_MAX = 4096  # Full buckets need no memory: beyond this they are forgotten.
SHARED = "*"  # The bucket of every name that comes when there is no room for another.


class RateLimits:
    def __init__(self, per_minute: int, monotonic_s: Callable[[], float]) -> None:
        self._size = float(per_minute)
        self._per_s = per_minute / 60
        self._now_s = monotonic_s
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> bool:
        """Whether one more request may pass now."""
        now_s = self._now_s()
        name = self._room_for(name, now_s)
        level = self._level(name, now_s)
        if level < 1:
            return False
        self._levels[name] = (level - 1, now_s)
        return True

    def _room_for(self, name: str, now_s: float) -> str:
        if name in self._levels or len(self._levels) < BUCKETS_MAX:
            return name
        self._forget_full(now_s)
        return name if len(self._levels) < BUCKETS_MAX else SHARED

    def _level(self, name: str, now_s: float) -> float:
        level, at_s = self._levels.get(name, (self._size, now_s))
        return min(self._size, level + (now_s - at_s) * self._per_s)

    def _forget_full(self, now_s: float) -> None:
        self._levels = {name: held for name, held in self._levels.items() if self._level(name, now_s) < self._size}
