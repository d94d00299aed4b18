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
