"""What platforms never send, and a signed request may: it reaches the adapter, the engine and a real journal."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from palyra.adapters.channels.slack import SlackChannel, SlackSettings
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import ChannelKind
from palyra.core.channels.outbox import OutboxState
from palyra.engine.channels.dead_letters import UNREAD
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.channels import HttpReply
from tests.adapters.channels.test_slack import SECRET, request
from tests.support.asking import says
from tests.support.channels import ChannelScene, MemoryPlatform, permits, rules
from tests.support.engines import Workshop
from tests.support.slack import BOT_TOKEN, OURS, SlackServer, slack_server
from tests.support.waiting import until

pytest.importorskip("slack_sdk", reason="the extra slack is not installed")

ECHO = [Script(turns=tuple(says("Heard.") for _ in range(40)))]
PRESSED = {
    **OURS,
    "type": "block_actions",
    "trigger_id": "t1",
    "team": {"id": "T1"},
    "user": {"id": "U1", "name": "carol"},
    "channel": {"id": "D1"},
    "container": {"thread_ts": "1"},
    "actions": [{"value": "/whoami", "action_ts": "2"}],
}
SAID = {"type": "message", "user": "U1", "text": "hello", "channel": "D1", "channel_type": "im", "ts": "1800000000.1"}


@asynccontextmanager
async def slack_over_http(
    root: Path, scripts: Sequence[Script] = ECHO
) -> AsyncIterator[tuple[ChannelScene, SlackServer]]:
    """An engine whose Slack channel takes signed requests."""
    async with slack_server() as server:
        workshop = Workshop(root, scripts)
        workshop.may_answer = permits
        settings = SlackSettings(
            name="team", token=lambda: BOT_TOKEN, signing_secret=lambda: SECRET, api_url=server.url
        )
        given = rules(kind=ChannelKind.SLACK, allow_from=("*",))
        workshop.channels = (ConfiguredChannel(given, SlackChannel(settings)),)
        async with workshop.open() as engine:
            await until(lambda: engine.channels.connections["team"].is_connected)
            yield ChannelScene(engine, MemoryPlatform(), workshop), server


async def post(scene: ChannelScene, payload: object) -> object:
    return await scene.engine.channels.receive_request("team", request(json.dumps(payload).encode()))


@pytest.mark.parametrize("odd", [["1"], {"a": 1}, 7, True, 1.5, [[[]]]])
@pytest.mark.parametrize("place", ["container", "message"])
async def test_a_signed_button_with_an_odd_thread_is_refused_and_the_daemon_goes_on(
    place: str, odd: object, tmp_path: Path
) -> None:
    async with slack_over_http(tmp_path) as (scene, server):
        payload = {**PRESSED, "container": {}, place: {"thread_ts": odd}}
        assert await post(scene, payload) == (UNREAD,)
        assert await scene.states() == [OutboxState.DEAD]
        await post(scene, {**OURS, "type": "event_callback", "event": SAID})
        await until(lambda: server.texts == ["Heard."])


@pytest.mark.parametrize("member", sorted(SAID))
@pytest.mark.parametrize("odd", [["x"], {"a": 1}, 7, "\udc80", "a\x00b", "x" * 5_000])
async def test_no_member_of_a_signed_event_stops_the_channel(member: str, odd: object, tmp_path: Path) -> None:
    async with slack_over_http(tmp_path) as (scene, server):
        told = await post(scene, {**OURS, "type": "event_callback", "event": {**SAID, "ts": "1.2", member: odd}})
        assert isinstance(told, HttpReply | tuple)
        await post(scene, {**OURS, "type": "event_callback", "event": {**SAID, "user": "U2", "channel": "D2"}})
        await until(lambda: [body["channel"] for body in server.sent].count("D2") == 1)
