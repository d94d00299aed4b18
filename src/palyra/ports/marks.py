"""The MarkViews port: reads the checkpoints and pins of sessions.

Does not own: changing them, which only commits to a session's tape do.
"""

from typing import Protocol

from palyra.core.ids import SessionId
from palyra.core.projections.rows import MarkKind, MarkRow


class MarkViews(Protocol):
    async def mark(self, session_id: SessionId, name: str) -> MarkRow | None: ...

    async def made(self, session_id: SessionId, kind: MarkKind, after_seq: int, limit: int) -> tuple[MarkRow, ...]:
        """Lists marks that the session itself made after this event, in order."""
        ...

    async def count_made(self, session_id: SessionId, kind: MarkKind) -> int: ...

    async def pins_at(self, session_id: SessionId, seq: int) -> tuple[MarkRow, ...]:
        """Returns the pins that one tape's own events up to `seq` leave, in order.

        Among them are the inherited pins that those events removed: their `made_seq` is 0.
        """
        ...
