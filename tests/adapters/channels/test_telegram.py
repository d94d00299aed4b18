"""Telegram through a real engine against a stand-in of its Bot API."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.channels.telegram import TelegramChannel, TelegramSettings
from palyra.adapters.channels.telegram_shapes import TelegramUser
from palyra.adapters.net.client import HttpClient
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import SELF, ChannelKind, ChannelRules, InboundMessage
from palyra.core.channels.outbox import OutboxState
from palyra.core.errors import Invalid, Unauthorized, Unavailable
from palyra.engine.channels.connection import ChannelConnection
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.channels import HttpReply, HttpRequestPart
from tests.support.asking import SEND_THEN_ANSWER, STORY, says
from tests.support.channels import PDF, ChannelScene, MemoryPlatform, attached, permits, report, rules
from tests.support.engines import Workshop
from tests.support.images import jpeg
from tests.support.telegram import BOT, TOKEN, TelegramServer, telegram_server
from tests.support.waiting import until

HELLO = [Script(turns=tuple(says("Hi **there**, 1 < 2.") for _ in range(20)))]
TEAM = rules(kind=ChannelKind.TELEGRAM, allow_from=("*",))


def channel(server: TelegramServer, client: HttpClient, **fields: object) -> TelegramChannel:
    base = {"name": "team", "token": lambda: TOKEN, "api_url": server.url}
    return TelegramChannel(TelegramSettings(**{**base, **fields}), client)  # type: ignore[arg-type]


@asynccontextmanager
async def telegram(
    root: Path, scripts: Sequence[Script] = HELLO, given_rules: ChannelRules = TEAM
) -> AsyncIterator[tuple[ChannelScene, TelegramServer]]:
    client = HttpClient()
    async with telegram_server() as server:
        workshop = Workshop(root, scripts)
        workshop.may_answer = permits
        workshop.channels = (ConfiguredChannel(given_rules, channel(server, client)),)
        async with workshop.open() as engine:
            yield ChannelScene(engine, MemoryPlatform(), workshop), server
    await client.close()


async def test_a_direct_message_is_answered_as_html_in_its_chat(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (_, server):
        server.say("hello")
        await until(lambda: server.sent)
        (body,) = server.sent
        assert (body["chat_id"], body["text"], body["parse_mode"]) == ("7", "Hi <b>there</b>, 1 &lt; 2.", "HTML")
        assert body["reply_parameters"]["message_id"] == 100


async def test_a_group_hears_it_only_when_telegram_marked_a_mention(tmp_path: Path) -> None:
    text = "😀 @palyra_bot hello"
    marked: dict[str, Any] = {"entities": [{"type": "mention", "offset": 3, "length": 11}]}
    async with telegram(tmp_path) as (_, server):
        server.say(text, chat=-5)
        server.say(text, chat=-5, **marked)
        await until(lambda: server.sent)
        assert [body["reply_parameters"]["message_id"] for body in server.sent] == [101]


async def test_updates_are_confirmed_after_they_were_taken_and_twice_is_once(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (scene, server):
        server.say("hello")
        await until(lambda: server.sent)
        adapter = scene.workshop.channels[0].adapter
        assert isinstance(adapter, TelegramChannel)
        adapter._offset = 0  # As after a crash before the next poll.
        server.say("again", sender=8)
        await until(lambda: len(server.sent) == 2)
        assert [body["chat_id"] for body in server.sent] == ["7", "8"]


async def test_a_429_waits_as_long_as_telegram_says(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (scene, server):
        server.failures = [(429, {"retry_after": 0}), (429, {"retry_after": 0})]
        server.say("hello")
        await until(lambda: server.sent)
        await until(lambda: _all(scene, OutboxState.SENT))
        assert len(server.sent) == 1


async def _all(scene: ChannelScene, state: OutboxState) -> bool:
    return await scene.states() == [state]


async def test_a_blocked_bot_leaves_a_dead_letter(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (scene, server):
        server.failures = [(403, {})]
        server.say("hello")
        await until(lambda: _all(scene, OutboxState.DEAD))


async def test_an_outage_is_survived_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.engine.channels.connection.BACKOFF_S", 0.01)
    async with telegram(tmp_path) as (scene, server):
        server.say("hello")
        await until(lambda: server.sent)
        server.is_down = True
        server.arrived.set()
        connection: ChannelConnection = scene.engine.channels.connections["team"]
        await until(lambda: not connection.is_connected)
        assert (await scene.engine.channels.get("team")).state == "failed"
        server.say("while it was down", sender=8)
        server.is_down = False
        await until(lambda: len(server.sent) == 2)
        assert connection.is_connected


async def test_a_command_that_names_the_bot_is_answered_in_a_group(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (_, server):
        server.say("/help@palyra_bot", chat=-5, entities=[{"type": "bot_command", "offset": 0, "length": 16}])
        await until(lambda: any("/whoami" in text for text in server.texts))


async def test_an_approval_is_answered_by_button(tmp_path: Path) -> None:
    async with telegram(tmp_path, SEND_THEN_ANSWER) as (scene, server):
        await scene.link("9", "user:carol", "operator")
        server.say("@palyra_bot go", chat=-5, entities=[{"type": "mention", "offset": 0, "length": 11}])
        await until(lambda: any("reply_markup" in body for body in server.sent))
        question = next(body for body in server.sent if "reply_markup" in body)
        (row,) = question["reply_markup"]["inline_keyboard"]
        assert [button["text"] for button in row] == ["Allow once", "Deny"]
        assert all(len(button["callback_data"]) <= 64 for button in row)
        server.press(row[0]["callback_data"], sender=9, chat=-5)
        await until(lambda: "Sent." in server.texts)
        assert len(scene.workshop.executed()) == 1
        assert server.confirmed == ["q1"]


async def test_an_answer_is_shown_while_it_is_written_and_stands_once(tmp_path: Path) -> None:
    async with telegram(tmp_path, STORY) as (_, server):
        server.say("tell me a story")
        await until(lambda: server.edits and server.edits[-1]["text"].endswith("word49"))
        assert len(server.sent) == 1
        assert all(body["text"].endswith(" …") for body in server.edits[:-1])


NOTE = {"document": {"file_id": "documents/1", "file_name": "note.txt", "mime_type": "text/plain"}}
PHOTO = {"photo": [{"file_id": "1"}, {"file_id": "2.jpg"}]}


@pytest.mark.parametrize(
    ("file", "expected"),
    [(NOTE, ("note.txt", "text/plain", 18)), (PHOTO, ("photo.jpg", "image/jpeg", len(jpeg())))],
)
async def test_a_file_is_read(file: dict[str, Any], expected: tuple[str, str, int], tmp_path: Path) -> None:
    async with telegram(tmp_path) as (scene, server):
        server.say("", caption="see this", **file)
        await until(lambda: server.sent)
        assert await attached(scene, "channel:telegram:7") == ("see this", [expected])


async def test_a_file_that_is_too_large_is_named_instead(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (scene, server):
        server.say("see this", document={"file_id": "f", "file_name": "big.iso", "file_size": 10**9})
        await until(lambda: server.sent)
        text, files = await attached(scene, "channel:telegram:7")
        assert (text, files) == ("see this\n(the file big.iso could not be read)", [])


async def test_a_wrong_token_is_told(tmp_path: Path) -> None:
    client = HttpClient()
    async with telegram_server() as server:
        assert (await channel(server, client).check()).known_as == "@palyra_bot"
        with pytest.raises(Unavailable, match="token_refused"):
            await channel(server, client, token=lambda: "wrong").check()
    await client.close()


def request(body: bytes, secret: str = "hook") -> HttpRequestPart:
    return HttpRequestPart(headers={"x-telegram-bot-api-secret-token": secret}, body=body, now_s=0)


def hooked() -> TelegramChannel:
    settings = TelegramSettings(name="team", token=lambda: TOKEN, secret=lambda: "hook", has_webhook=True)
    made = TelegramChannel(settings, HttpClient())
    made._self = msgspec.convert(BOT, TelegramUser)
    return made


async def read(body: bytes) -> InboundMessage:
    found = await hooked().read_request(request(body))
    assert isinstance(found, tuple)
    assert isinstance(found[0].message, InboundMessage)
    return found[0].message


async def test_the_webhook_needs_its_secret_header() -> None:
    body = msgspec.json.encode(
        {"update_id": 1, "message": {"message_id": 2, "chat": {"id": 7}, "from": {"id": 7}, "text": "hi"}}
    )
    said = await read(body)
    assert (said.envelope_id, said.sender_id, said.text, said.is_direct) == ("u1", "7", "hi", True)
    with pytest.raises(Unauthorized):
        await hooked().read_request(request(body, "guess"))


async def test_a_reply_to_us_is_a_mention() -> None:
    body = {
        "update_id": 1,
        "message": {
            "message_id": 2,
            "chat": {"id": -5, "type": "group"},
            "from": {"id": 7},
            "text": "hi",
            "reply_to_message": {"from": BOT},
        },
    }
    said = await read(msgspec.json.encode(body))
    assert said.mentions == (SELF,)


@given(st.binary(max_size=200) | st.from_regex(r'\{"update_id":[0-9]{1,9},"message":\{.{0,80}\}\}').map(str.encode))
async def test_no_body_breaks_the_reader(body: bytes) -> None:
    try:
        read = await hooked().read_request(request(body))
    except Invalid:
        return
    assert isinstance(read, tuple | HttpReply)


async def test_a_file_is_sent_as_a_document(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (scene, server):
        await scene.engine.outbox.send(report("team", "7"))
        await until(lambda: len(server.sent) == 2)
        text, file = server.sent
        assert (text["text"], file["chat_id"]) == ("Here it is.", "7")
        assert file["document"] == ("report.pdf", "application/pdf", PDF)


async def test_a_file_that_may_have_arrived_is_uncertain_and_the_text_stays_sent(tmp_path: Path) -> None:
    async with telegram(tmp_path) as (scene, server):
        server.refuses_files = True
        await scene.engine.outbox.send(report("team", "7"))
        await until(lambda: _is_uncertain(scene))
        assert server.texts == ["Here it is."]


async def _is_uncertain(scene: ChannelScene) -> bool:
    return await scene.states() == [OutboxState.UNCERTAIN]
