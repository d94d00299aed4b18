"""Slots for runs that are active at the same time.

Owns: which sessions hold a slot, and which wait for one, in order. Does not own: waking them (session_loops).
"""

import asyncio

from palyra.core.ids import SessionId


class RunSlots:
    """A queued run waits for a slot without a coroutine."""

    def __init__(self, slots_max: int) -> None:
        self._slots_max = slots_max
        self._taken: set[SessionId] = set()
        self._waiting: dict[SessionId, None] = {}
        self._is_free = asyncio.Event()
        self._is_free.set()
        self.is_closed = False

    def has_room(self, session_id: SessionId) -> bool:
        """Takes a slot if one is free. Otherwise the session is remembered, and woken when one is."""
        if session_id in self._taken and not self.is_closed:
            return True
        if self.is_closed or len(self._taken) >= self._slots_max:
            self._waiting[session_id] = None
            return False
        self.take(session_id)
        return True

    def take(self, session_id: SessionId) -> None:
        """Takes a slot even beyond the limit.

        A run that was active before a restart, or has its answer, must not wait.
        """
        self._waiting.pop(session_id, None)
        self._taken.add(session_id)
        self._is_free.clear()

    def leave(self, session_id: SessionId) -> None:
        self._taken.discard(session_id)
        if not self._taken:
            self._is_free.set()

    def next_waiting(self) -> SessionId | None:
        """Returns the session that has waited longest, if a slot is free.

        A session that does not want it passes it on.
        """
        if self.is_closed or len(self._taken) >= self._slots_max or not self._waiting:
            return None
        waiting = next(iter(self._waiting))
        del self._waiting[waiting]
        return waiting

    async def wait_until_free(self) -> None:
        await self._is_free.wait()

    @property
    def taken_count(self) -> int:
        return len(self._taken)
