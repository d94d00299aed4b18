"""Acts upon the daemon itself. Owns: putting them on its system tape (`admin.acted`). Not: what was done."""

from palyra.core.errors import Conflict
from palyra.core.events import Draft
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal, system_stream
from palyra.core.trust import Trust
from palyra.engine.office import Office
from palyra.ports.journal import Append

ATTEMPTS_MAX = 16  # Checkpoints and erasures are put on the same tape; one of them in between is all that can be.


async def record_act(office: Office, principal: Principal, act: AdminActed) -> None:
    """Durable when it returns."""
    stream = system_stream(office.node)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        head = await office.journal.head(stream)
        draft = Draft(data=act, actor=principal, trust=Trust.OPERATOR, at_ms=office.clock.now_ms())
        append = Append(stream, head.seq if head is not None else 0, (draft,))
        try:
            office.hub.publish(await office.journal.commit([append]))
        except Conflict:
            if attempt == ATTEMPTS_MAX:
                raise
        else:
            return
