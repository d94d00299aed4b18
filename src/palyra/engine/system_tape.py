"""Appends to the node's system tape: administrative acts, incidents, and what happens to routines.

Owns: the order of what one process appends there. Does not own: what is said.
One lock lets appends of this process wait for each other. Without it they would collide under load, and each would be
repeated until it failed. Checkpoints, erasures and other processes still come in between, so an append is repeated.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import SystemRandom

from palyra.core.errors import Conflict
from palyra.core.events import Draft, Event
from palyra.core.ids import NodeId, system_stream
from palyra.core.writes import Fence, Write
from palyra.engine.hub import Hub
from palyra.ports.journal import Append, Journal

ATTEMPTS_MAX = 64
PAUSE_MAX_S = 0.02  # An append takes a few milliseconds.

_random = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTape:
    node: NodeId
    journal: Journal
    hub: Hub
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def append(self, drafts: Sequence[Draft], writes: Sequence[Write] = (), fence: Fence | None = None) -> None:
        """Commits all or nothing and publishes the events. A Conflict is about the writes or the fence."""
        async with self._lock:
            self.hub.publish(await append_to_system(self.journal, self.node, drafts, writes, fence))


async def append_to_system(
    journal: Journal, node: NodeId, drafts: Sequence[Draft], writes: Sequence[Write] = (), fence: Fence | None = None
) -> tuple[Event, ...]:
    """Appends after whatever else is appended at the same time."""
    stream = system_stream(node)
    attempts_left = ATTEMPTS_MAX
    while True:
        head = await journal.head(stream)
        append = Append(stream, head.seq if head is not None else 0, tuple(drafts))
        try:
            return await journal.commit((append,), writes, fence)
        except Conflict as conflict:
            attempts_left -= 1
            if conflict.code != "seq_stale" or attempts_left == 0:
                raise
        await asyncio.sleep(_random.uniform(0, PAUSE_MAX_S))
