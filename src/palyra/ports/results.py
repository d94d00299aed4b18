"""The PastResults port: reads the result of an earlier tool call of a session again.

Does not own: shortening results in a prompt (core.context.prompt).
"""

from typing import Protocol

import msgspec

from palyra.core.ids import SessionId
from palyra.core.trust import Trust


class PastResult(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    trust: Trust
    source: str | None
    changes_artifact_id: str | None = None
    undo_artifact_id: str | None = None


class PastResults(Protocol):
    async def find(self, session_id: SessionId, call_id: str) -> PastResult | None:
        """Returns the result of a call of this session, or of the part of its parents that it inherited."""
        ...


class NoPastResults:
    """Used where there is no journal."""

    async def find(self, session_id: SessionId, call_id: str) -> PastResult | None:
        return None
