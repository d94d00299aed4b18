"""Slack: Socket Mode or the Events API in, chat.postMessage out, with blocks for buttons.

Owns: reading Slack's payloads, and finding a message again by the key in its metadata.
Does not own: what becomes of a message (core.channels), markup (core.channels.markup).
The library is slack-sdk, an extra that is imported at the first use. Its own retries are off: it would send again what
may have arrived. A payload is acknowledged to Slack only after it was taken.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import structlog

from palyra.adapters.channels.slack_answers import refused, tried
from palyra.adapters.channels.slack_payloads import (
    Json,
    SlackFile,
    SlackReader,
    SlackSaid,
    SlackSelf,
    blocks_of,
    read_body,
)
from palyra.adapters.extras import install_command
from palyra.core.channels.file_names import file_name
from palyra.core.channels.markup import slack_mrkdwn
from palyra.core.channels.model import (
    ATTACHMENTS_MAX,
    ChannelKind,
    InboundAttachment,
    InboundMessage,
    with_attachments,
)
from palyra.core.channels.signatures import check_slack, refusal
from palyra.core.channels.unread import UnreadMessage, read_or_mark
from palyra.core.errors import Unauthorized, Unavailable
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

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest
    from slack_sdk.web.async_client import AsyncWebClient

API_URL = "https://slack.com"
LENGTH_MAX = 2_900  # A section of blocks has at most 3,000.
EDIT_EVERY_S = 1.5  # Slack allows about 50 updates a minute.
LOOK_EVERY_S = 1.0
LOST_S = 30.0  # The library connects again by itself; after this long it is started anew.
FOUND_WITHIN = 200
REQUEST_S = 20
LOST = "the connection to Slack is lost"
METADATA = "palyra_part"
FILE_BYTES_MAX = 8 * 1024 * 1024
UPLOAD_BYTES_MAX = 50_000_000  # Slack takes more; an upload must end within its time.
UPLOAD_S = 100
UNKNOWN_TYPE = "application/octet-stream"

_LABEL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "_"})

log = structlog.get_logger()


class SlackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """With `has_socket` Socket Mode is used; otherwise Slack calls us, and proves itself by the signing secret."""

    name: str
    token: Callable[[], str | None]
    app_token: Callable[[], str | None] = lambda: None
    signing_secret: Callable[[], str | None] = lambda: None
    has_socket: bool = False
    api_url: str | None = None


class SlackChannel:
    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self.reader = SlackReader(settings.name)
        self.traits = ChannelTraits(
            kind=ChannelKind.SLACK,
            length_max=LENGTH_MAX,
            redelivery=Redelivery.FINDABLE,
            edit_every_s=EDIT_EVERY_S,
            file_bytes_max=UPLOAD_BYTES_MAX,
        )

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        own = await self._identify()
        await report.identified(own.team_id)
        if not self._settings.has_socket:
            report.up()
            await asyncio.Event().wait()
        client = await self._socket(deliver)
        try:
            # The library would ask again for ever, and tell nobody that Slack refuses it.
            client.wss_uri = await self._socket_url()
            async with asyncio.timeout(REQUEST_S):
                await client.connect()  # type: ignore[no-untyped-call]
            report.up()
            await self._watch(client, report)
        except OSError as cause:  # Too slow is one, too.
            raise Unavailable(
                "connect_failed", f"Slack cannot be reached: {cause.strerror or 'no connection'}"
            ) from cause
        finally:
            await client.close()  # type: ignore[no-untyped-call]

    async def send(self, part: OutgoingPart) -> SentMessage:
        """Posts a message. A file is uploaded first, for nobody, and shared by the link in the message.

        So the message has the key in its metadata like any other, and a file that was uploaded twice is shown once.
        """
        text = slack_mrkdwn(part.text)
        links = [await self._upload(file) for file in part.files]
        text = "\n".join(each for each in (text, *links) if each)
        told = {
            "channel": part.conversation_id,
            "text": text,
            "thread_ts": part.thread_id,
            "blocks": blocks_of(text, part) if part.buttons else None,
            "metadata": {"event_type": METADATA, "event_payload": {"key": part.key}},
            "unfurl_links": bool(links),
        }
        return await self._told("chat.postMessage", told)

    async def _upload(self, file: OutgoingFile) -> str:
        """Returns the link that shares the file. Nothing is visible yet, so whatever fails may be done again."""
        from aiohttp import ClientError
        from slack_sdk.errors import SlackApiError, SlackRequestError

        web, name = await self._web(UPLOAD_S), file_name(file.name)
        try:
            uploaded = await web.files_upload_v2(filename=name, content=file.body, title=name)
            found = await web.files_info(file=uploaded["files"][0]["id"])
            return f"<{found['file']['permalink']}|{name.translate(_LABEL)}>"
        except SlackApiError as error:
            failure = refused(error)
            raise SendFailed(failure.message, retry_after_s=failure.retry_after_s, is_final=failure.is_final) from error
        except (ClientError, TimeoutError, SlackRequestError) as cause:
            raise SendFailed("the file could not be uploaded to Slack") from cause

    async def edit(self, part: OutgoingPart, message_id: str) -> SentMessage:
        told = {
            "channel": part.conversation_id,
            "ts": message_id,
            "text": slack_mrkdwn(part.text),
            "metadata": {"event_type": METADATA, "event_payload": {"key": part.key}},
        }
        return await self._told("chat.update", told)

    async def show_typing(self, conversation_id: str, thread_id: str | None) -> None:
        """Does nothing: Slack has no such sign for bots."""

    async def _told(self, method: str, told: Json) -> SentMessage:
        from aiohttp import ClientConnectorError, ClientError
        from slack_sdk.errors import SlackApiError

        given = {name: value for name, value in told.items() if value is not None}
        try:
            answer = await (await self._web()).api_call(method, json=given)
        except SlackApiError as error:
            raise refused(error) from error
        except ClientConnectorError as cause:
            raise SendFailed("Slack cannot be reached") from cause
        except (ClientError, TimeoutError) as cause:
            raise SendFailed("the connection to Slack broke off", is_unknown=True) from cause
        return SentMessage(str(answer["ts"]))

    async def find(self, part: OutgoingPart) -> SentMessage | None:
        """Looks for the key in the metadata of the conversation's newest messages."""
        web, oldest = await self._web(), str(part.began_at_ms / 1000 - 60)
        if part.thread_id is not None:
            found = await web.conversations_replies(
                channel=part.conversation_id,
                ts=part.thread_id,
                oldest=oldest,
                limit=FOUND_WITHIN,
                include_all_metadata=True,
            )
        else:
            found = await web.conversations_history(
                channel=part.conversation_id, oldest=oldest, limit=FOUND_WITHIN, include_all_metadata=True
            )
        for message in found["messages"]:
            if message.get("metadata", {}).get("event_payload", {}).get("key") == part.key:
                return SentMessage(str(message["ts"]))
        return None

    async def read_request(self, request: HttpRequestPart) -> tuple[Arrival, ...] | HttpReply:
        secret = self._settings.signing_secret()
        if not secret:
            raise refusal()
        check_slack(request.headers, request.body, secret, request.now_s)
        payload = read_body(request.headers, request.body)
        if payload.get("type") == "url_verification":
            return HttpReply(body=str(payload.get("challenge", ""))[:500].encode("utf-8", "replace"))
        said = self.reader.read(payload)
        # An interaction is answered with an empty 200; Slack would show anything else to the person.
        if said is None:
            return HttpReply()
        return (Arrival(message=said.message, complete=self._completing(said)),)

    async def check(self) -> ChannelCheck:
        own = await self._identify()
        if self._settings.has_socket:
            await self._socket_url()
        return ChannelCheck(known_as=f"{own.user} in {own.team}")

    async def _socket_url(self) -> str:
        opening = (await self._web()).apps_connections_open(app_token=self._settings.app_token() or "")
        return str((await tried(opening, "app token"))["url"])

    async def _identify(self) -> SlackSelf:
        told = await tried((await self._web()).auth_test(), "bot token")
        try:
            self.reader.own = own = msgspec.convert(told.data, SlackSelf)
        except msgspec.ValidationError as cause:
            raise Unavailable("connect_failed", "Slack does not say which workspace the bot token is of") from cause
        return own

    def _completing(self, said: SlackSaid) -> Complete | None:
        return partial(self._with_files, said.message, said.files) if said.files else None

    async def _with_files(self, message: InboundMessage, files: list[SlackFile]) -> InboundMessage:
        """Returns the message with its files. One that cannot be read is named in the text instead."""
        from aiohttp import ClientError, ClientSession, ClientTimeout

        read, missed = [], []
        headers = {"authorization": f"Bearer {self._settings.token() or ''}"}
        async with ClientSession(headers=headers, timeout=ClientTimeout(total=REQUEST_S)) as session:
            for each in files[:ATTACHMENTS_MAX]:
                name, media_type = (each.name or "file")[:200], each.mimetype or UNKNOWN_TYPE
                try:
                    body = await self._file(session, each.url_private_download or each.url_private or "")
                    read.append(InboundAttachment(name=name, media_type=media_type, body=body))
                except (ClientError, TimeoutError, ValueError, Unavailable) as error:  # aiohttp's for an odd address.
                    log.warning("channel_attachment_skipped", channel=self._settings.name, why=type(error).__name__)
                    missed.append(name)
        return with_attachments(message, read, missed)

    async def _file(self, session: "ClientSession", url: str) -> bytes:
        """Reads a file of Slack's. Any other address would be given the bot's token."""
        host = urlsplit(url).hostname or ""
        is_own = url.startswith("https://") and (host == "slack.com" or host.endswith(".slack.com"))
        if not is_own and not (self._settings.api_url and url.startswith(f"{self._settings.api_url}/")):
            raise Unavailable("address_refused", "the file is not at Slack")
        async with session.get(url, allow_redirects=False) as answer:
            body = await answer.content.read(FILE_BYTES_MAX + 1) if answer.status == 200 else b""
            while len(body) <= FILE_BYTES_MAX and (more := await answer.content.read(FILE_BYTES_MAX)):
                body += more
        if answer.status != 200 or len(body) > FILE_BYTES_MAX:
            raise Unavailable("file_unreadable", "Slack does not give the file, or it is too large")
        return body

    async def _web(self, timeout_s: int = REQUEST_S) -> "AsyncWebClient":
        module = await _library("slack_sdk.web.async_client")
        token = self._settings.token()
        if not token:
            raise Unavailable("token_missing", "the channel has no token; run palyra secrets set")
        base = f"{self._settings.api_url or API_URL}/api/"
        client: AsyncWebClient = module.AsyncWebClient(token=token, base_url=base, timeout=timeout_s, retry_handlers=[])
        return client

    async def _socket(self, deliver: Deliver) -> "SocketModeClient":
        module = await _library("slack_sdk.socket_mode.aiohttp")
        response = await _library("slack_sdk.socket_mode.response")
        client: SocketModeClient = module.SocketModeClient(
            app_token=self._settings.app_token() or "", web_client=await self._web()
        )

        async def greet(_: object, message: Json, raw: str | None) -> None:
            if message.get("type") == "hello":
                self.reader.greet(message)

        async def listen(socket: "AsyncBaseSocketModeClient", request: "SocketModeRequest") -> None:
            try:
                read = partial(self.reader.read, request.payload)
                said = read_or_mark(self._settings.name, (request.envelope_id,), read)
                if isinstance(said, UnreadMessage):
                    await deliver(said)
                elif said is not None:
                    await deliver(said.message, self._completing(said))
            except (Unauthorized, Unavailable) as error:
                # Without an acknowledgement Slack delivers it again: what is another workspace's, to that one's socket.
                log.warning("channel_message_deferred", channel=self._settings.name, code=error.code)
                return
            await socket.send_socket_mode_response(response.SocketModeResponse(envelope_id=request.envelope_id))

        client.message_listeners.append(greet)
        client.socket_mode_request_listeners.append(listen)
        return client

    async def _watch(self, client: "SocketModeClient", report: ConnectionReport) -> None:
        """Returns never. Raises if the library could not connect again for a while."""
        lost_s = 0.0
        while lost_s < LOST_S:
            await asyncio.sleep(LOOK_EVERY_S)
            is_connected = await client.is_connected()
            lost_s = 0.0 if is_connected else lost_s + LOOK_EVERY_S
            if is_connected:
                report.up()
        raise Unavailable("connection_lost", LOST)


async def _library(name: str) -> Any:
    """Imports a module of slack-sdk in a thread: it takes longer than the event loop may stand still."""
    import importlib

    try:
        return await asyncio.to_thread(importlib.import_module, name)
    except ImportError as cause:
        message = f"Slack needs slack-sdk; run {install_command('palyra[slack]')}"
        raise Unavailable("extra_missing", message) from cause
