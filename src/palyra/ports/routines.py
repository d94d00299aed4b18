"""The Routines port: reads the routines that commits wrote, and makes one for a tool.

Does not own: writing them (core.writes), nor when they are due (core.routines).
"""

from typing import Protocol

from palyra.core.ids import EffectId, Principal, RoutineId, RunId
from palyra.core.routines.model import Routine, RoutineFire, RoutineFireView
from palyra.core.routines.wish import RoutineWish


class RoutineViews(Protocol):
    async def routine(self, routine_id: RoutineId) -> Routine | None:
        """Returns a routine, also a removed one, whose history stays."""
        ...

    async def list_routines(
        self, principal: Principal | None, after: str, limit: int, *, is_removed: bool = False
    ) -> tuple[Routine, ...]:
        """Lists routines that are there, or those that were removed, by id. None lists everyone's.

        `after` is the last id of the page before.
        """
        ...

    async def count_routines(self, principal: Principal) -> int: ...

    async def due_routines(self, now_ms: int, limit: int) -> tuple[Routine, ...]:
        """Returns routines whose next time has come, the longest due first."""
        ...

    async def next_due_ms(self) -> int | None:
        """Returns the earliest next time of all routines that are not paused."""
        ...

    async def active_runs(self, routine_id: RoutineId, principal: Principal) -> tuple[RunId, ...]:
        """Returns the principal's runs of the routine that are not over, oldest first, however long ago they began."""
        ...

    async def fire(self, routine_id: RoutineId, due_at_ms: int) -> RoutineFire | None: ...

    async def history(
        self, routine_id: RoutineId, principal: Principal, before_ms: int | None, limit: int
    ) -> tuple[RoutineFireView, ...]:
        """Returns times that came while the routine was the principal's, the newest first (L11).

        If `before_ms` is given, only earlier ones.
        """
        ...


class RoutineMaker(Protocol):
    """What the tool that creates routines needs."""

    async def make(self, principal: Principal, wish: RoutineWish, effect_id: EffectId) -> Routine:
        """Creates a routine; the same effect creates it once. Invalid and Conflict say why it cannot."""
        ...

    def describe(self, wish: RoutineWish) -> str:
        """Says in words when the routine would run, for the person who is asked. Invalid if it cannot be."""
        ...
