"""Telegram by its Bot API: long polling, or a webhook with a secret header; answers as HTML with inline buttons.

Owns: reading updates, and the calls getMe, getUpdates, sendMessage, sendDocument and answerCallbackQuery.
Does not own: what becomes of a message (core.channels), markup (core.channels.markup).
An update is confirmed to Telegram only after it was taken, so that one in flight during a crash comes again. Telegram
cannot be asked whether it has a message, so a send that was cut off is uncertain.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import msgspec
import structlog
from aiohttp import FormData

from palyra.adapters.channels.telegram_shapes import (
    TelegramAnswer,
    TelegramCallback,
    TelegramFile,
    TelegramMessage,
    TelegramMessageId,
    TelegramUpdate,
    TelegramUpdateId,
    TelegramUser,
    answered_words,
    forwarded_from,
)
from palyra.adapters.net.client import HttpClient, Outgoing, Reply, Timeouts
from palyra.core.channels.file_names import file_name
from palyra.core.channels.markup import telegram_html
from palyra.core.channels.model import (
    DISPLAY_LENGTH_MAX,
    SELF,
    TEXT_LENGTH_MAX,
    ChannelKind,
    InboundAttachment,
    InboundMessage,
    foreign_words,
    with_attachments,
)
from palyra.core.channels.signatures import check_telegram, refusal
from palyra.core.channels.unread import UnreadMessage, plain_text, read_or_mark, unread
from palyra.core.errors import Invalid, PalyraError, Unavailable
from palyra.core.taint import label
from palyra.core.trust import Trust
from palyra.ports.channels import (
    Arrival,
    ChannelCheck,
    ChannelTraits,
    Complete,
    ConnectionReport,
    Deliver,
    HttpReply,
    HttpRequestPart,
    OutgoingFile,
    OutgoingPart,
    Redelivery,
    SendFailed,
    SentMessage,
)

API_URL = "https://api.telegram.org"
POLL_S = 25
BATCH_MAX = 100  # The most updates that Telegram gives at once.
CAPTION_LENGTH_MAX = 1_000
LENGTH_MAX = 3_500  # Telegram allows 4,096 after its marks are read; escaping makes a text longer.
BYTES_MAX = 8 * 1024 * 1024
FILE_BYTES_MAX = 50_000_000  # What Telegram takes from a bot.
EDIT_EVERY_S = 3.0  # Telegram allows about 20 messages a minute in a group, edits included.
SENDING = Timeouts(connect_s=10.0, first_byte_s=20.0, idle_s=10.0)
UPLOADING = Timeouts(connect_s=10.0, first_byte_s=110.0, idle_s=10.0)
POLLING = Timeouts(connect_s=10.0, first_byte_s=POLL_S + 15.0, idle_s=10.0)
_NOT_SENT = frozenset({"connect_failed", "connect_timed_out", "address_invalid"})
_WANTED = ("message", "callback_query")
_UPDATE_ID = re.compile(rb'(?<!\\)"update_id"\s*:\s*(\d{1,18})')
_UNPARSED = "can't parse entities"
_UNCHANGED = "message is not modified"

log = structlog.get_logger()
Shape = TypeVar("Shape")


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """With `has_webhook` Telegram calls us, and nothing is polled."""

    name: str
    token: Callable[[], str | None]
    secret: Callable[[], str | None] = lambda: None
    has_webhook: bool = False
    api_url: str | None = None


class UnreadableAnswer(Unavailable):
    """An answer of Telegram that is none of its own form. `body` is what came."""

    def __init__(self, message: str, body: bytes) -> None:
        super().__init__("platform_unreadable", message)
        self.body = body


class TelegramChannel:
    def __init__(self, settings: TelegramSettings, client: HttpClient) -> None:
        self._settings = settings
        self._client = client
        self._self: TelegramUser | None = None
        self._offset = 0
        self.traits = ChannelTraits(
            kind=ChannelKind.TELEGRAM,
            length_max=LENGTH_MAX,
            redelivery=Redelivery.UNKNOWN,
            edit_every_s=EDIT_EVERY_S,
            file_bytes_max=FILE_BYTES_MAX,
        )

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        self._self = await self._me()
        report.up()
        if self._settings.has_webhook:
            await asyncio.Event().wait()
        while True:
            updates, before = await self._updates(deliver), self._offset
            for raw in updates:
                await self._take(raw, deliver)
            if updates and self._offset == before:
                raise Unavailable("platform_unreadable", "Telegram's updates have no numbers")
            report.up()

    async def send(self, part: OutgoingPart) -> SentMessage:
        if part.files:
            return await self._send_file(part, part.files[0])
        try:
            return await self._send(part, telegram_html(part.text), "HTML")
        except SendFailed as failure:
            if _UNPARSED not in failure.message:
                raise
        return await self._send(part, part.text, None)

    async def edit(self, part: OutgoingPart, message_id: str) -> SentMessage:
        body: dict[str, object] = {"chat_id": part.conversation_id, "message_id": int(message_id)}
        try:
            await self._put("editMessageText", {**body, "text": telegram_html(part.text), "parse_mode": "HTML"})
        except SendFailed as failure:
            if _UNCHANGED in failure.message:
                return SentMessage(message_id)
            if _UNPARSED not in failure.message:
                raise
            await self._put("editMessageText", {**body, "text": part.text})
        return SentMessage(message_id)

    async def show_typing(self, conversation_id: str, thread_id: str | None) -> None:
        body: dict[str, object] = {"chat_id": conversation_id, "action": "typing"}
        if thread_id is not None:
            body["message_thread_id"] = int(thread_id)
        try:
            await self._exchange("sendChatAction", body, SENDING)
        except Unavailable as error:
            log.info("channel_typing_unshown", channel=self._settings.name, code=error.code)

    async def find(self, part: OutgoingPart) -> SentMessage | None:
        """Is not asked: bots cannot read what was sent."""
        return None

    async def read_request(self, request: HttpRequestPart) -> tuple[Arrival, ...] | HttpReply:
        secret = self._settings.secret()
        if not secret:
            raise refusal()
        check_telegram(request.headers, secret)
        try:
            update_id = msgspec.json.decode(request.body, type=TelegramUpdateId).update_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
            raise Invalid("body_invalid", "the body is no update of Telegram") from cause
        arrival = self._arrival(request.body, str(update_id))
        return (arrival,) if arrival is not None else ()

    async def check(self) -> ChannelCheck:
        return ChannelCheck(known_as=f"@{(await self._me()).username}")

    async def _me(self) -> TelegramUser:
        return _decode(await self._ask("getMe", {}, SENDING), TelegramUser)

    async def _updates(self, deliver: Deliver) -> list[msgspec.Raw]:
        """Asks for updates. Of an answer that cannot be read each is asked for by itself, and the bad one is marked."""
        limit = BATCH_MAX
        while True:
            wanted = {"offset": self._offset, "timeout": POLL_S, "limit": limit, "allowed_updates": _WANTED}
            try:
                return _decode(await self._ask("getUpdates", wanted, POLLING), list[msgspec.Raw])
            except UnreadableAnswer as error:
                found = _UPDATE_ID.search(error.body)
                if found is None or int(found[1]) < self._offset:
                    raise
                if limit == 1:
                    await deliver(unread(self._settings.name, (found[1].decode(),), error))
                    self._offset = int(found[1]) + 1
                limit = 1

    async def _take(self, raw: msgspec.Raw, deliver: Deliver) -> None:
        """Delivers an update, then counts it as confirmed. One that cannot be taken now ends the polling."""
        named = read_or_mark(self._settings.name, (), lambda: msgspec.json.decode(raw, type=TelegramUpdateId))
        if isinstance(named, UnreadMessage):
            log.warning("channel_update_unnamed", channel=self._settings.name)
            return
        update_id = named.update_id
        arrival = self._arrival(raw, str(update_id))
        if arrival is not None:
            await deliver(arrival.message, arrival.complete)
        self._offset = update_id + 1
        pressed = read_or_mark("", (), lambda: msgspec.json.decode(raw, type=TelegramUpdate).callback_query)
        if isinstance(pressed, TelegramCallback):
            await self._confirm(pressed)

    def _arrival(self, body: bytes | msgspec.Raw, name: str) -> Arrival | None:
        """Reads an update, or marks it. None if it says nothing to us."""

        def read() -> Arrival | None:
            update = msgspec.json.decode(body, type=TelegramUpdate)
            message = self._message(update)
            if message is None:
                return None
            return Arrival(message=message, complete=self._completing(message, update))

        found = read_or_mark(self._settings.name, (name,), read)
        return Arrival(message=found) if isinstance(found, UnreadMessage) else found

    async def _confirm(self, pressed: TelegramCallback) -> None:
        """Ends the waiting sign on a button. Nothing depends on it."""
        try:
            await self._ask("answerCallbackQuery", {"callback_query_id": pressed.id}, SENDING)
        except PalyraError as error:
            log.info("channel_button_unconfirmed", channel=self._settings.name, code=error.code)

    def _message(self, update: TelegramUpdate) -> InboundMessage | None:
        if update.callback_query is not None:
            return self._pressed(update)
        said = update.message
        if said is None or said.from_ is None or said.from_.is_bot:
            return None
        text, origin = said.text or said.caption, forwarded_from(said)
        # What was passed on calls nobody, and is no command: its sender did not write it.
        own, rest = self._mentions(said, text) if origin is None else (False, "")
        answered = None if origin is not None else answered_words(said, self._self)
        foreign = (text, origin) if origin is not None else answered
        attached = foreign_words(*foreign) if foreign is not None else None
        return InboundMessage(
            envelope_id=f"u{update.update_id}",
            channel=self._settings.name,
            conversation_id=str(said.chat.id),
            thread_id=str(said.message_thread_id) if said.is_topic_message and said.message_thread_id else None,
            sender_id=str(said.from_.id),
            sender_display=plain_text(said.from_.username or said.from_.first_name, DISPLAY_LENGTH_MAX),
            text=plain_text(rest, TEXT_LENGTH_MAX),
            is_direct=said.chat.type == "private",
            mentions=(SELF,) if own else (),
            message_id=str(said.message_id),
            has_files=_file_of(said) is not None,
            attachments=(attached,) if attached is not None else (),
            written_at_ms=None if said.date is None else said.date * 1000 + 999,  # Somewhere within that second.
        )

    def _completing(self, message: InboundMessage, update: TelegramUpdate) -> Complete | None:
        return partial(self._with_file, message, update.message) if message.has_files and update.message else None

    async def _with_file(self, message: InboundMessage, said: TelegramMessage) -> InboundMessage:
        """Returns the message with its file. One that cannot be read is named in the text instead."""
        file = _file_of(said)
        if file is None:
            return message
        name = file.file_name[:200] or ("photo.jpg" if said.photo else "file")
        media_type = file.mime_type or ("image/jpeg" if said.photo else "application/octet-stream")
        origin = forwarded_from(said)
        trust, source = (None, None) if origin is None else (Trust.EXTERNAL, label("forwarded", origin))
        try:
            body = await self._file(file)
            attachment = InboundAttachment(name=name, media_type=media_type, body=body, trust=trust, source=source)
        except Unavailable as error:
            log.warning("channel_attachment_skipped", channel=self._settings.name, code=error.code)
            return with_attachments(message, (), (name if origin is None else "that was forwarded",))
        return with_attachments(message, (attachment,), ())

    async def _file(self, file: TelegramFile) -> bytes:
        if file.file_size > BYTES_MAX:
            raise Unavailable("file_too_large", "the file is too large")
        found = _decode(await self._ask("getFile", {"file_id": file.file_id}, SENDING), TelegramFile)
        url = f"{self._settings.api_url or API_URL}/file/bot{self._settings.token()}/{quote(found.file_path)}"
        async with self._client.get(Outgoing(url=url, headers={}, timeouts=SENDING)) as reply:
            if reply.status != 200:
                raise Unavailable("file_unreadable", f"Telegram answered {reply.status}")
            return await _read_all(reply)

    def _pressed(self, update: TelegramUpdate) -> InboundMessage | None:
        pressed = update.callback_query
        if pressed is None or pressed.message is None:
            return None
        return InboundMessage(
            envelope_id=f"u{update.update_id}",
            channel=self._settings.name,
            conversation_id=str(pressed.message.chat.id),
            sender_id=str(pressed.from_.id),
            sender_display=(pressed.from_.username or pressed.from_.first_name)[:DISPLAY_LENGTH_MAX],
            text="",
            is_direct=pressed.message.chat.type == "private",
            pressed=pressed.data,
        )

    def _mentions(self, said: TelegramMessage, text: str) -> tuple[bool, str]:
        """Tells whether Telegram marked a mention of us, and returns the text without it."""
        me = self._self
        if me is None:
            return False, text
        name = f"@{me.username}".lower()
        wide = text.encode("utf-16-le", "surrogatepass")
        answered = said.reply_to_message.from_ if said.reply_to_message is not None else None
        is_own = answered is not None and answered.id == me.id
        for entity in sorted(said.entities or said.caption_entities, key=lambda each: -each.offset):
            start, end = 2 * max(0, entity.offset), 2 * max(0, entity.offset + entity.length)
            marked = wide[start:end].decode("utf-16-le", "replace")
            if entity.type == "bot_command" and marked.lower().endswith(name):
                is_own = True
            is_name = entity.type == "mention" and marked.lower() == name
            if is_name or (entity.type == "text_mention" and entity.user is not None and entity.user.id == me.id):
                is_own, wide = True, wide[:start] + wide[end:]
        return is_own, wide.decode("utf-16-le", "replace").strip()

    async def _send(self, part: OutgoingPart, text: str, parse_mode: str | None) -> SentMessage:
        body: dict[str, object] = {"chat_id": part.conversation_id, "text": text}
        if parse_mode is not None:
            body["parse_mode"] = parse_mode
        if part.thread_id is not None:
            body["message_thread_id"] = int(part.thread_id)
        if part.reply_to is not None:
            body["reply_parameters"] = {"message_id": int(part.reply_to), "allow_sending_without_reply": True}
        if part.buttons:
            row = [{"text": button.label, "callback_data": button.value} for button in part.buttons]
            body["reply_markup"] = {"inline_keyboard": [row]}
        return SentMessage(str(_decode(await self._put("sendMessage", body), TelegramMessageId).message_id))

    async def _send_file(self, part: OutgoingPart, file: OutgoingFile) -> SentMessage:
        """Sends a file as it is. As a photo, Telegram would make a picture smaller."""
        form = FormData(quote_fields=False)
        form.add_field("chat_id", part.conversation_id)
        if part.thread_id is not None:
            form.add_field("message_thread_id", part.thread_id)
        if part.text:
            form.add_field("caption", part.text[:CAPTION_LENGTH_MAX])
        form.add_field("document", file.body, filename=file_name(file.name), content_type=file.media_type)
        payload = form()
        sent = await self._put("sendDocument", await payload.as_bytes(), payload.headers["content-type"])
        return SentMessage(str(_decode(sent, TelegramMessageId).message_id))

    async def _put(
        self, method: str, body: dict[str, object] | bytes, content_type: str = "application/json"
    ) -> msgspec.Raw:
        try:
            encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
            timeouts = UPLOADING if isinstance(body, bytes) else SENDING
            answer = await self._post(method, encoded, content_type, timeouts)
        except Unavailable as error:
            raise SendFailed(error.message, is_unknown=error.code not in _NOT_SENT) from error
        if answer.ok:
            return answer.result
        is_final = 400 <= answer.error_code < 500 and answer.error_code != 429
        raise SendFailed(
            f"Telegram answered {answer.error_code}: {answer.description}",
            retry_after_s=answer.parameters.retry_after,
            is_final=is_final,
            is_unknown=answer.error_code >= 500,
        )

    async def _ask(self, method: str, body: dict[str, object], timeouts: Timeouts) -> msgspec.Raw:
        answer = await self._exchange(method, body, timeouts)
        if answer.ok:
            return answer.result
        if answer.error_code in (401, 404):
            raise Unavailable("token_refused", "Telegram does not know the bot's token; get one from @BotFather")
        if answer.parameters.retry_after is not None:
            await asyncio.sleep(min(answer.parameters.retry_after, 60.0))
        raise Unavailable("platform_refused", f"Telegram answered {answer.error_code}: {answer.description[:200]}")

    async def _exchange(self, method: str, body: dict[str, object], timeouts: Timeouts) -> TelegramAnswer:
        return await self._post(method, msgspec.json.encode(body), "application/json", timeouts)

    async def _post(self, method: str, body: bytes, content_type: str, timeouts: Timeouts) -> TelegramAnswer:
        token = self._settings.token()
        if not token:
            raise Unavailable("token_missing", "the channel has no token; run palyra secrets set")
        url = f"{self._settings.api_url or API_URL}/bot{token}/{method}"
        outgoing = Outgoing(url=url, headers={"content-type": content_type}, body=body, timeouts=timeouts)
        async with self._client.post(outgoing) as reply:
            told, status = await _read_all(reply), reply.status
        try:
            return msgspec.json.decode(told, type=TelegramAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
            if status >= 500 or status == 429:
                return TelegramAnswer(ok=False, error_code=status, description="no JSON")
            raise UnreadableAnswer(f"Telegram answered {status} without JSON", told) from cause


def _file_of(said: TelegramMessage) -> TelegramFile | None:
    files = [said.document, said.audio, said.voice, said.video, *said.photo[-1:]]
    return next((each for each in files if each is not None), None)


async def _read_all(reply: Reply) -> bytes:
    pieces, size = [], 0
    while chunk := await reply.read_some(SENDING.idle_s):
        pieces.append(chunk)
        size += len(chunk)
        if size > BYTES_MAX:
            raise Unavailable("body_too_large", "Telegram's answer is too large")
    return b"".join(pieces)


def _decode(raw: msgspec.Raw, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        raise UnreadableAnswer("Telegram's answer does not have its usual form", bytes(raw)) from cause
