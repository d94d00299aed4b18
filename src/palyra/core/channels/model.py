"""The words of channels: messages that come in, and the rules that one channel was given.

Does not own: what follows from them (router), how a platform writes them (adapters.channels).
"""

from collections.abc import Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from palyra.core.taint import label
from palyra.core.trust import Trust

SELF = "self"  # Stands among the mentions of a message for this agent itself.
ANYONE = "*"  # In `allow_from`: every sender.

ID_LENGTH_MAX = 256  # Of envelopes, senders, conversations and threads; every platform's are shorter.
TEXT_LENGTH_MAX = 100_000
DISPLAY_LENGTH_MAX = 100
ATTACHMENTS_MAX = 16
FOREIGN_NAME = "forwarded.txt"
CHAT_COALESCE_MS = 300  # People send a thought in several short messages.


class ChannelKind(Enum):
    DISCORD = "discord"
    SLACK = "slack"
    TELEGRAM = "telegram"
    WEBHOOK = "webhook"
    EMAIL = "email"


class DirectMessages(Enum):
    DENY = "deny"
    PAIRING = "pairing"
    ALLOW = "allow"


class BroadcastStrategy(Enum):
    DENY = "deny"
    MENTION_ONLY = "mention_only"
    ALLOW = "allow"


class ChannelBusy(Enum):
    """What a message does while a run of its session is active."""

    STEER = "steer"
    QUEUE = "queue"


class InboundAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """`trust` and `source` are set where somebody else than the sender wrote it, as in what is forwarded or quoted."""

    name: str
    media_type: str
    body: bytes
    trust: Trust | None = None
    source: str | None = None


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as every platform's adapter hands it over.

    `envelope_id` names the delivery: the same one twice is a duplicate. `sender_verified` is false where the platform
    does not vouch for the sender. `mentions` comes from the platform's own marks, never from the text. `message_id` is
    the platform's id of the message, for answers that refer to it. `pressed` is the value of a button. `has_files` says
    that it has files which are read once it has its place in the conversation. `is_listed` says that the platform lists
    it in the conversation's history under `message_id`, so that it can be read there later. `written_at_ms` is when the
    platform got it, which may be days ago; None if it does not say. `earlier_sender_id` is what earlier releases called
    the sender, if that was another id. `may_command` is false where the sender is known, but not well enough for a
    command: a mail that answers none of ours.
    """

    envelope_id: str
    channel: str
    conversation_id: str
    sender_id: str
    text: str
    is_direct: bool
    thread_id: str | None = None
    sender_display: str = ""
    sender_verified: bool = True
    attachments: tuple[InboundAttachment, ...] = ()
    mentions: tuple[str, ...] = ()
    requested_broadcast: bool = False
    message_id: str | None = None
    pressed: str | None = None
    has_files: bool = False
    is_listed: bool = False
    written_at_ms: int | None = None
    may_command: bool = True
    earlier_sender_id: str | None = None


def foreign_words(text: str, origin: str) -> InboundAttachment | None:
    """Returns words that somebody else than the sender wrote, as an attachment; None if there are none.

    They are never a command, a code, a reference or a mention, because nothing reads attachments for such.
    """
    shown = "".join(letter for letter in text if letter.isprintable() or letter in "\n\t").strip()[:TEXT_LENGTH_MAX]
    if not shown:
        return None
    body = shown.encode("utf-8", "replace")
    source = label("forwarded", origin)
    return InboundAttachment(name=FOREIGN_NAME, media_type="text/plain", body=body, trust=Trust.EXTERNAL, source=source)


def with_attachments(
    message: InboundMessage, files: Sequence[InboundAttachment], missed: Sequence[str]
) -> InboundMessage:
    """Returns a message with its files added. Those that could not be read are named in the text."""
    # A name is somebody's text: with another letter for its `@` it refers to nothing.
    notes = [f"(the file {name.replace('@', '_')} could not be read)" for name in missed]
    text = "\n".join([each for each in (message.text, *notes) if each])
    attachments = (*message.attachments, *files)[:ATTACHMENTS_MAX]
    return replace(message, attachments=attachments, text=text[:TEXT_LENGTH_MAX])


class TakenEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that was taken: the same one again is a duplicate."""

    channel: str
    envelope_id: str
    at_ms: int


class ChannelRules(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[channel]]` of palyra.toml, as the rules see it. `coalesce_ms` is how long further words are waited for.

    `conversation` hears the answers of routines.
    """

    name: str
    kind: ChannelKind
    dm_policy: DirectMessages = DirectMessages.DENY
    allow_from: tuple[str, ...] = ()
    deny_from: tuple[str, ...] = ()
    mention_patterns: tuple[str, ...] = ()
    broadcast: BroadcastStrategy = BroadcastStrategy.DENY
    isolate_session_by_sender: bool = False
    concurrency: int = 4
    response_prefix: str = ""
    agent: str | None = None
    when_busy: ChannelBusy = ChannelBusy.STEER
    coalesce_ms: int = CHAT_COALESCE_MS
    conversation: str | None = None

    @property
    def origin(self) -> str:
        """Where runs of this channel come from, for policies and budgets."""
        return f"{self.kind.value}:{self.name}"
