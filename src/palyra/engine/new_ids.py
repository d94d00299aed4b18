"""New ids of runs, sessions, jobs, incidents, routines, memory items, checkpoints and pins.

Owns: the randomness in them. Does not own: their form (core.ids).
"""

import secrets
from collections import deque

from palyra.core.ids import (
    ULID_RANDOM_BYTES,
    IncidentId,
    JobId,
    MemoryId,
    RoutineId,
    RunId,
    SessionId,
    StreamId,
    make_ulid,
)
from palyra.ports.clock import Clock

IDS_DRAWN_COUNT = 256


class IdSource:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entropy: deque[bytes] = deque()

    def run_id(self) -> RunId:
        return RunId(self._ulid())

    def session_id(self) -> SessionId:
        return SessionId(StreamId(self._ulid()))

    def job_id(self) -> JobId:
        return JobId(self._ulid())

    def incident_id(self) -> IncidentId:
        return IncidentId(self._ulid())

    def routine_id(self) -> RoutineId:
        return RoutineId(self._ulid())

    def memory_id(self) -> MemoryId:
        return MemoryId(self._ulid())

    def mark_id(self) -> str:
        """For a checkpoint or a pin."""
        return self._ulid()

    def _ulid(self) -> str:
        """Makes an id.

        A call of the kernel hands the interpreter to another thread, so bytes for many ids are read at once.
        """
        if not self._entropy:
            drawn = secrets.token_bytes(ULID_RANDOM_BYTES * IDS_DRAWN_COUNT)
            starts = range(0, len(drawn), ULID_RANDOM_BYTES)
            self._entropy.extend(drawn[start : start + ULID_RANDOM_BYTES] for start in starts)
        return make_ulid(self._clock.now_ms(), self._entropy.pop())
