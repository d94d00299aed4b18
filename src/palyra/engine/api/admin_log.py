"""The log of administrative acts, on the node's system tape (`admin.acted`).

Owns: recording them. Does not own: doing them.
"""

from dataclasses import dataclass

from palyra.core.errors import Conflict
from palyra.core.events import Draft, Event
from palyra.core.events.system import AdminActed
from palyra.core.ids import NodeId, Principal, system_stream
from palyra.core.trust import Trust
from palyra.engine.hub import Hub
from palyra.ports.clock import Clock
from palyra.ports.journal import Append, Journal

ATTEMPTS_MAX = 16  # Only checkpoints and erasures on the same tape can come in between.


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminLog:
    node: NodeId
    journal: Journal
    hub: Hub
    clock: Clock

    async def record(self, principal: Principal, act: AdminActed) -> None:
        """Records an act; the record is durable when this returns.

        Record first, then act: an unrecorded act must not happen.
        """
        draft = Draft(data=act, actor=principal, trust=Trust.OPERATOR, at_ms=self.clock.now_ms())
        self.hub.publish(await append_act(self.journal, self.node, draft))


async def append_act(journal: Journal, node: NodeId, draft: Draft) -> tuple[Event, ...]:
    """Appends an act to the node's system tape, after whatever else is appended at the same time."""
    stream = system_stream(node)
    attempts_left = ATTEMPTS_MAX
    while True:
        head = await journal.head(stream)
        try:
            return await journal.commit([Append(stream, head.seq if head is not None else 0, (draft,))])
        except Conflict:
            attempts_left -= 1
            if attempts_left == 0:
                raise
