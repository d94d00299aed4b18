"""Slack through a real engine with the real slack-sdk, against a stand-in of Slack's Web API and Socket Mode."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.channels.slack import SlackChannel, SlackSettings
from palyra.adapters.channels.slack_payloads import SlackSelf
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import SELF, ChannelKind, InboundMessage
from palyra.core.errors import Invalid, Unauthorized, Unavailable
from palyra.engine.channels.connection import ChannelConnection
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.channels import HttpReply, HttpRequestPart, OutgoingPart, SendFailed, SentMessage
from tests.support.asking import SEND_THEN_ANSWER, STORY, says
from tests.support.channels import PDF, ChannelScene, DroppingInlet, MemoryPlatform, attached, permits, report, rules
from tests.support.engines import Workshop
from tests.support.slack import APP_TOKEN, BOT_TOKEN, BOT_USER, OURS, SlackServer, slack_server
from tests.support.slack import TEAM as TEAM_ID
from tests.support.waiting import until

pytest.importorskip("slack_sdk", reason="the extra slack is not installed")

HELLO = [Script(turns=tuple(says("Hi **there**, 1 < 2.") for _ in range(20)))]
TEAM = rules(kind=ChannelKind.SLACK, allow_from=("*",))
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
NOW_S = 1_800_000_000


def channel(server: SlackServer, **fields: object) -> SlackChannel:
    base = {"name": "team", "token": lambda: BOT_TOKEN, "app_token": lambda: APP_TOKEN, "has_socket": True}
    return SlackChannel(SlackSettings(**{**base, "api_url": server.url, **fields}))  # type: ignore[arg-type]


@asynccontextmanager
async def slack(root: Path, scripts: Sequence[Script] = HELLO) -> AsyncIterator[tuple[ChannelScene, SlackServer]]:
    async with slack_server() as server:
        workshop = Workshop(root, scripts)
        workshop.may_answer = permits
        workshop.channels = (ConfiguredChannel(TEAM, channel(server)),)
        async with workshop.open() as engine:
            await until(lambda: server.sockets)
            yield ChannelScene(engine, MemoryPlatform(), workshop), server


async def test_a_direct_message_is_answered_in_mrkdwn_and_acknowledged_after_it_was_taken(tmp_path: Path) -> None:
    async with slack(tmp_path) as (_, server):
        envelope = await server.say("hello &amp; welcome")
        await until(lambda: server.sent)
        (body,) = server.sent
        assert (body["channel"], body["text"]) == ("D1", "Hi *there*, 1 &lt; 2.")
        await until(lambda: server.acknowledged == [envelope])


async def test_a_mention_comes_as_two_events_and_is_answered_once_in_a_thread(tmp_path: Path) -> None:
    async with slack(tmp_path) as (_, server):
        event = {"channel": "C1", "channel_type": "channel", "ts": "1800000001.000100"}
        await server.say(f"<@{BOT_USER}> hello", **event)
        await server.say(f"<@{BOT_USER}> hello", **{**event, "type": "app_mention"})
        await server.say("no mention", channel="C1", channel_type="channel")
        await until(lambda: len(server.acknowledged) == 3)
        await until(lambda: server.sent)
        assert [(body["channel"], body["thread_ts"]) for body in server.sent] == [("C1", "1800000001.000100")]


async def test_an_approval_is_answered_by_a_button_of_blocks(tmp_path: Path) -> None:
    async with slack(tmp_path, SEND_THEN_ANSWER) as (scene, server):
        await scene.link("T1:UCAROL", "user:carol", "operator")
        await server.say(f"<@{BOT_USER}> go", channel="C1", channel_type="channel")
        await until(lambda: any("blocks" in body for body in server.sent))
        blocks = next(body["blocks"] for body in server.sent if "blocks" in body)
        blocks = json.loads(blocks) if isinstance(blocks, str) else blocks
        allow = blocks[1]["elements"][0]
        pressed = {
            "type": "block_actions",
            "trigger_id": "t1",
            "user": {"id": "UCAROL", "name": "carol"},
            "team": {"id": "T1"},
            "channel": {"id": "C1"},
            "container": {"thread_ts": "1"},
            "actions": [{"value": allow["value"], "action_ts": "2"}],
        }
        await server.push("interactive", pressed)
        await until(lambda: "Sent." in server.texts)
        assert len(scene.workshop.executed()) == 1


async def test_a_429_waits_and_a_lost_channel_is_dead(tmp_path: Path) -> None:
    async with slack(tmp_path) as (scene, server):
        server.failures = [(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": "0"})]
        await server.say("hello")
        await until(lambda: server.sent)
        server.failures = [(200, {"ok": False, "error": "channel_not_found"}, {})]
        await server.say("hello")
        await until(lambda: _states(scene, ["sent", "dead"]))


async def _states(scene: ChannelScene, expected: list[str]) -> bool:
    return [state.value for state in await scene.states()] == expected


async def test_a_message_whose_answer_was_lost_is_found_again_by_its_metadata(tmp_path: Path) -> None:
    async with slack(tmp_path) as (scene, _):
        part = OutgoingPart(key="k-0", conversation_id="C1", text="hi", began_at_ms=1_700_000_000_000)
        adapter = scene.workshop.channels[0].adapter
        assert await adapter.find(part) is None
        sent = await adapter.send(part)
        assert await adapter.find(part) == sent


async def test_a_closed_socket_is_opened_again(tmp_path: Path) -> None:
    async with slack(tmp_path) as (_, server):
        await server.sockets[0].close()
        await until(lambda: server.connects_count >= 2 and server.sockets)
        await server.say("are you there?")
        await until(lambda: server.sent)


async def test_an_answer_is_shown_while_it_is_written_and_stands_once(tmp_path: Path) -> None:
    async with slack(tmp_path, STORY) as (_, server):
        await server.say("tell me a story")
        await until(lambda: server.edits and server.edits[-1]["text"].endswith("word49"))
        assert len(server.sent) == 1
        assert all(body["text"].endswith(" …") for body in server.edits[:-1])


async def test_a_file_of_slacks_is_read_and_no_other_address_is_given_the_token(tmp_path: Path) -> None:
    async with slack(tmp_path) as (scene, server), slack_server() as stranger:
        own = {"name": "note.txt", "mimetype": "text/plain", "url_private_download": f"{server.url}/files/note.txt"}
        foreign = {"name": "spy.txt", "mimetype": "text/plain", "url_private": f"{stranger.url}/files/note.txt"}
        await server.say("see this", subtype="file_share", files=[own, foreign])
        await until(lambda: server.sent)
        text, files = await attached(scene, "channel:slack:T1:U1")
        assert text == "see this\n(the file spy.txt could not be read)"
        assert files == [("note.txt", "text/plain", 18)]


async def test_an_unreachable_platform_is_told() -> None:
    nowhere = SlackSettings(name="team", token=lambda: BOT_TOKEN, api_url="http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="connect_failed"):
        await SlackChannel(nowhere).check()


async def test_a_wrong_token_is_told() -> None:
    async with slack_server() as server:
        assert (await channel(server).check()).known_as == "palyra in Testers"
        with pytest.raises(Unavailable, match="token_refused"):
            await channel(server, token=lambda: "xoxb-wrong").check()


async def test_a_wrong_app_token_is_told_by_the_check_and_by_the_connection() -> None:
    async with slack_server() as server:
        wrong = channel(server, app_token=lambda: "xapp-wrong")
        with pytest.raises(Unavailable, match="refused the app token: invalid_auth"):
            await wrong.check()
        connection = ChannelConnection(channel=ConfiguredChannel(TEAM, wrong), inlet=DroppingInlet())
        await connection.start()
        await until(lambda: connection.error == "Slack refused the app token: invalid_auth")
        await connection.close()
        assert (await channel(server, has_socket=False, app_token=lambda: "xapp-wrong").check()).known_as


@asynccontextmanager
async def broken_proxy(content_type: str) -> AsyncIterator[SlackChannel]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<h1>502</h1>", status=502, content_type=content_type)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.port}"
        yield SlackChannel(SlackSettings(name="team", token=lambda: BOT_TOKEN, api_url=url))


@pytest.mark.parametrize("content_type", ["text/plain", "text/html", "application/json"])
async def test_what_is_not_slack_is_told_in_words(content_type: str) -> None:
    async with broken_proxy(content_type) as slack_channel:
        with pytest.raises(Unavailable, match="connect_failed"):
            await slack_channel.check()


@pytest.mark.parametrize("content_type", ["text/html", "application/json"])
async def test_a_broken_proxy_is_told_in_words_and_the_message_is_looked_for(content_type: str) -> None:
    async with broken_proxy(content_type) as slack_channel:
        with pytest.raises(SendFailed, match="Slack answered 502") as caught:
            await slack_channel.send(OutgoingPart(key="k", conversation_id="C1", text="hello"))
    assert caught.value.is_unknown


def request(body: bytes, content_type: str = "application/json", secret: str = SECRET) -> HttpRequestPart:
    signature = hmac.new(secret.encode(), f"v0:{NOW_S}:".encode() + body, hashlib.sha256).hexdigest()
    headers = {
        "content-type": content_type,
        "x-slack-request-timestamp": str(NOW_S),
        "x-slack-signature": f"v0={signature}",
    }
    return HttpRequestPart(headers=headers, body=body, now_s=NOW_S)


def hooked() -> SlackChannel:
    made = SlackChannel(SlackSettings(name="team", token=lambda: BOT_TOKEN, signing_secret=lambda: SECRET))
    made.reader.own = SlackSelf(user_id=BOT_USER, team_id=TEAM_ID)
    return made


async def read(payload: dict, **fields: str) -> InboundMessage:
    read = await hooked().read_request(request(json.dumps({**OURS, **payload}).encode(), **fields))
    assert isinstance(read, tuple)
    assert isinstance(read[0].message, InboundMessage)
    return read[0].message


async def test_slacks_check_of_the_address_is_answered() -> None:
    told = await hooked().read_request(request(b'{"type":"url_verification","challenge":"abc"}'))
    assert isinstance(told, HttpReply)
    assert told.body == b"abc"


async def test_a_recorded_mention_is_read() -> None:
    event = {
        "client_msg_id": "9cbd4c5b", "type": "app_mention", "text": f"<@{BOT_USER}> Hi there! <!here>", "user": "W222",
        "ts": "1595926230.009600", "team": "T1", "channel": "C111", "event_ts": "1595926230.009600",
    }  # fmt: skip
    said = await read({"type": "event_callback", "event_id": "Ev111", "event": event})
    assert (said.sender_id, said.text, said.mentions) == ("T1:W222", "Hi there! <!here>", (SELF,))
    assert (said.requested_broadcast, said.thread_id, said.is_direct) == (True, "1595926230.009600", False)


async def test_a_slash_command_is_a_mention() -> None:
    form = urlencode(
        {"command": "/palyra", "text": "/status", "channel_id": "C1", "user_id": "U1", "trigger_id": "t", **OURS}
    )
    found = await hooked().read_request(request(form.encode(), "application/x-www-form-urlencoded"))
    assert isinstance(found, tuple)
    assert isinstance(found[0].message, InboundMessage)
    assert (found[0].message.text, found[0].message.mentions) == ("/status", (SELF,))


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("/palyra", "status", "/status"),
        ("/palyra", "hello", "hello"),
        ("/palyra", "new ideas, please", "new ideas, please"),
        ("/approve", "01AB", "/approve 01AB"),
        ("/whoami", "", "/whoami"),
    ],
)
async def test_a_slash_command_of_slack_is_a_command_of_ours(command: str, text: str, expected: str) -> None:
    form = urlencode({"command": command, "text": text, "channel_id": "D1", "user_id": "U1", "trigger_id": "t", **OURS})
    found = await hooked().read_request(request(form.encode(), "application/x-www-form-urlencoded"))
    assert isinstance(found, tuple)
    assert isinstance(found[0].message, InboundMessage)
    assert found[0].message.text == expected


@pytest.mark.parametrize(
    "event", [{"bot_id": "B1"}, {"subtype": "message_changed"}, {"user": BOT_USER}, {"user": None}]
)
async def test_our_own_words_and_edits_say_nothing(event: dict) -> None:
    base = {"type": "message", "user": "U1", "text": "x", "channel": "D1", "channel_type": "im", "ts": "1"}
    body = json.dumps({**OURS, "type": "event_callback", "event": {**base, **event}}).encode()
    assert isinstance(await hooked().read_request(request(body)), HttpReply)


async def test_a_forged_request_is_refused() -> None:
    with pytest.raises(Unauthorized):
        await hooked().read_request(request(b"{}", secret="guess"))


@given(
    st.binary(max_size=100)
    | st.dictionaries(st.sampled_from(["type", "event", "actions"]), st.none() | st.text()).map(
        lambda each: json.dumps(each).encode()
    )
)
async def test_no_signed_body_breaks_the_reader(body: bytes) -> None:
    try:
        await hooked().read_request(request(body))
    except (Invalid, Unauthorized):
        return


async def test_a_file_is_uploaded_for_nobody_and_shared_by_a_message_that_can_be_found(tmp_path: Path) -> None:
    async with slack(tmp_path) as (scene, server):
        await scene.engine.outbox.send(report("team", "D1"))
        await until(lambda: len(server.sent) == 2)
        assert server.uploads == {"F1": ("report.pdf", PDF)}
        assert [each.get("channel_id") for each in server.completed] == [None]
        text, file = server.sent
        assert text["text"] == "Here it is."
        assert file["text"] == f"<{server.url}/archive/F1|report.pdf>"
        part = OutgoingPart(key=file["metadata"]["event_payload"]["key"], conversation_id="D1", text="")
        assert (await channel(server).find(part)) == SentMessage(file["ts"])


async def test_a_message_with_a_slow_file_is_not_overtaken(tmp_path: Path) -> None:
    async with slack(tmp_path) as (_, server):
        server.file_ready.clear()
        file = {"name": "note.txt", "mimetype": "text/plain", "url_private": f"{server.url}/files/note.txt"}
        await server.say("first", files=[file], subtype="file_share")
        await server.say("second")
        await server.say("elsewhere", channel="D2")
        await until(lambda: server.sent)
        assert [body["channel"] for body in server.sent] == ["D2"]
        server.file_ready.set()
        await until(lambda: len(server.sent) == 2)
        assert server.sent[1]["channel"] == "D1"
