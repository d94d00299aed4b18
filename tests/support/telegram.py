"""A stand-in for Telegram's Bot API on loopback: updates that wait, what was sent, and failures on demand."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.images import jpeg
from tests.support.web_server import read_form, served

TOKEN = "123456:telegram-token-for-tests"
FILE_BYTES_MAX = 50_000_000
BOT = {"id": 999, "is_bot": True, "first_name": "Palyra", "username": "palyra_bot"}


@dataclass
class TelegramServer:
    url: str = ""
    updates: list[dict] = field(default_factory=list)
    sent: list[dict] = field(default_factory=list)
    edits: list[dict] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)
    failures: list[tuple[int, dict]] = field(default_factory=list)
    is_down: bool = False
    refuses_files: bool = False
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    polls_count: int = 0
    pause_s: float = 0.0
    files_begun_count: int = 0
    raw: dict[int, bytes] = field(default_factory=dict)  # What is sent instead of an update.

    def add(self, **update: object) -> int:
        number = len(self.updates) + 1
        self.updates.append({"update_id": number, **update})
        self.arrived.set()
        return number

    def say(self, text: str, sender: int = 7, chat: int | None = None, **fields: object) -> int:
        where = {"id": chat or sender, "type": "private" if chat is None else "supergroup"}
        person = {"id": sender, "is_bot": False, "first_name": "Alice"}
        message = {"message_id": 100 + len(self.updates), "chat": where, "from": person, "text": text, **fields}
        return self.add(message=message)

    def press(self, data: str, sender: int, chat: int) -> int:
        message = {"message_id": 1, "chat": {"id": chat, "type": "supergroup"}}
        person = {"id": sender, "is_bot": False, "first_name": "Carol"}
        return self.add(callback_query={"id": "q1", "from": person, "message": message, "data": data})

    async def call(self, request: web.Request) -> web.Response:
        if self.is_down:
            return web.Response(status=502, text="bad gateway")
        if request.match_info["token"] != f"bot{TOKEN}":
            return _refused(401, "Unauthorized")
        if request.match_info["method"] == "sendDocument":
            await self.begin_file()
        body = await _body(request)
        match request.match_info["method"]:
            case "getMe":
                return _taken(BOT)
            case "getUpdates":
                return await self.poll(body)
            case "sendDocument" if self.refuses_files:
                return _refused(502, "Bad Gateway")
            case "sendDocument":
                answer = self.send(body)
                await asyncio.sleep(self.pause_s)
                return answer
            case "sendMessage":
                return self.send(body)
            case "getFile":
                return _taken({"file_id": body["file_id"], "file_path": body["file_id"]})
            case "sendChatAction":
                self.typed.append(body["chat_id"])
                return _taken(True)
            case "editMessageText":
                self.edits.append(body)
                self.sent[body["message_id"] - 1001].update(body)
                return _taken({"message_id": body["message_id"], "chat": {"id": 1}})
            case "answerCallbackQuery":
                self.confirmed.append(body["callback_query_id"])
                return _taken(True)
            case _:
                return _refused(404, "Not Found")

    async def poll(self, body: dict) -> web.Response:
        self.polls_count += 1
        while True:
            waiting = [update for update in self.updates if update["update_id"] >= body["offset"]]
            if waiting or self.is_down:
                if self.is_down:
                    return web.Response(status=502)
                shown = [self.raw.get(each["update_id"]) or json.dumps(each).encode() for each in waiting]
                told = b'{"ok":true,"result":[' + b",".join(shown[: body.get("limit", 100)]) + b"]}"
                return web.Response(body=told, content_type="application/json")
            self.arrived.clear()
            await self.arrived.wait()

    async def begin_file(self) -> None:
        """Leaves a file half on its way for a moment."""
        self.files_begun_count += 1
        await asyncio.sleep(self.pause_s)

    async def file(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        body = jpeg() if request.match_info["path"].endswith(".jpg") else b"the attached words"
        answer.content_length = len(body)
        await answer.prepare(request)
        await answer.write(body[:5])
        await self.begin_file()
        await answer.write(body[5:])
        return answer

    def send(self, body: dict) -> web.Response:
        if self.failures:
            code, parameters = self.failures.pop(0)
            return _refused(code, "Too Many Requests" if code == 429 else "refused", parameters)
        self.sent.append(body)
        return _taken({"message_id": 1000 + len(self.sent), "chat": {"id": 1}})

    @property
    def texts(self) -> list[str]:
        return [body["text"] for body in self.sent]


async def _body(request: web.Request) -> dict:
    if request.content_type == "application/json":
        return dict(await request.json())
    fields, files = await read_form(request)
    return {**fields, "text": "", "document": files["document"]}


def _taken(result: object) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _refused(code: int, description: str, parameters: dict | None = None) -> web.Response:
    told = {"ok": False, "error_code": code, "description": description, "parameters": parameters or {}}
    return web.json_response(told, status=code)


@asynccontextmanager
async def telegram_server() -> AsyncIterator[TelegramServer]:
    server, app = TelegramServer(), web.Application(client_max_size=FILE_BYTES_MAX)
    app.router.add_post("/{token}/{method}", server.call)
    app.router.add_get(f"/file/bot{TOKEN}/{{path:.*}}", server.file)
    async with served(app) as server.url:
        yield server
