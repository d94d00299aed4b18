"""Payloads of Discord: messages and interactions, as records of plain types.

Owns: reading what the gateway and the history give, and whose words are in it.
Does not own: connections, files and answers (discord), pages of the history (discord_history).
Invariants: nothing is done with a payload before each member that we read has its type. With a list of guilds, what
comes from another guild says nothing to us. What a message forwards is an attachment that somebody else wrote.
"""

import re
from typing import NamedTuple, TypeVar

import msgspec

from palyra.core.channels.model import (
    ATTACHMENTS_MAX,
    DISPLAY_LENGTH_MAX,
    SELF,
    TEXT_LENGTH_MAX,
    InboundAttachment,
    InboundMessage,
    foreign_words,
)
from palyra.core.channels.unread import plain_text
from palyra.core.errors import Invalid

NAME_LENGTH_MAX = 200
ID_DIGITS_MAX = 20
EPOCH_MS = 1_420_070_400_000  # Discord counts time from here.
_SPOKEN = frozenset({0, 19})  # Discord's numbers of a message and of a reply.
_FORWARD = 1  # Discord's number of a reference that forwards.
Shape = TypeVar("Shape")


class DiscordUser(msgspec.Struct, frozen=True):
    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class DiscordMember(msgspec.Struct, frozen=True):
    nick: str | None = None
    user: DiscordUser | None = None


class DiscordFile(msgspec.Struct, frozen=True):
    filename: str
    url: str
    size: int = 0
    content_type: str | None = None


class DiscordShown(msgspec.Struct, frozen=True):
    """What a forwarded message held. Discord does not say who wrote it."""

    content: str = ""
    attachments: list[DiscordFile] = []


class DiscordSnapshot(msgspec.Struct, frozen=True):
    message: DiscordShown


class DiscordReference(msgspec.Struct, frozen=True):
    type: int = 0
    channel_id: str | None = None
    message_id: str | None = None


class DiscordKind(msgspec.Struct, frozen=True):
    id: str
    channel_id: str
    author: DiscordUser
    type: int = 0
    webhook_id: str | None = None


class DiscordMessage(msgspec.Struct, frozen=True):
    id: str
    channel_id: str
    author: DiscordUser
    content: str = ""
    guild_id: str | None = None
    member: DiscordMember | None = None
    mentions: list[DiscordUser] = []
    mention_everyone: bool = False
    attachments: list[DiscordFile] = []
    message_reference: DiscordReference | None = None
    message_snapshots: list[DiscordSnapshot] | None = None


class DiscordPlace(msgspec.Struct, frozen=True):
    """A conversation. Only those of a guild name one."""

    guild_id: str | None = None


class DiscordOption(msgspec.Struct, frozen=True):
    value: str | int | float | bool | None = None


class DiscordInteractionData(msgspec.Struct, frozen=True):
    name: str = ""
    custom_id: str = ""
    options: list[DiscordOption] = []


class DiscordInteraction(msgspec.Struct, frozen=True):
    id: str
    token: str
    type: int
    channel_id: str | None = None
    guild_id: str | None = None
    data: DiscordInteractionData | None = None
    member: DiscordMember | None = None
    user: DiscordUser | None = None


class DiscordSaid(NamedTuple):
    """What a payload says to us, the files that came with it, and whether they were forwarded from somewhere."""

    message: InboundMessage
    files: list[DiscordFile]
    origin: str | None = None


