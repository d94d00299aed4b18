"""The IncidentViews port: reads what the watchdog found.

Does not own: changing it, which only commits to a system tape do.
"""

from typing import Protocol

from palyra.core.healing.model import IncidentStatus
from palyra.core.ids import IncidentId
from palyra.core.projections.rows import IncidentRow


class IncidentViews(Protocol):
    async def incident(self, incident_id: IncidentId) -> IncidentRow | None: ...

    async def list_incidents(self, status: IncidentStatus | None, after: str, limit: int) -> tuple[IncidentRow, ...]:
        """Lists incidents by id, the newest first; `after` is the last id of the page before."""
        ...

    async def current_incidents(self, since_ms: int, limit: int) -> tuple[IncidentRow, ...]:
        """Returns incidents that are open or were resolved since then, the open ones first."""
        ...

    async def count_open(self) -> int: ...


class NoIncidents:
    """Used where nothing is watched."""

    async def incident(self, incident_id: IncidentId) -> IncidentRow | None:
        return None

    async def list_incidents(self, status: IncidentStatus | None, after: str, limit: int) -> tuple[IncidentRow, ...]:
        return ()

    async def current_incidents(self, since_ms: int, limit: int) -> tuple[IncidentRow, ...]:
        return ()

    async def count_open(self) -> int:
        return 0
