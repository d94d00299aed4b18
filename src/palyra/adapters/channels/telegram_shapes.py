"""Shapes of Telegram's Bot API: the members of its answers that we read. Does not own: what they mean (telegram)."""

import msgspec


class TelegramUser(msgspec.Struct, frozen=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    username: str = ""


class TelegramChat(msgspec.Struct, frozen=True):
    id: int
    type: str = "private"
    title: str = ""
    username: str = ""


class TelegramOrigin(msgspec.Struct, frozen=True):
    """Who wrote first what was forwarded: a user, a user who hides, a chat, or a channel."""

    type: str = ""
    sender_user: TelegramUser | None = None
    sender_user_name: str = ""
    sender_chat: TelegramChat | None = None
    chat: TelegramChat | None = None


class TelegramQuote(msgspec.Struct, frozen=True):
    """The part of another message that a reply quotes."""

    text: str = ""


class TelegramExternalReply(msgspec.Struct, frozen=True):
    """The message of another chat that is replied to. Telegram tells no words of it but the quote."""

    origin: TelegramOrigin | None = None


class TelegramEntity(msgspec.Struct, frozen=True):
    type: str
    offset: int
    length: int
    user: TelegramUser | None = None


class TelegramFile(msgspec.Struct, frozen=True):
    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: int = 0
    file_path: str = ""


class TelegramReply(msgspec.Struct, frozen=True):
    from_: TelegramUser | None = msgspec.field(name="from", default=None)
    sender_chat: TelegramChat | None = None
    text: str = ""
    caption: str = ""


class TelegramMessage(msgspec.Struct, frozen=True):
    message_id: int
    chat: TelegramChat
    from_: TelegramUser | None = msgspec.field(name="from", default=None)
    date: int | None = None
    text: str = ""
    caption: str = ""
    entities: list[TelegramEntity] = []
    caption_entities: list[TelegramEntity] = []
    message_thread_id: int | None = None
    is_topic_message: bool = False
    reply_to_message: TelegramReply | None = None
    external_reply: TelegramExternalReply | None = None
    quote: TelegramQuote | None = None
    via_bot: TelegramUser | None = None
    forward_origin: TelegramOrigin | None = None
    # What servers of the Bot API before version 7 tell of a forwarded message.
    forward_date: int | None = None
    forward_from: TelegramUser | None = None
    forward_from_chat: TelegramChat | None = None
    forward_sender_name: str = ""
    is_automatic_forward: bool = False
    document: TelegramFile | None = None
    photo: list[TelegramFile] = []
    audio: TelegramFile | None = None
    voice: TelegramFile | None = None
    video: TelegramFile | None = None


class TelegramCallback(msgspec.Struct, frozen=True):
    id: str
    from_: TelegramUser = msgspec.field(name="from")
    message: TelegramMessage | None = None
    data: str = ""


class TelegramUpdate(msgspec.Struct, frozen=True):
    update_id: int
    message: TelegramMessage | None = None
    callback_query: TelegramCallback | None = None


class TelegramParameters(msgspec.Struct, frozen=True):
    retry_after: float | None = None


class TelegramAnswer(msgspec.Struct, frozen=True):
    ok: bool
    result: msgspec.Raw = msgspec.Raw(b"null")
    error_code: int = 0
    description: str = ""
    parameters: TelegramParameters = TelegramParameters()


class TelegramUpdateId(msgspec.Struct, frozen=True):
    update_id: int


class TelegramMessageId(msgspec.Struct, frozen=True):
    message_id: int


def forwarded_from(said: TelegramMessage) -> str | None:
    """Returns who wrote a message first that its sender passed on; None if the sender wrote it."""
    origin = said.forward_origin
    if origin is not None:
        chat = origin.chat or origin.sender_chat
        return _named(origin.sender_user, chat, origin.sender_user_name)
    is_forwarded = said.forward_date is not None or said.is_automatic_forward or said.forward_sender_name
    if is_forwarded or said.forward_from is not None or said.forward_from_chat is not None:
        return _named(said.forward_from, said.forward_from_chat, said.forward_sender_name)
    return None if said.via_bot is None else _named(said.via_bot, None, "")


def answered_words(said: TelegramMessage, own: TelegramUser | None) -> tuple[str, str] | None:
    """Returns what a reply refers to, and whose it is: the quote, else the whole message. None if it is of the two.

    What we said stands in the conversation already, and what the sender said was taken as theirs when they said it.
    """
    reply, external = said.reply_to_message, said.external_reply
    quote = said.quote.text if said.quote is not None else ""
    if external is not None:
        origin = external.origin or TelegramOrigin()
        return quote, _named(origin.sender_user, origin.chat or origin.sender_chat, origin.sender_user_name)
    if reply is None:
        return (quote, _named(None, None, "")) if quote else None
    known = {each.id for each in (own, said.from_) if each is not None}
    if reply.from_ is not None and reply.from_.id in known and reply.sender_chat is None:
        return None
    return quote or reply.text or reply.caption, _named(reply.from_, reply.sender_chat, "")


def _named(user: TelegramUser | None, chat: TelegramChat | None, name: str) -> str:
    """Returns an origin by what Telegram vouches for: an id, or else a name that anybody may have."""
    number = user.id if user is not None else chat.id if chat is not None else None
    return f"telegram {number if number is not None else name}".strip()
