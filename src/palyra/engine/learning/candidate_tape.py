"""Commits what happens to candidates: events on the node's system tape together with writes.

Does not own: what they say, nor the order on that tape (engine.system_tape).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from palyra.core.events import Data, Draft
from palyra.core.ids import Principal
from palyra.core.trust import Trust
from palyra.core.writes import Fence, Write
from palyra.engine.system_tape import SystemTape
from palyra.ports.clock import Clock

LEARNING = Principal("system:reflection")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateTape:
    system: SystemTape
    clock: Clock

    async def commit(
        self, actor: Principal, facts: Sequence[Data], writes: Sequence[Write], fence: Fence | None = None
    ) -> None:
        """Commits all or nothing. A Conflict means that a candidate or a job has changed meanwhile."""
        now_ms = self.clock.now_ms()
        trust = Trust.SYSTEM if actor.startswith("system:") else Trust.OPERATOR
        drafts = [Draft(data=data, actor=actor, trust=trust, at_ms=now_ms) for data in facts]
        if drafts:
            await self.system.append(drafts, writes, fence)
        elif writes:
            await self.system.journal.commit((), writes, fence)
