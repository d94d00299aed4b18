"""Slots for runs that are active at the same time.

Owns: which sessions hold a slot, and which wait for one, in order. Does not own: waking them (session_loops).
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from palyra.core.ids import SessionId
from palyra.core.run.state import Run
from palyra.core.service_runs import ORIGIN

SERVICE_DEPTH = -1


def slot_depth(run: Run) -> int:
    """Returns how many runs are above this one."""
    return SERVICE_DEPTH if run.origin == ORIGIN else len(run.lineage)


class _Wanted(NamedTuple):
    depth: int
    origin: str


class RunSlots:
    """A queued run waits for a slot without a coroutine.

    Runs of each depth of delegation have slots of their own. A run holds its slot while it waits for its children, so
    with shared slots parents could take all of them, and wait for ever. Service runs have slots of their own for the
    same reason: a run waits for the reviewer of its answer. Only runs of depth 0 are held back while the daemon stops:
    the others belong to runs that are to finish. `origins_max` limits runs of single origins, such as a
    channel, further.
    """

    def __init__(self, slots_max: int, origins_max: Mapping[str, int] | None = None) -> None:
        self._slots_max = slots_max
        self._origins_max = origins_max or {}
        self._taken: dict[SessionId, _Wanted] = {}
        self._waiting: dict[SessionId, _Wanted] = {}
        self._is_free = asyncio.Event()
        self._is_free.set()
        self.is_closed = False

    def has_room(self, session_id: SessionId, depth: int = 0, origin: str = "") -> bool:
        """Takes a slot if one is free. Otherwise the session is remembered, and woken when one is.

        A session that holds a slot keeps it for its next run only if nobody waits for it: otherwise a session with a
        long queue would hold others back.
        """
        is_closed = self.is_closed and depth == 0
        wanted = _Wanted(depth, origin)
        held = self._taken.get(session_id)
        is_held = held is not None and held.depth == depth
        if is_held and not is_closed and not self._is_awaited(session_id):
            return True
        if is_closed or is_held or not self._is_free_for(wanted):
            self._waiting[session_id] = wanted
            return False
        self.take(session_id, depth, origin)
        return True

    def take(self, session_id: SessionId, depth: int = 0, origin: str = "") -> None:
        """Takes a slot even beyond the limit.

        A run that was active before a restart, or has its answer, must not wait.
        """
        self._waiting.pop(session_id, None)
        self._taken[session_id] = _Wanted(depth, origin)
        self._is_free.clear()

    def leave(self, session_id: SessionId) -> None:
        self._taken.pop(session_id, None)
        if not self._taken:
            self._is_free.set()

    def next_waiting(self) -> SessionId | None:
        """Returns the session that has waited longest, if a slot is free.

        A session that does not want it passes it on.
        """
        for waiting, wanted in self._waiting.items():
            if not (self.is_closed and wanted.depth == 0) and self._is_free_for(wanted):
                del self._waiting[waiting]
                return waiting
        return None

    async def wait_until_free(self) -> None:
        await self._is_free.wait()

    def _is_awaited(self, session_id: SessionId) -> bool:
        """Tells whether another session could have the slot that this one holds."""
        held = self._taken.pop(session_id)
        try:
            return any(waiting != session_id and self._is_free_for(wanted) for waiting, wanted in self._waiting.items())
        finally:
            self._taken[session_id] = held

    def _is_free_for(self, wanted: "_Wanted") -> bool:
        taken = [each for each in self._taken.values() if each.depth == wanted.depth]
        most = self._origins_max.get(wanted.origin)
        is_origin_free = most is None or sum(each.origin == wanted.origin for each in taken) < most
        return len(taken) < self._slots_max and is_origin_free

    @property
    def taken_count(self) -> int:
        return len(self._taken)
