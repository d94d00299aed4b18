"""Dead letters that came in: messages that could not be read or taken, kept so that the next one is read.

Owns: what keeps a channel going past one odd message, for every platform, and that nothing is lost to a busy disk.
Does not own: reading (adapters.channels), listing them and giving them up (api.outbox).
Invariants: Unavailable leaves as it is, so that the platform delivers again, and makes no dead letter. Whatever else
taking a message raises makes one. Of one channel the newest LETTERS_MAX are kept, so strangers cannot fill the disk.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from palyra.core.channel_writes import KeepDeadLetter
from palyra.core.channels.model import InboundMessage
from palyra.core.channels.outbox import dead_letter
from palyra.core.channels.unread import UnreadMessage, require_plain, unread_of
from palyra.core.errors import PalyraError, Unavailable
from palyra.engine.channels.intake import Receipt
from palyra.ports.clock import Clock
from palyra.ports.journal import Journal

LETTERS_MAX = 1_000
TRIES_MAX = 5  # Of a message that met what may pass, such as a queue that was full.
TRIED_MAX = 1_000  # Messages whose tries are counted at once.
UNREAD = Receipt(is_accepted=False, reason="unread")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    journal: Journal
    clock: Clock
    _tries: "OrderedDict[tuple[str, str], int]" = field(default_factory=OrderedDict)

    async def keep(self, unread: UnreadMessage) -> Receipt:
        """Keeps a message that could not be read. It is durable when this returns; the same one is kept once."""
        log.warning("channel_message_unread", channel=unread.channel, ids=unread.message_ids, why=unread.reason)
        item = dead_letter(unread, self.clock.now_ms())
        await self.journal.commit((), (KeepDeadLetter(item, LETTERS_MAX),))
        return UNREAD

    async def settled(
        self, message: InboundMessage | UnreadMessage, take: Callable[[InboundMessage], Awaitable[Receipt]]
    ) -> Receipt:
        """Takes a message and returns what became of it. Raises only Unavailable."""
        if isinstance(message, UnreadMessage):
            return await self.keep(message)
        try:
            require_plain(message)
            return await take(message)
        except Unavailable:
            raise
        except PalyraError as error:
            if error.is_retryable and self._may_try_again(message):
                raise Unavailable(error.code, error.message) from error
            return await self.keep(unread_of(message, error))

    def _may_try_again(self, message: InboundMessage) -> bool:
        key = (message.channel, message.envelope_id)
        count = self._tries.pop(key, 0) + 1
        if count >= TRIES_MAX:
            return False
        self._tries[key] = count
        if len(self._tries) > TRIED_MAX:
            self._tries.popitem(last=False)
        return True
