"""Bursts: quick successive messages of one sender that are one thought.

Does not own: waiting for them (engine.channels.intake).
"""

from collections.abc import Sequence

import msgspec

from palyra.core.channels.model import ATTACHMENTS_MAX, TEXT_LENGTH_MAX, InboundMessage

MESSAGES_MAX = 20  # More than a person types within the time of a burst.


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that belong together, in the order in which they came."""

    messages: tuple[InboundMessage, ...]

    @property
    def text(self) -> str:
        return "\n".join(message.text for message in self.messages if message.text)

    @property
    def first(self) -> InboundMessage:
        return self.messages[0]

    @property
    def last(self) -> InboundMessage:
        return self.messages[-1]


def belongs(burst: Burst, message: InboundMessage) -> bool:
    """Tells whether a message goes on with a burst: the same sender in the same thread, within the limits."""
    first = burst.first
    is_same = (message.channel, message.conversation_id, message.thread_id, message.sender_id) == (
        first.channel,
        first.conversation_id,
        first.thread_id,
        first.sender_id,
    )
    attachments = sum(len(each.attachments) for each in (*burst.messages, message))
    has_room = len(burst.messages) < MESSAGES_MAX and attachments <= ATTACHMENTS_MAX
    return is_same and has_room and len(burst.text) + len(message.text) + 1 <= TEXT_LENGTH_MAX


def joined(messages: Sequence[InboundMessage]) -> tuple[Burst, ...]:
    """Returns messages as bursts, in order. A message that was delivered twice is one."""
    bursts: list[Burst] = []
    seen: set[str] = set()
    for message in messages:
        if message.envelope_id in seen:
            continue
        seen.add(message.envelope_id)
        if bursts and belongs(bursts[-1], message):
            bursts[-1] = Burst(messages=(*bursts[-1].messages, message))
        else:
            bursts.append(Burst(messages=(message,)))
    return tuple(bursts)
