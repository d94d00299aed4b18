"""The log of administrative acts, on the node's system tape (`admin.acted`).

Owns: recording them. Does not own: doing them.
"""

from dataclasses import dataclass

from palyra.core.events import Draft
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.core.trust import Trust
from palyra.engine.system_tape import SystemTape
from palyra.ports.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminLog:
    system: SystemTape
    clock: Clock

    async def record(self, principal: Principal, act: AdminActed) -> None:
        """Records an act; the record is durable when this returns.

        Record first, then act: an unrecorded act must not happen.
        """
        await self.system.append((Draft(data=act, actor=principal, trust=Trust.OPERATOR, at_ms=self.clock.now_ms()),))
