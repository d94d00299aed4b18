"""A stand-in for Discord on loopback: REST, and a gateway that speaks zlib-stream as the real one does."""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

from aiohttp import WSMsgType, web

from tests.support.web_server import read_form, served

TOKEN = "MTIz.discord.token-for-tests"
GUILD_CHANNEL = "60"
EPOCH_MS = 1_420_070_400_000  # Discord counts time from here.
BOT = {"id": "999", "username": "palyra", "discriminator": "0", "avatar": None, "bot": True, "global_name": None}
GUILD: dict = {
    "id": "50", "name": "Testers", "owner_id": "1", "roles": [], "emojis": [], "features": [], "members": [],
    "channels": [{"id": "60", "type": 0, "name": "general", "position": 0, "permission_overwrites": []}],
    "threads": [], "stage_instances": [], "stickers": [], "voice_states": [], "presences": [],
    "guild_scheduled_events": [], "soundboard_sounds": [], "verification_level": 0, "afk_timeout": 0,
    "default_message_notifications": 0, "explicit_content_filter": 0, "mfa_level": 0, "nsfw_level": 0,
    "premium_tier": 0, "preferred_locale": "en-US", "system_channel_flags": 0, "member_count": 2,
}  # fmt: skip


def _person(user_id: str) -> dict:
    return {"id": user_id, "username": f"user{user_id}", "discriminator": "0", "avatar": None, "global_name": None}


def _message_base(message_id: str, channel_id: str) -> dict:
    return {
        "id": message_id, "channel_id": channel_id, "mentions": [], "mention_roles": [], "mention_everyone": False,
        "attachments": [], "embeds": [], "pinned": False, "type": 0, "tts": False,
        "timestamp": "2026-01-01T00:00:00+00:00", "edited_timestamp": None, "flags": 0, "components": [],
    }  # fmt: skip


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _message(request: web.Request) -> dict:
    """Reads a message, with its files where it has some: name, media type and body."""
    if request.content_type == "application/json":
        return dict(await request.json())
    fields, files = await read_form(request)
    return {**json.loads(fields["payload_json"]), "files": list(files.values())}


@dataclass
class Gateway:
    """One connection of a client. The compression lasts as long as the connection."""

    socket: web.WebSocketResponse
    deflate: "zlib._Compress"

    async def send(self, op: int, data: object, event: str | None = None, seq: int | None = None) -> None:
        frame = json.dumps({"op": op, "d": data, "s": seq, "t": event}).encode()
        await self.socket.send_bytes(self.deflate.compress(frame) + self.deflate.flush(zlib.Z_SYNC_FLUSH))


