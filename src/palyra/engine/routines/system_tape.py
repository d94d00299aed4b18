"""Commits what happens to routines: events on the node's system tape together with writes.

Does not own: what they say.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from palyra.core.errors import Conflict
from palyra.core.events import Data, Draft
from palyra.core.ids import NodeId, Principal, system_stream
from palyra.core.trust import Trust
from palyra.core.writes import Fence, Write
from palyra.engine.hub import Hub
from palyra.ports.clock import Clock
from palyra.ports.journal import Append, Journal

ATTEMPTS_MAX = 16  # Others append to the same tape: checkpoints, erasures, administrative acts.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutineTape:
    node: NodeId
    journal: Journal
    hub: Hub
    clock: Clock

    async def commit(
        self, actor: Principal, facts: Sequence[Data], writes: Sequence[Write], fence: Fence | None = None
    ) -> None:
        """Commits all or nothing. A Conflict means that a routine or a job has changed meanwhile."""
        stream, now_ms = system_stream(self.node), self.clock.now_ms()
        trust = Trust.SYSTEM if actor.startswith("system:") else Trust.OPERATOR
        drafts = tuple(Draft(data=data, actor=actor, trust=trust, at_ms=now_ms) for data in facts)
        attempts_left = ATTEMPTS_MAX
        while True:
            head = await self.journal.head(stream)
            append = Append(stream, head.seq if head is not None else 0, drafts)
            try:
                self.hub.publish(await self.journal.commit((append,), writes, fence))
                return
            except Conflict as conflict:
                attempts_left -= 1
                if conflict.code != "seq_stale" or attempts_left == 0:
                    raise
