"""Messages that were written while a channel was not connected: which of them are still read.

Owns: how far a conversation was read, and the limits of reading on from there.
Does not own: reading (engine.channels.catch_up), what becomes of a message (router).
"""

import msgspec

CONVERSATIONS_MAX = 200  # Those that were heard from last; each costs a request to the platform.
MESSAGES_MAX = 1_000  # Of one conversation, the newest; in a group most of them are not for the agent.
AGE_MAX_MS = 3 * 86_400_000  # A weekend. Who waited longer asks again, or no longer wants what they asked for.
POSITIONS_KEPT_MS = 180 * 86_400_000  # As long as the link of an account.


class ReadPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The last message of a conversation that was heard. `at_ms` is when."""

    channel: str
    conversation_id: str
    message_id: str
    at_ms: int


def is_later(message_id: str, other: str) -> bool:
    """Compares ids that a platform gives in order: numbers of growing length."""
    return (len(message_id), message_id) > (len(other), other)
