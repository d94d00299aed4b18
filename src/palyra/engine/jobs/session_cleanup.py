"""Session cleanup: erases sessions that were idle for too long, and removes files that nothing refers to.

Owns: the order of its steps. Does not own: erasing (api.sessions), when it is due (kinds, upkeep).
Each step is complete or did not happen: a session and its branches are erased in one transaction. Files that a crash
left behind are found by the next cleanup.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palyra.core.errors import Conflict
from palyra.core.ids import Principal, SessionId
from palyra.core.jobs.model import Job
from palyra.engine.api.artifacts import ArtifactService
from palyra.engine.api.sessions import SessionService
from palyra.engine.jobs.handler import JobDone, JobResult, Report
from palyra.ports.clock import Clock
from palyra.ports.views import SessionViews

ACTOR = Principal("system:retention")
FAMILIES_A_STEP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCleanup:
    """`kept` names the sessions of which tools keep something; `forget` removes it."""

    sessions: SessionService
    artifacts: ArtifactService
    views: SessionViews
    clock: Clock
    retention_ms: int | None
    kept: Callable[[], Awaitable[tuple[SessionId, ...]]]
    forget: Callable[[SessionId], Awaitable[None]]
    sweep_drafts: Callable[[], Awaitable[int]]

    async def perform(self, job: Job, report: Report) -> JobResult:
        erased_count = await self._erase_idle(report)
        profiles_count = await self._forget_erased()
        report(f"erased {erased_count} sessions, removed the files of {profiles_count}; sweeping artifacts")
        swept_count = await self.artifacts.sweep()
        drafts_count = await self.sweep_drafts()
        removed = f"{swept_count} artifacts, {drafts_count} drafts"
        report(f"erased {erased_count} sessions, removed the files of {profiles_count}, {removed}")
        return JobDone()

    async def _erase_idle(self, report: Report) -> int:
        if self.retention_ms is None:
            return 0
        before_ms = self.clock.now_ms() - self.retention_ms
        erased_count = 0
        busy: set[SessionId] = set()
        while True:
            families = await self.views.inactive_families(before_ms, FAMILIES_A_STEP + len(busy))
            families = tuple(family for family in families if family[0] not in busy)
            if not families:
                return erased_count
            for family in families:
                try:
                    await self.sessions.erase_family(family, "retention", ACTOR, before_ms)
                    erased_count += len(family)
                except Conflict:
                    # Somebody has just begun to use it again, so it is idle no more.
                    busy.add(family[0])
                report(f"erased {erased_count} sessions")

    async def _forget_erased(self) -> int:
        """Removes what tools keep of sessions that are no more."""
        forgotten_count = 0
        for session_id in await self.kept():
            row = await self.views.session(session_id, None)
            if row is None or row.is_erased:
                await self.forget(session_id)
                forgotten_count += 1
        return forgotten_count
