"""Acts upon the daemon itself. Owns: putting them on its system tape (`admin.acted`). Not: what was done."""

from palyra.core.errors import Conflict
from palyra.core.events import Draft, Event
from palyra.core.events.system import AdminActed
from palyra.core.ids import NodeId, Principal, system_stream
from palyra.core.trust import Trust
from palyra.engine.context import EngineContext
from palyra.ports.journal import Append, Journal

ATTEMPTS_MAX = 16  # Checkpoints and erasures are put on the same tape; one of them in between is all that can be.


class AdminLog:
    def __init__(self, office: EngineContext) -> None:
        self._office = office

    async def record(self, principal: Principal, act: AdminActed) -> None:
        """Durable when it returns. What is not recorded is not done: record first, then act."""
        await record_act(self._office, principal, act)


async def record_act(office: EngineContext, principal: Principal, act: AdminActed) -> None:
    """Durable when it returns."""
    draft = Draft(data=act, actor=principal, trust=Trust.OPERATOR, at_ms=office.clock.now_ms())
    office.hub.publish(await append_act(office.journal, office.node, draft))


async def append_act(journal: Journal, node: NodeId, draft: Draft) -> tuple[Event, ...]:
    """Puts an act on the node's system tape, behind whatever else is put there at the same time."""
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
