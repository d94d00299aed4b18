"""Records how far conversations were read, for messages that nothing came of.

Does not own: positions of messages that are taken: those are part of their commits (notices).
What is ignored costs no write of its own: the positions of all conversations are written together, some seconds later.
After a crash in between, such a message is looked at once more, by the rules of then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from palyra.core.channels.model import InboundMessage
from palyra.engine.channels.notices import positions_of
from palyra.engine.tasks import TaskSupervisor
from palyra.ports.channels import PositionViews
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal

WRITE_AFTER_S = 10.0
NOTED_MAX = 1_000  # Conversations between two writes.


@dataclass(slots=True, kw_only=True)
class HeardPositions:
    views: PositionViews
    journal: Journal
    tasks: TaskSupervisor
    clock: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _noted: dict[tuple[str, str], InboundMessage] = field(default_factory=dict)

    def note(self, messages: Iterable[InboundMessage]) -> None:
        """Remembers that these were heard. The last one of a conversation counts."""
        for message in messages:
            key = (message.channel, message.conversation_id)
            if message.is_listed and (key in self._noted or len(self._noted) < NOTED_MAX):
                if not self._noted:
                    self.tasks.spawn(self._write(), "heard positions")
                self._noted[key] = message

    async def _write(self) -> None:
        """Writes the positions of conversations that are known. A stranger's makes none known."""
        await self.sleep(WRITE_AFTER_S)
        noted, self._noted = self._noted, {}
        known = [each for key, each in noted.items() if await self.views.position(*key) is not None]
        if known:
            now_ms = self.clock.now_ms()
            await self.journal.commit((), tuple(write for each in known for write in positions_of(each, now_ms)))
