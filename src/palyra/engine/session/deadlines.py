"""Deadlines of all sessions, in one heap.

Owns: the next deadline of each session, and calling `wake` when it has come.
Does not own: which deadlines a run has (core.run.deadlines).
A run that waits for a day costs one entry, and no coroutine (L7).
"""

import asyncio
import heapq
from collections.abc import Callable

from palyra.core.ids import SessionId
from palyra.ports.clock import Clock

STALE_ENTRIES_MAX = 1_000
CLOCK_TRUSTED_S = 30.0


class SessionDeadlines:
    def __init__(self, clock: Clock, wake: Callable[[SessionId], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._heap: list[tuple[int, SessionId]] = []
        self._due: dict[SessionId, int] = {}
        self._changed = asyncio.Event()

    def set(self, session_id: SessionId, at_ms: int | None) -> None:
        """Sets a session's next deadline; each session has one. Heap entries that no longer match are skipped."""
        if at_ms is None:
            self._due.pop(session_id, None)
            return
        if self._due.get(session_id) == at_ms:
            return
        self._due[session_id] = at_ms
        heapq.heappush(self._heap, (at_ms, session_id))
        if len(self._heap) > 2 * len(self._due) + STALE_ENTRIES_MAX:
            self._heap = [(due_ms, session) for session, due_ms in self._due.items()]
            heapq.heapify(self._heap)
        if self._heap[0] == (at_ms, session_id):
            self._changed.set()

    def set_earlier(self, session_id: SessionId, at_ms: int) -> None:
        known_ms = self._due.get(session_id)
        if known_ms is None or at_ms < known_ms:
            self.set(session_id, at_ms)

    def look_at_clock(self) -> None:
        """Checks the clock now, because time may have passed without a wait."""
        self._changed.set()

    async def keep(self) -> None:
        """Wakes each session when its deadline has come; never ends by itself."""
        while True:
            self._changed.clear()
            now_ms = self._clock.now_ms()
            while self._heap and self._heap[0][0] <= now_ms:
                at_ms, session_id = heapq.heappop(self._heap)
                if self._due.get(session_id) == at_ms:
                    del self._due[session_id]
                    self._wake(session_id)
            # Clocks jump: a laptop sleeps, an operator sets the time. So every wait is short.
            left_s = (self._heap[0][0] - now_ms) / 1000 if self._heap else CLOCK_TRUSTED_S
            try:
                async with asyncio.timeout(min(left_s, CLOCK_TRUSTED_S)):
                    await self._changed.wait()
            except TimeoutError:
                continue
