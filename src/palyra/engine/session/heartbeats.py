"""Heartbeats of running runs: state rows that say a run is alive, and when it last got on.

Owns: renewing them all in one commit. Does not own: setting and clearing them, which is part of the commit that starts,
holds or ends a run (commit_builder); nor what is done about a run without one.
"""

import asyncio
from dataclasses import dataclass, field

import structlog

from palyra.core.errors import PalyraError
from palyra.core.ids import RunId
from palyra.core.writes import RenewHeartbeat
from palyra.engine.hub import Hub
from palyra.engine.session.pending_commit import running_run
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal

RENEW_EVERY_S = 15.0

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Heartbeats:
    """Progress is told by what grew since the last renewal: the tape, or the live text. No token pays for it."""

    journal: Journal
    loops: SessionLoops
    hub: Hub
    clock: Clock
    _seen: dict[RunId, tuple[int, int, int]] = field(default_factory=dict)

    async def keep(self) -> None:
        """Renews them regularly; never ends by itself."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                await self.renew()
            except PalyraError as error:
                log.warning("heartbeats_not_renewed", code=error.code, message=error.message)

    async def renew(self) -> None:
        now_ms = self.clock.now_ms()
        seen: dict[RunId, tuple[int, int, int]] = {}
        for state in self.loops.running_states():
            run_id = running_run(state)
            if run_id is None:
                continue
            grown = (state.head_seq, self.hub.live_count(state.session_id))
            *known, progress_at_ms = self._seen.get(run_id, (None, None, now_ms))
            seen[run_id] = (*grown, progress_at_ms if tuple(known) == grown else now_ms)
        self._seen = seen
        writes = tuple(
            RenewHeartbeat(run_id, now_ms, progress_at_ms) for run_id, (_, _, progress_at_ms) in seen.items()
        )
        if writes:
            await self.journal.commit((), writes)
