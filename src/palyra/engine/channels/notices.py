"""Short messages of the daemon itself to a conversation: answers to commands, and words about pairing.

Does not own: answers of runs (core.channels.replies), sending (sender).
"""

from palyra.core.channel_writes import PutPosition, QueueOutbox, RecordEnvelope
from palyra.core.channels.missed import POSITIONS_KEPT_MS, ReadPosition
from palyra.core.channels.model import InboundMessage, TakenEnvelope
from palyra.core.channels.outbox import OutboxItem, OutboxKind, item_id, job_of
from palyra.core.writes import EnqueueJob, Write

ENVELOPES_KEPT_MS = 7 * 86_400_000  # Longer than any platform delivers again.


def taken(message: InboundMessage, now_ms: int) -> tuple[Write, ...]:
    """Returns the delivery as taken, and that its conversation was read this far."""
    envelope = TakenEnvelope(channel=message.channel, envelope_id=message.envelope_id, at_ms=now_ms)
    return RecordEnvelope(envelope, now_ms - ENVELOPES_KEPT_MS), *positions_of(message, now_ms)


def positions_of(message: InboundMessage, now_ms: int) -> tuple[PutPosition, ...]:
    """Returns how far its conversation was read, if the platform lists the message."""
    if not message.is_listed or message.message_id is None:
        return ()
    position = ReadPosition(
        channel=message.channel, conversation_id=message.conversation_id, message_id=message.message_id, at_ms=now_ms
    )
    return (PutPosition(position, now_ms - POSITIONS_KEPT_MS),)


def notice_writes(message: InboundMessage, text: str, now_ms: int) -> tuple[Write, ...]:
    """Returns the delivery as taken, and its answer in the outbox."""
    item = OutboxItem(
        id=item_id("notice", message.channel, message.envelope_id),
        channel=message.channel,
        conversation_id=message.conversation_id,
        thread_id=message.thread_id,
        reply_to=message.message_id,
        kind=OutboxKind.NOTICE,
        text=text,
        created_at_ms=now_ms,
        not_before_ms=now_ms,
        updated_at_ms=now_ms,
    )
    return *taken(message, now_ms), QueueOutbox(item), EnqueueJob(job_of(item, now_ms))