class DiscordReader:
    """Reads the payloads of one channel. `guilds` are those it hears, or all if there are none."""

    def __init__(self, channel: str, guilds: tuple[str, ...]) -> None:
        self._channel = channel
        self._guilds = guilds

    def hears(self, guild_id: str | None) -> bool:
        return guild_id is None or not self._guilds or guild_id in self._guilds

    def message(self, payload: object, own_id: str | None, guild_id: str | None = None) -> DiscordSaid | None:
        """Reads a message. None if a bot wrote it, nobody did, or it was said in another guild.

        `guild_id` is that of its conversation: a message of the history does not say it.
        """
        kind = typed(payload, DiscordKind)
        if kind.author.bot or kind.webhook_id is not None or kind.type not in _SPOKEN:
            return None
        told = typed(payload, DiscordMessage)
        guild_id = told.guild_id or guild_id
        if not self.hears(guild_id):
            return None
        snapshots = told.message_snapshots or []
        origin = _origin(told) if snapshots else None
        words = [] if origin is None else [foreign_words(each.message.content, origin) for each in snapshots]
        files = (
            told.attachments if origin is None else [file for each in snapshots for file in each.message.attachments]
        )
        text = told.content if own_id is None else re.sub(rf"<@!?{re.escape(own_id)}>", "", told.content)
        message = InboundMessage(
            envelope_id=told.id,
            channel=self._channel,
            conversation_id=told.channel_id,
            sender_id=told.author.id,
            sender_display=_display(told.author, told.member),
            text=plain_text(text.strip(), TEXT_LENGTH_MAX),
            is_direct=guild_id is None,
            mentions=(SELF,) if any(each.id == own_id for each in told.mentions) else (),
            requested_broadcast=told.mention_everyone,
            message_id=told.id,
            has_files=bool(files),
            is_listed=True,
            written_at_ms=written_at_ms(told.id),
            attachments=_attached(words),
        )
        return DiscordSaid(message, files, origin)

    def interaction(self, told: DiscordInteraction, pressed: str) -> InboundMessage | None:
        """Reads a pressed button or a slash command. None if it is of another guild."""
        user = told.user or (told.member.user if told.member is not None else None)
        if user is None or told.channel_id is None:
            raise Invalid("payload_invalid", "the interaction of Discord names no user or no conversation")
        if not self.hears(told.guild_id):
            return None
        return InboundMessage(
            envelope_id=f"i{told.id}",
            channel=self._channel,
            conversation_id=told.channel_id,
            sender_id=user.id,
            sender_display=_display(user, told.member),
            text="",
            is_direct=told.guild_id is None,
            pressed=plain_text(pressed, NAME_LENGTH_MAX),
        )


def written_at_ms(message_id: str) -> int:
    """Returns the time that is in an id of Discord."""
    if not message_id.isascii() or not message_id.isdecimal() or len(message_id) > ID_DIGITS_MAX:
        raise Invalid("payload_invalid", "an id of Discord is a number")
    return (int(message_id) >> 22) + EPOCH_MS


def slash_text(data: DiscordInteractionData | None) -> str:
    """Returns a slash command as it would be typed."""
    if data is None:
        return ""
    return " ".join([f"/{data.name}", *(str(each.value) for each in data.options if each.value is not None)])


def name_of(payload: object) -> str:
    """Returns the id of a payload that could not be read, if it has one."""
    found = payload.get("id") if isinstance(payload, dict) else None
    return found if isinstance(found, str) and found else "unnamed"


def typed(told: object, shape: type[Shape]) -> Shape:
    """Reads a record strictly: a list is no text, and neither is a number."""
    try:
        return msgspec.convert(told, shape)
    except (msgspec.ValidationError, RecursionError) as cause:
        raise Invalid("payload_invalid", "the payload does not have the form of Discord's") from cause


def _origin(told: DiscordMessage) -> str:
    reference = told.message_reference
    return f"discord {reference.channel_id}" if reference is not None and reference.channel_id else "discord"


def _attached(words: list[InboundAttachment | None]) -> tuple[InboundAttachment, ...]:
    return tuple(each for each in words if each is not None)[:ATTACHMENTS_MAX]


def _display(user: DiscordUser, member: DiscordMember | None) -> str:
    nick = member.nick if member is not None else None
    return plain_text(nick or user.global_name or user.username, DISPLAY_LENGTH_MAX)
