"""Discord: the gateway in, messages with buttons out, edited while they are written, by discord.py.

Owns: reading Discord's messages and pressed buttons, and posting with a nonce that Discord takes once.
Does not own: what becomes of a message (core.channels).
The library is an extra that is imported at the first use. It connects again by itself; if that takes too long, the whole
client is started anew. Discord remembers nonces for a few minutes only, so an older send that was cut off is uncertain.
"""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from palyra.adapters.channels.discord_history import DiscordHistory
from palyra.adapters.channels.discord_payloads import (
    NAME_LENGTH_MAX,
    DiscordInteraction,
    DiscordReader,
    DiscordSaid,
    name_of,
    slash_text,
    typed,
)
from palyra.adapters.extras import install_command
from palyra.core.channels.commands import SUMMARIES, CommandName
from palyra.core.channels.file_names import file_name
from palyra.core.channels.model import (
    ATTACHMENTS_MAX,
    ChannelKind,
    InboundAttachment,
    InboundMessage,
    with_attachments,
)
from palyra.core.channels.signatures import refusal
from palyra.core.channels.unread import UnreadMessage, plain_text, read_or_mark
from palyra.core.errors import PalyraError, Unavailable
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
    OutgoingPart,
    Redelivery,
    SendFailed,
    SentMessage,
)

if TYPE_CHECKING:
    import discord

LENGTH_MAX = 1_990  # Discord allows 2,000.
NONCE_LENGTH_MAX = 25
REPEAT_WITHIN_MS = 120_000
EDIT_EVERY_S = 1.5  # Discord allows 5 edits in 5 seconds for each conversation; two answers may be under way.
FILE_BYTES_MAX = 10_000_000  # What Discord takes from a bot in any guild, with room for the rest of the request.
ATTACHMENT_BYTES_MAX = 8 * 1024 * 1024
LOOK_EVERY_S = 1.0
LOST = "the connection to Discord is lost"
LOST_S = 300.0  # A client that resumes gets what was written meanwhile; one that is started anew reads it.
RATE_LIMIT_S = 30.0  # The library waits no longer than this by itself.
GUILD_READY_S = 0.25  # The library waits this long for further guilds before it counts as ready.
CHECK_S = 15.0

_COMMAND, _COMPONENT = 2, 3  # Discord's numbers of a slash command and of a pressed button.
_SESSION = frozenset({"READY", "RESUMED", "GUILD_CREATE", "GUILD_DELETE"})

log = structlog.get_logger()


class DiscordSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`guilds` are the ids of those that are heard; with none of them, all are."""

    name: str
    token: Callable[[], str | None]
    api_url: str | None = None
    guilds: tuple[str, ...] = ()


class DiscordChannel:
    def __init__(self, settings: DiscordSettings) -> None:
        self._settings = settings
        self._client: discord.Client | None = None
        self.reader = DiscordReader(settings.name, settings.guilds)
        self._lost_s = 0.0
        self._is_up = False
        self.traits = ChannelTraits(
            kind=ChannelKind.DISCORD,
            length_max=LENGTH_MAX,
            redelivery=Redelivery.IDEMPOTENT,
            repeat_within_ms=REPEAT_WITHIN_MS,
            edit_every_s=EDIT_EVERY_S,
            file_bytes_max=FILE_BYTES_MAX,
        )

    async def run(self, deliver: Deliver, report: ConnectionReport) -> None:
        library = await self._library()
        token = self._settings.token()
        if not token:
            raise Unavailable("token_missing", "the channel has no token; run palyra secrets set")
        client = self._make_client(library, deliver, report)
        self._client, self._is_up, self._lost_s = client, False, 0.0
        running = asyncio.ensure_future(client.start(token))
        try:
            await self._watch(running, library)
        finally:
            self._client = None
            running.cancel()
            await client.close()

    async def send(self, part: OutgoingPart) -> SentMessage:
        client = self._client
        if client is None or client.user is None:
            raise SendFailed("there is no connection to Discord")
        if not part.conversation_id.isdecimal():
            raise SendFailed("a conversation of Discord is named by a number", is_final=True)
        library = await self._library()
        route = library.http.Route("POST", "/channels/{channel_id}/messages", channel_id=int(part.conversation_id))
        if part.files:
            return await self._ask(library, client, route, {"form": _form(part)})
        return await self._ask(library, client, route, {"json": _body(part)})

    async def edit(self, part: OutgoingPart, message_id: str) -> SentMessage:
        client = self._client
        if client is None or client.user is None:
            raise SendFailed("there is no connection to Discord")
        library = await self._library()
        route = library.http.Route(
            "PATCH",
            "/channels/{channel_id}/messages/{message_id}",
            channel_id=int(part.conversation_id),
            message_id=int(message_id),
        )
        kept = ("content", "allowed_mentions", "components")
        body = {name: value for name, value in _body(part).items() if name in kept}
        return await self._ask(library, client, route, {"json": body})

    async def show_typing(self, conversation_id: str, thread_id: str | None) -> None:
        client = self._client
        if client is not None and conversation_id.isdecimal():
            library = await self._library()
            with suppress(library.HTTPException, library.RateLimited):  # Nothing depends on the sign.
                await client.http.send_typing(int(conversation_id))

    async def _ask(self, library: Any, client: "discord.Client", route: Any, body: dict[str, Any]) -> SentMessage:
        try:
            answer: dict[str, Any] = await client.http.request(route, **body)
        except library.RateLimited as error:
            raise SendFailed("Discord is busy", retry_after_s=error.retry_after) from error
        except library.DiscordServerError as error:
            raise SendFailed(f"Discord answered {error.status}", is_unknown=True) from error
        except library.HTTPException as error:
            is_final = 400 <= error.status < 500 and error.status != 429
            raise SendFailed(f"Discord answered {error.status}: {error.text[:200]}", is_final=is_final) from error
        except (OSError, TimeoutError) as error:
            raise SendFailed("the connection to Discord broke off", is_unknown=True) from error
        return SentMessage(str(answer["id"]))

    async def find(self, part: OutgoingPart) -> SentMessage | None:
        """Is not asked: Discord takes a nonce once."""
        return None

    async def read_request(self, request: HttpRequestPart) -> tuple[Arrival, ...] | HttpReply:
        """Messages come over the gateway, so no request can prove itself."""
        raise refusal()

    async def check(self) -> ChannelCheck:
        """Logs in without connecting."""
        library = await self._library()
        client = library.Client(intents=library.Intents(guilds=True))
        try:
            async with asyncio.timeout(CHECK_S):
                await client.login(self._settings.token() or "")
                return ChannelCheck(known_as=str(client.user))
        except (library.LoginFailure, library.HTTPException) as cause:
            raise Unavailable("token_refused", "Discord does not accept the bot's token") from cause
        except (OSError, TimeoutError) as cause:
            raise Unavailable("connect_failed", "Discord cannot be reached") from cause
        finally:
            await client.close()

    async def _library(self) -> Any:
        """Imports discord.py in a thread: that takes longer than the event loop may stand still."""
        import importlib

        try:
            library = await asyncio.to_thread(importlib.import_module, "discord")
        except ImportError as cause:
            message = f"Discord needs discord.py; run {install_command('palyra[discord]')}"
            raise Unavailable("extra_missing", message) from cause
        # It would warn at every start that it cannot speak, which nobody asks of it.
        library.VoiceClient.warn_nacl = library.VoiceClient.warn_dave = False
        if self._settings.api_url is not None:
            from yarl import URL

            library.http.Route.BASE = f"{self._settings.api_url}/api/v10"
            gateway = URL(self._settings.api_url.replace("http", "ws", 1)) / "gateway"
            library.gateway.DiscordWebSocket.DEFAULT_GATEWAY = gateway
        return library

    def _make_client(self, library: Any, deliver: Deliver, report: ConnectionReport) -> "discord.Client":
        intents = library.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)
        client: discord.Client = _client_class(library)(
            intents=intents,
            max_ratelimit_timeout=RATE_LIMIT_S,
            guild_ready_timeout=GUILD_READY_S,
            allowed_mentions=library.AllowedMentions.none(),
        )

        def up() -> None:
            self._is_up, self._lost_s = True, 0.0
            report.up()

        async def on_ready() -> None:
            up()
            await _offer_commands(library, client)

        async def on_resumed() -> None:
            up()

        async def on_disconnect() -> None:
            self._is_up = False
            report.down(LOST)

        async def on_connect() -> None:
            # A session that is resumed does not come here: Discord delivers what it missed.
            report.fresh(DiscordHistory(library, client, self._arrival))

        async def on_palyra_message(payload: object) -> None:
            arrival = self._arrival(payload, None)
            if arrival is not None:
                await self._hand_over(deliver, arrival.message, arrival.complete)

        async def on_palyra_interaction(payload: object) -> None:
            read = partial(typed, payload, DiscordInteraction)
            told = read_or_mark(self._settings.name, (name_of(payload),), read)
            if isinstance(told, UnreadMessage):
                await self._hand_over(deliver, told)
            elif told.type in (_COMMAND, _COMPONENT) and self.reader.hears(told.guild_id):
                said = (
                    told.data.custom_id if told.type == _COMPONENT and told.data is not None else slash_text(told.data)
                )
                await self._confirm(library, client, told, said)
                message = read_or_mark(self._settings.name, (told.id,), lambda: self.reader.interaction(told, said))
                if message is not None:
                    await self._hand_over(deliver, message)

        for listener in (on_connect, on_ready, on_resumed, on_disconnect, on_palyra_message, on_palyra_interaction):
            client.event(listener)
        _read_by_ourselves(client)
        return client

    async def _confirm(self, library: Any, client: "discord.Client", told: DiscordInteraction, said: str) -> None:
        """Ends the waiting sign on a button, or says what was typed. Discord shows an error unless that comes at once."""
        path = "/interactions/{webhook_id}/{webhook_token}/callback"
        route = library.http.Route("POST", path, webhook_id=told.id, webhook_token=told.token)
        shown = {"type": 4, "data": {"content": said, "flags": 64, "allowed_mentions": {"parse": []}}}
        with suppress(library.HTTPException, library.RateLimited, OSError):
            await client.http.request(route, json={"type": 6} if told.type == _COMPONENT else shown)

    async def _hand_over(
        self, deliver: Deliver, message: InboundMessage | UnreadMessage, complete: Complete | None = None
    ) -> None:
        """Delivers a message. Discord does not deliver twice: one that cannot be taken now waits for the next reading.

        If a later one of its conversation is taken before that, it is lost.
        """
        try:
            await deliver(message, complete)
        except PalyraError as error:
            log.error("channel_message_lost", channel=self._settings.name, code=error.code)

    async def _watch(self, running: "asyncio.Future[None]", library: Any) -> None:
        while self._lost_s < LOST_S:
            await asyncio.wait({running}, timeout=LOOK_EVERY_S)
            if running.done():
                error = running.exception()
                if isinstance(error, library.LoginFailure | library.PrivilegedIntentsRequired):
                    raise Unavailable("token_refused", f"Discord refused the bot: {error}") from error
                raise Unavailable("connection_lost", "the connection to Discord ended") from error
            self._lost_s = 0.0 if self._is_up else self._lost_s + LOOK_EVERY_S
        raise Unavailable("connection_lost", LOST)

    def _arrival(self, payload: object, guild_id: str | None) -> Arrival | None:
        """Reads a message, or marks it. None if it says nothing to us."""
        user = self._client.user if self._client is not None else None
        read = partial(self.reader.message, payload, str(user.id) if user is not None else None, guild_id)
        said = read_or_mark(self._settings.name, (name_of(payload),), read)
        if said is None or isinstance(said, UnreadMessage):
            return None if said is None else Arrival(message=said)
        return Arrival(message=said.message, complete=partial(self._with_files, said) if said.files else None)

    async def _with_files(self, said: DiscordSaid) -> InboundMessage:
        """Returns the message with its files. One that cannot be read is named in the text instead."""
        library, client, files, missed = await self._library(), self._client, [], []
        source = label("forwarded", said.origin) if said.origin is not None else None
        for each in said.files[:ATTACHMENTS_MAX]:
            media_type = (each.content_type or "").partition(";")[0] or "application/octet-stream"
            name, body = plain_text(each.filename, NAME_LENGTH_MAX) or "file", None
            try:
                if each.size <= ATTACHMENT_BYTES_MAX and client is not None:
                    body = await client.http.get_from_cdn(each.url)
            except (library.HTTPException, OSError, ValueError) as error:
                log.warning("channel_attachment_unread", channel=self._settings.name, why=type(error).__name__)
            if body is None or len(body) > ATTACHMENT_BYTES_MAX:
                missed.append(name if source is None else "that was forwarded")
            else:
                trust = Trust.EXTERNAL if source is not None else None
                files.append(InboundAttachment(name=name, media_type=media_type, body=body, trust=trust, source=source))
        return with_attachments(said.message, files, missed)


def _read_by_ourselves(client: "discord.Client") -> None:
    """Lets the library read its own session alone. What it cannot read would end the connection.

    Messages and interactions come to our listeners as they arrived; nothing else of a guild is needed.
    """
    parsers = client._connection.parsers
    kept = {name: parse for name, parse in parsers.items() if name in _SESSION}
    parsers.clear()
    parsers |= {name: parse if name == "READY" else partial(_unless_odd, parse) for name, parse in kept.items()}
    parsers["MESSAGE_CREATE"] = partial(client.dispatch, "palyra_message")
    parsers["INTERACTION_CREATE"] = partial(client.dispatch, "palyra_interaction")


def _unless_odd(parse: Callable[[Any], object], payload: Any) -> None:
    found = read_or_mark("", (name_of(payload),), partial(parse, payload))
    if isinstance(found, UnreadMessage):
        log.warning("channel_event_unread", ids=found.message_ids, why=found.reason)


def _client_class(library: Any) -> Any:
    class QuietClient(library.Client):  # type: ignore[misc]
        def dispatch(self, event: str, /, *arguments: Any, **options: Any) -> None:
            """Tells listeners of nothing once it is closed. A task of the library may be late, and would fail there."""
            if not self.is_closed():
                super().dispatch(event, *arguments, **options)

    return QuietClient


async def _offer_commands(library: Any, client: "discord.Client") -> None:
    """Lists our commands as slash commands. Where Discord refuses them, they can still be typed."""
    wanted: list[Any] = [_slash_command(name.value, summary) for name, summary in SUMMARIES.items()]
    try:
        await client.http.bulk_upsert_global_commands(client.application_id or 0, wanted)
    except (library.HTTPException, library.RateLimited) as error:
        log.warning("channel_commands_unlisted", why=type(error).__name__)


def _slash_command(word: str, summary: str) -> dict[str, object]:
    takes_id = word in (CommandName.APPROVE.value, CommandName.DENY.value)
    options = [{"type": 3, "name": "id", "description": "the question's id", "required": False}] if takes_id else []
    return {"type": 1, "name": word.removeprefix("/"), "description": summary[:100], "options": options}


def _form(part: OutgoingPart) -> list[dict[str, object]]:
    """Returns a message with files as Discord takes it: its JSON first. A retry reads the bytes again."""
    fields: list[dict[str, object]] = [{"name": "payload_json", "value": msgspec.json.encode(_body(part)).decode()}]
    for number, file in enumerate(part.files):
        named = {"name": f"files[{number}]", "filename": file_name(file.name), "content_type": file.media_type}
        fields.append({**named, "value": file.body})
    return fields


def _body(part: OutgoingPart) -> dict[str, object]:
    nonce = hashlib.sha256(part.key.encode()).hexdigest()[:NONCE_LENGTH_MAX]
    body: dict[str, object] = {
        "content": part.text,
        "nonce": nonce,
        "enforce_nonce": True,
        "allowed_mentions": {"parse": []},
    }
    if part.reply_to is not None:
        body["message_reference"] = {"message_id": part.reply_to, "fail_if_not_exists": False}
    if part.buttons:
        row = [
            {"type": 2, "style": 3 if number == 0 else 4, "label": button.label, "custom_id": button.value}
            for number, button in enumerate(part.buttons)
        ]
        body["components"] = [{"type": 1, "components": row}]
    return body
