"""Compacting one's own sessions by hand (L11). Does not own: how a session is compacted (engine.compaction)."""

from dataclasses import dataclass

from palyra.core.ids import Principal, SessionId
from palyra.core.service_runs import refuse_service
from palyra.engine.api.sessions import SessionService
from palyra.engine.compaction.compactor import CompactionReport, Compactor


@dataclass(frozen=True, slots=True)
class CompactionService:
    sessions: SessionService
    compactor: Compactor

    async def compact(self, principal: Principal, session_id: SessionId) -> CompactionReport:
        """Compacts now and returns when it is done. The session can be used meanwhile."""
        await self._require(principal, session_id)
        return await self.compactor.compact(session_id, "by_hand")

    async def preview(self, principal: Principal, session_id: SessionId) -> CompactionReport:
        """Returns what the rules alone would keep and lose; nothing is recorded."""
        await self._require(principal, session_id)
        return await self.compactor.preview(session_id)

    async def _require(self, principal: Principal, session_id: SessionId) -> None:
        row = await self.sessions.get(principal, session_id)
        refuse_service(session_id, row.agent)