@dataclass
class DiscordServer:
    url: str = ""
    sent: list[dict] = field(default_factory=list)
    edits: list[tuple[str, dict]] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)
    commands: list[dict] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    failures: list[tuple[int, dict, dict]] = field(default_factory=list)
    gateways: list[Gateway] = field(default_factory=list)
    events: list[tuple[str, object]] = field(default_factory=list)
    identified_count: int = 0
    forgets_sessions: bool = False
    resumed_count: int = 0
    history: dict[str, list[dict]] = field(default_factory=dict)
    history_failures: dict[str, list[tuple[int, dict, dict]]] = field(default_factory=dict)
    history_reads: list[str] = field(default_factory=list)
    numbers: count = field(default_factory=lambda: count(1000))
    file_ready: asyncio.Event = field(default_factory=_set_event)

    def next_id(self, age_ms: int = 0) -> str:
        """Returns an id as Discord's: the time is in it, and later ones are larger."""
        return str((int(time.time() * 1000) - age_ms - EPOCH_MS << 22) + next(self.numbers))

    async def rest(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/api/v10")
        if request.headers.get("authorization") != f"Bot {TOKEN}" and "/interactions/" not in path:
            return _json({"code": 0, "message": "401: Unauthorized"}, status=401)
        if path == "/users/@me":
            return _json(BOT)
        if path == "/oauth2/applications/@me":
            told = {"id": "999", "name": "palyra", "description": "", "bot_public": True, "verify_key": "",
                    "bot_require_code_grant": False, "icon": None, "flags": 0, "owner": BOT}  # fmt: skip
            return _json(told)
        if path == "/applications/999/commands":
            self.commands = await request.json()
            return _json([])
        if path.endswith("/typing"):
            self.typed.append(path.split("/")[2])
            return web.Response(status=204)
        if request.method == "PATCH":
            return self.edit(path.split("/")[4], await request.json())
        if path.endswith("/messages") and request.method == "GET":
            return self.page(path.split("/")[2], int(request.query["limit"]), int(request.query.get("before", 2**63)))
        if path.endswith("/messages"):
            return self.post(path.split("/")[2], await _message(request))
        if path.endswith("/callback"):
            self.deferred.append(path.split("/")[2])
            return _json({"interaction": {"id": path.split("/")[2], "type": 3}, "resource": None})
        if request.method == "GET" and path.startswith("/channels/"):
            return self.conversation(path.split("/")[2])
        return _json({"code": 0, "message": "404: Not Found"}, status=404)

    def conversation(self, channel_id: str) -> web.Response:
        if channel_id == GUILD_CHANNEL:
            return _json({**GUILD["channels"][0], "guild_id": GUILD["id"]})
        return _json({"id": channel_id, "type": 1, "last_message_id": None, "recipients": [_person("7")]})

    def page(self, channel_id: str, limit: int, before: int) -> web.Response:
        """The newest messages first, as Discord lists them."""
        self.history_reads.append(channel_id)
        if self.history_failures.get(channel_id):
            status, told, headers = self.history_failures[channel_id].pop(0)
            return _json(told, status=status, headers=headers)
        found = [each for each in self.history.get(channel_id, []) if int(each["id"]) < before]
        return _json(sorted(found, key=lambda each: int(each["id"]), reverse=True)[:limit])

    def post(self, channel_id: str, body: dict) -> web.Response:
        if self.failures:
            status, told, headers = self.failures.pop(0)
            return _json(told, status=status, headers=headers)
        known = next((each for each in self.sent if each["nonce"] == body["nonce"]), None)
        if known is None:
            known = {**body, "id": self.next_id(), "channel_id": channel_id}
            self.sent.append(known)
            self.record({**_message_base(known["id"], channel_id), "author": BOT, "content": body.get("content", "")})
        return _json({"id": known["id"], "channel_id": channel_id})

    def edit(self, message_id: str, body: dict) -> web.Response:
        if self.failures:
            status, told, headers = self.failures.pop(0)
            return _json(told, status=status, headers=headers)
        self.edits.append((message_id, body))
        next(each for each in self.sent if each["id"] == message_id).update(body)
        return _json({"id": message_id})

    async def file(self, request: web.Request) -> web.Response:
        await self.file_ready.wait()
        return web.Response(body=b"the attached words")

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        gateway = Gateway(socket, zlib.compressobj())
        await gateway.send(10, {"heartbeat_interval": 30_000})
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            frame = json.loads(message.data)
            match frame["op"]:
                case 1:
                    await gateway.send(11, None)
                case 2:
                    await self._ready(gateway)
                case 6 if self.forgets_sessions:
                    self.forgets_sessions = False
                    await gateway.send(9, False)
                case 6:
                    self.resumed_count += 1
                    self.gateways.append(gateway)
                    for seq in range(frame["d"]["seq"], len(self.events)):
                        await gateway.send(0, self.events[seq][1], self.events[seq][0], seq + 1)
                    await self.dispatch({}, "RESUMED")
        if gateway in self.gateways:
            self.gateways.remove(gateway)
        return socket

    async def _ready(self, gateway: Gateway) -> None:
        self.identified_count += 1
        resume = f"{self.url.replace('http', 'ws')}/gateway"
        ready = {
            "v": 10, "user": BOT, "session_id": "s1", "resume_gateway_url": resume, "guilds": [{"id": "50"}],
            "application": {"id": "999", "flags": 0},
        }  # fmt: skip
        # A new session: what was not delivered in the one before is lost, as it is at Discord.
        self.events.clear()
        self.gateways.append(gateway)
        await self.dispatch(ready, "READY")
        await self.dispatch(GUILD, "GUILD_CREATE")

    async def dispatch(self, data: object, event: str) -> None:
        """Sends an event to the newest connection. One that does not arrive comes again when the session is resumed."""
        self.events.append((event, data))
        if self.gateways:
            with suppress(ConnectionError):
                await self.gateways[-1].send(0, data, event, len(self.events))

    def record(self, message: dict) -> None:
        """Keeps a message in the history, which does not say which guild it is of."""
        left_out = ("guild_id", "member")
        kept = {name: value for name, value in message.items() if name not in left_out}
        self.history.setdefault(message["channel_id"], []).append(kept)

    async def say(self, text: str, sender: str = "7", channel: str = "70", age_ms: int = 0, **fields: object) -> str:
        message_id = self.next_id(age_ms)
        message = {**_message_base(message_id, channel), "author": _person(sender), "content": text, **fields}
        self.record(message)
        if "guild_id" in fields:
            message["member"] = {"roles": [], "joined_at": None, "deaf": False, "mute": False, "flags": 0}
        await self.dispatch(message, "MESSAGE_CREATE")
        return message_id

    async def press(self, custom_id: str, sender: str, channel: str) -> None:
        await self.interact(3, {"custom_id": custom_id, "component_type": 2}, sender, channel)

    async def slash(self, name: str, sender: str, channel: str, **options: str) -> None:
        given = [{"type": 3, "name": key, "value": value} for key, value in options.items()]
        await self.interact(2, {"id": "5", "name": name, "type": 1, "options": given}, sender, channel)

    async def interact(self, kind: int, data: dict, sender: str, channel: str) -> None:
        person = {"id": sender, "username": "carol", "discriminator": "0", "avatar": None, "global_name": None}
        told = {
            "id": self.next_id(), "application_id": "999", "type": kind, "token": "t", "version": 1,
            "channel_id": channel, "guild_id": "50", "data": data,
            "member": {"user": person, "roles": [], "joined_at": None, "deaf": False, "mute": False, "flags": 0,
                       "permissions": "0"},
            "channel": {"id": channel, "type": 0, "name": "general", "position": 0, "permission_overwrites": []},
            "entitlements": [], "locale": "en-US", "attachment_size_limit": 1,
            "authorizing_integration_owners": {},
        }  # fmt: skip
        await self.dispatch(told, "INTERACTION_CREATE")

    @property
    def texts(self) -> list[str]:
        return [body["content"] for body in self.sent]


@asynccontextmanager
async def discord_server() -> AsyncIterator[DiscordServer]:
    server, app = DiscordServer(), web.Application()
    app.router.add_get("/gateway", server.gateway)
    app.router.add_get("/gateway/", server.gateway)
    app.router.add_get("/files/note.txt", server.file)
    app.router.add_route("*", "/api/v10/{rest:.*}", server.rest)
    async with served(app) as server.url:
        try:
            yield server
        finally:
            for gateway in list(server.gateways):
                await gateway.socket.close()


def _json(told: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Without a charset: the library compares the whole header."""
    body = json.dumps(told).encode()
    return web.Response(body=body, status=status, headers={**(headers or {}), "content-type": "application/json"})
