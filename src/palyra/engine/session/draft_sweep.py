"""Removes drafts that nothing needs any more: a kill behind the outcome of a call leaves its draft.

Does not own: removing a draft when its call ends (effect_runner).
Also the layers of sessions that were erased.
Invariant: the draft of a call without an outcome stays, however long a person takes to answer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from palyra.core.ids import EffectId
from palyra.core.run.call import CallPhase
from palyra.core.run.states import RunState
from palyra.engine.session.session_loader import SessionLoader
from palyra.ports.drafts import Drafts
from palyra.ports.views import RunViews, SessionViews

PAGE_RUNS = 100
_UNFINISHED = frozenset({RunState.ACCEPTED, RunState.IN_PROGRESS, RunState.WAITING})

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSweep:
    """`leftovers` names the drafts on disk, without those that a caller in this process is about to apply."""

    leftovers: Callable[[], Awaitable[tuple[EffectId, ...]]]
    drafts: Drafts
    runs: RunViews
    sessions: SessionViews
    loader: SessionLoader

    async def sweep(self) -> int:
        """Removes the drafts of all calls that have an outcome. Returns their number."""
        # The disk is read first: a draft that begins later is not listed, and an outcome is final.
        listed = await self.leftovers()
        needed = await self._needed() if listed else frozenset()
        removed_count = 0
        for effect_id in listed:
            if effect_id in needed:
                continue
            try:
                await self.drafts.forget(effect_id)
                removed_count += 1
            except OSError as cause:
                log.warning("draft_not_removed", effect_id=effect_id, reason=cause.strerror)
        await self._sweep_layers()
        if removed_count:
            log.info("drafts_swept", removed_count=removed_count)
        return removed_count

    async def _sweep_layers(self) -> None:
        """Removes the layers of sessions that are no more."""
        for session_id in await self.drafts.layered_sessions():
            row = await self.sessions.session(session_id, None)
            if row is None or row.is_erased:
                await self.drafts.forget_layers(session_id)

    async def _needed(self) -> frozenset[EffectId]:
        needed: set[EffectId] = set()
        after = ""
        while rows := await self.runs.runs_in(_UNFINISHED, after, PAGE_RUNS):
            after = rows[-1].id
            for row in rows:
                run = await self.loader.fold_run(row)
                calls = run.calls if run is not None else ()
                needed |= {call.effect_id for call in calls if call.phase is not CallPhase.FINISHED}
        return frozenset(needed)
