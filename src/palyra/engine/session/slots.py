"""Slots for runs that are active at the same time.

Owns: which sessions hold a slot, and which wait for one, in order. Does not own: waking them (session_loops).
"""

import asyncio

from palyra.core.ids import SessionId


class RunSlots:
    """A queued run waits for a slot without a coroutine.

    Runs of each depth of delegation have slots of their own. A run holds its slot while it waits for its children, so
    with shared slots parents could take all of them, and wait for ever. Only runs of depth 0 are held back while the
    daemon stops: the others belong to runs that are to finish.
    """

    def __init__(self, slots_max: int) -> None:
        self._slots_max = slots_max
        self._taken: dict[SessionId, int] = {}
        self._waiting: dict[SessionId, int] = {}
        self._is_free = asyncio.Event()
        self._is_free.set()
        self.is_closed = False

    def has_room(self, session_id: SessionId, depth: int = 0) -> bool:
        """Takes a slot if one is free. Otherwise the session is remembered, and woken when one is."""
        is_closed = self.is_closed and depth == 0
        if self._taken.get(session_id) == depth and not is_closed:
            return True
        if is_closed or not self._is_free_at(depth):
            self._waiting[session_id] = depth
            return False
        self.take(session_id, depth)
        return True

    def take(self, session_id: SessionId, depth: int = 0) -> None:
        """Takes a slot even beyond the limit.

        A run that was active before a restart, or has its answer, must not wait.
        """
        self._waiting.pop(session_id, None)
        self._taken[session_id] = depth
        self._is_free.clear()

    def leave(self, session_id: SessionId) -> None:
        self._taken.pop(session_id, None)
        if not self._taken:
            self._is_free.set()

    def next_waiting(self) -> SessionId | None:
        """Returns the session that has waited longest, if a slot is free.

        A session that does not want it passes it on.
        """
        for waiting, depth in self._waiting.items():
            if not (self.is_closed and depth == 0) and self._is_free_at(depth):
                del self._waiting[waiting]
                return waiting
        return None

    async def wait_until_free(self) -> None:
        await self._is_free.wait()

    def _is_free_at(self, depth: int) -> bool:
        return sum(taken == depth for taken in self._taken.values()) < self._slots_max

    @property
    def taken_count(self) -> int:
        return len(self._taken)
