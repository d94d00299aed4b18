"""A stand-in for Slack on loopback: the Web API, and Socket Mode over a real WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from aiohttp import WSMsgType, web

from tests.support.web_server import read_form, served

BOT_TOKEN, APP_TOKEN = "xoxb-of-the-stand-in", "xapp-of-the-stand-in"
BOT_USER = "UPALYRA"
TEAM, APP = "T1", "A1"
OURS = {"team_id": TEAM, "api_app_id": APP}


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class SlackServer:
    url: str = ""
    team_id: str = TEAM
    sent: list[dict] = field(default_factory=list)
    edits: list[dict] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    failures: list[tuple[int, dict, dict]] = field(default_factory=list)
    sockets: list[web.WebSocketResponse] = field(default_factory=list)
    connects_count: int = 0
    numbers: count = field(default_factory=lambda: count(1))
    uploads: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    completed: list[dict] = field(default_factory=list)
    file_ready: asyncio.Event = field(default_factory=_set_event)

    async def call(self, request: web.Request) -> web.Response:
        body = dict(request.query)
        if request.content_type == "application/json":
            body |= await request.json()
        else:
            body |= (await read_form(request))[0]
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        match request.match_info["method"]:
            case "auth.test":
                known = token == BOT_TOKEN
                told = {"ok": True, "user": "palyra", "team": "Testers", "user_id": BOT_USER, "team_id": self.team_id}
                return web.json_response(told if known else {"ok": False, "error": "invalid_auth"})
            case "apps.connections.open":
                if token != APP_TOKEN:
                    return web.json_response({"ok": False, "error": "invalid_auth"})
                self.connects_count += 1
                return web.json_response({"ok": True, "url": f"{self.url.replace('http', 'ws')}/socket"})
            case "chat.postMessage":
                return self.post(body)
            case "files.getUploadURLExternal":
                file_id = f"F{len(self.uploads) + 1}"
                self.uploads[file_id] = (str(body["filename"]), b"")
                return web.json_response({"ok": True, "file_id": file_id, "upload_url": f"{self.url}/upload/{file_id}"})
            case "files.completeUploadExternal":
                files = json.loads(body["files"]) if isinstance(body["files"], str) else body["files"]
                self.completed.append({**body, "files": files})
                return web.json_response({"ok": True, "files": [{"id": each["id"]} for each in files]})
            case "files.info":
                file_id = str(body["file"])
                return web.json_response(
                    {"ok": True, "file": {"id": file_id, "permalink": f"{self.url}/archive/{file_id}"}}
                )
            case "chat.update":
                self.edits.append(body)
                next(each for each in self.sent if each["ts"] == body["ts"]).update(body)
                return web.json_response({"ok": True, "ts": body["ts"], "channel": body["channel"]})
            case "conversations.history" | "conversations.replies":
                return web.json_response({"ok": True, "messages": self.sent[::-1]})
            case _:
                return web.json_response({"ok": False, "error": "unknown_method"})

    def post(self, body: dict) -> web.Response:
        if self.failures:
            status, told, headers = self.failures.pop(0)
            return web.json_response(told, status=status, headers=headers)
        ts = f"1700000000.{len(self.sent) + 1:06d}"
        self.sent.append({**body, "ts": ts})
        return web.json_response({"ok": True, "ts": ts, "channel": body["channel"]})

    async def upload(self, request: web.Request) -> web.Response:
        file_id = request.match_info["file"]
        self.uploads[file_id] = (self.uploads[file_id][0], await request.read())
        return web.Response(text="OK")

    async def file(self, request: web.Request) -> web.Response:
        await self.file_ready.wait()
        is_ours = request.headers.get("authorization") == f"Bearer {BOT_TOKEN}"
        return web.Response(body=b"the attached words") if is_ours else web.Response(status=403)

    async def socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1, "connection_info": {"app_id": APP}})
        self.sockets.append(socket)
        async for message in socket:
            if message.type is WSMsgType.TEXT and message.data.startswith("{"):
                self.acknowledged.append(json.loads(message.data)["envelope_id"])
        self.sockets.remove(socket)
        return socket

    async def push(self, kind: str, payload: dict, envelope_id: str | None = None) -> str:
        envelope = envelope_id or f"env-{next(self.numbers)}"
        told = {
            "envelope_id": envelope,
            "type": kind,
            "payload": {**OURS, **payload},
            "accepts_response_payload": False,
        }
        await self.sockets[-1].send_json(told)
        return envelope

    async def say(self, text: str, user: str = "U1", **event: object) -> str:
        base = {"type": "message", "user": user, "text": text, "channel": "D1", "channel_type": "im"}
        ts = f"1800000000.{next(self.numbers):06d}"
        return await self.push("events_api", {"type": "event_callback", "event": {**base, "ts": ts, **event}})

    @property
    def texts(self) -> list[str]:
        return [body["text"] for body in self.sent]


@asynccontextmanager
async def slack_server() -> AsyncIterator[SlackServer]:
    server, app = SlackServer(), web.Application()
    app.router.add_route("*", "/api/{method}", server.call)
    app.router.add_get("/socket", server.socket)
    app.router.add_post("/upload/{file}", server.upload)
    app.router.add_get("/files/note.txt", server.file)
    async with served(app) as server.url:
        try:
            yield server
        finally:
            for socket in list(server.sockets):
                await socket.close()
