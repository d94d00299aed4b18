"""Messages that came in and could not be read.

Owns: what is kept of one, that reading one never raises, and which messages have the plain types that are promised.
Does not own: storing it and going on with the next one (engine.channels.dead_letters).
Invariants: nothing of a message's words is kept here: they were not redacted. A message that passes `require_plain` has
the types that it declares, and only text and numbers that a database takes.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.structs import asdict

from palyra.core.channels.model import (
    ATTACHMENTS_MAX,
    DISPLAY_LENGTH_MAX,
    ID_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    InboundMessage,
)
from palyra.core.errors import Invalid, PalyraError, Unauthorized, Unavailable

REASON_LENGTH_MAX = 300
MILLISECONDS_MAX = 2**53 - 1  # What every client of the API reads exactly.

Read = TypeVar("Read")


class UnreadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that cannot be read. `message_ids` are what finds it on the platform, such as a UID; together they name it.

    `reason` is the daemon's own word, never the sender's.
    """

    channel: str
    message_ids: tuple[str, ...]
    reason: str
    conversation_id: str = ""


def read_or_mark(channel: str, message_ids: tuple[str, ...], read: Callable[[], Read]) -> Read | UnreadMessage:
    """Reads what a platform sent. Whatever reading it raises, the answer is a message that was marked as unread.

    What another workspace was sent is no message of this channel, and leaves as Unauthorized.
    """
    try:
        return read()
    except (Unauthorized, Unavailable):
        raise
    except Exception as error:
        return unread(channel, message_ids, error)


def unread(channel: str, message_ids: tuple[str, ...], error: Exception) -> UnreadMessage:
    ids = tuple(plain_text(each, ID_LENGTH_MAX) for each in message_ids)
    return UnreadMessage(channel=channel, message_ids=ids or ("unnamed",), reason=reason_of(error))


def unread_of(message: InboundMessage, error: Exception) -> UnreadMessage:
    """Returns what is kept of a message that was read, and could not be taken. Its fields may be of any type."""
    named = (message.message_id, message.envelope_id)
    ids = tuple(plain_text(each, ID_LENGTH_MAX) for each in named if isinstance(each, str) and each)
    conversation_id = message.conversation_id if isinstance(message.conversation_id, str) else ""
    return UnreadMessage(
        channel=message.channel,
        message_ids=ids or ("unnamed",),
        reason=reason_of(error),
        conversation_id=plain_text(conversation_id, ID_LENGTH_MAX),
    )


def reason_of(error: Exception) -> str:
    """Returns the words of an error of ours, which hold no text of a user, or only the kind of any other."""
    if isinstance(error, PalyraError):
        return plain_text(f"{error.code}: {error.message}", REASON_LENGTH_MAX)
    return f"it cannot be read: {type(error).__name__}"


def plain_text(text: str, length_max: int | None = None) -> str:
    """Returns text that every database and encoder takes: halves of characters become the mark of a missing one."""
    return text[:length_max].encode("utf-8", "replace").decode("utf-8", "replace")


def require_plain(message: InboundMessage) -> None:
    """Refuses a message whose fields are not what they are declared to be. Adapters convert what a platform sends."""
    fields = asdict(message)
    try:
        fields["attachments"] = [asdict(each) for each in message.attachments]
        msgspec.convert(fields, InboundMessage)
    except (msgspec.ValidationError, TypeError) as error:
        raise Invalid("message_invalid", "a field of the message has another type than it should") from error
    texts = [each for each in fields.values() if isinstance(each, str)]
    texts += [text for each in message.attachments for text in (each.name, each.media_type, each.source or "")]
    if not all(_is_plain(each) for each in (*texts, *message.mentions)):
        raise Invalid("message_invalid", "a text of the message is no Unicode")
    if not 0 <= (message.written_at_ms or 0) <= MILLISECONDS_MAX:
        raise Invalid("message_invalid", "the time of the message is out of range")
    ids = (message.envelope_id, message.conversation_id, message.sender_id)
    optional = [each for each in (message.thread_id, message.message_id) if each is not None]
    if not all(1 <= len(each) <= ID_LENGTH_MAX for each in (*ids, *optional)):
        raise Invalid("message_invalid", f"ids of a message have 1 to {ID_LENGTH_MAX} characters")
    if len(message.text) > TEXT_LENGTH_MAX or len(message.sender_display) > DISPLAY_LENGTH_MAX:
        raise Invalid("message_invalid", f"a message has at most {TEXT_LENGTH_MAX} characters")
    if len(message.attachments) > ATTACHMENTS_MAX:
        raise Invalid("message_invalid", f"a message has at most {ATTACHMENTS_MAX} attachments")


def _is_plain(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
