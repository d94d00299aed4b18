"""Two workspaces of Slack are two worlds, and what was stored before workspaces were named goes on."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from palyra.adapters.channels.slack import SlackChannel, SlackSettings
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import ChannelKind, ChannelRules
from palyra.core.errors import Unauthorized, Unavailable
from palyra.core.events.account_links import PairingCarriedOver
from palyra.core.events.run import MessageUser
from palyra.core.ids import Principal, system_stream
from palyra.engine.channels.directory import ConfiguredChannel
from tests.adapters.channels.test_odd_payloads import ECHO, PRESSED, SAID, post
from tests.adapters.channels.test_slack import SECRET, channel, hooked, request
from tests.support.channels import ChannelScene, MemoryPlatform, channel_scene, permits, rules
from tests.support.engines import Workshop
from tests.support.slack import BOT_TOKEN, BOT_USER, OURS, SlackServer, slack_server
from tests.support.waiting import until

pytest.importorskip("slack_sdk", reason="the extra slack is not installed")

NAMED = rules(kind=ChannelKind.SLACK, allow_from=("U1",))
CALLBACK = {**OURS, "type": "event_callback", "event": SAID}
SLASH = {**OURS, "command": "/palyra", "text": "status", "channel_id": "D1", "user_id": "U1", "trigger_id": "t"}


@asynccontextmanager
async def workspace(
    root: Path, given: ChannelRules = NAMED, scripts: Sequence[Script] = ECHO, has_socket: bool = True
) -> AsyncIterator[tuple[ChannelScene, SlackServer]]:
    async with slack_server() as server:
        workshop = Workshop(root, scripts)
        workshop.may_answer = permits
        adapter = channel(server, has_socket=has_socket, signing_secret=lambda: SECRET)
        workshop.channels = (ConfiguredChannel(given, adapter),)
        async with workshop.open() as engine:
            await until(lambda: engine.channels.connections["team"].is_connected)
            yield ChannelScene(engine, MemoryPlatform(), workshop), server


async def speakers(scene: ChannelScene) -> list[tuple[str, str, str]]:
    """Returns owner, actor and text of every message."""
    found: list[tuple[str, str, str]] = []
    for session in await scene.engine.sessions.list(None, "", 100):
        for event in await scene.engine.sessions.tape(Principal(session.owner), session.id, 0, 100):
            if isinstance(event.data, MessageUser):
                found.append((session.owner, event.actor, event.data.text))
    return found


@pytest.mark.parametrize(
    "payload",
    [
        {**CALLBACK, "team_id": "T2"},
        {**CALLBACK, "api_app_id": "A2"},
        {**CALLBACK, "api_app_id": None},
        {name: value for name, value in CALLBACK.items() if name != "team_id"},
        {**CALLBACK, "authorizations": [{"team_id": "T2", "enterprise_id": None}]},
        {**PRESSED, "team": {"id": "T2"}},
        {**PRESSED, "team": None},
        {**PRESSED, "api_app_id": "A2"},
        {**SLASH, "team_id": "T2"},
        {**SLASH, "api_app_id": "A2"},
    ],
)
async def test_a_signed_payload_of_another_workspace_or_app_is_refused(payload: dict, tmp_path: Path) -> None:
    async with workspace(tmp_path, has_socket=False) as (scene, server):
        await post(scene, CALLBACK)
        await until(lambda: len(server.sent) == 1)
        with pytest.raises(Unauthorized):
            await post(scene, payload)
        assert len(await speakers(scene)) == 1


async def test_nothing_is_read_before_the_workspace_is_known() -> None:
    adapter = SlackChannel(SlackSettings(name="team", token=lambda: BOT_TOKEN, signing_secret=lambda: SECRET))
    with pytest.raises(Unavailable, match="not_connected"):
        await adapter.read_request(request(b"{}"))


async def test_the_socket_is_told_of_no_other_workspace_and_no_other_app(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (scene, server):
        for foreign in ({"team_id": "T2"}, {"api_app_id": "A2"}):
            await server.push("events_api", {"type": "event_callback", "event": {**SAID, "ts": "1.5"}, **foreign})
        await server.say("hello")
        await until(lambda: server.texts == ["Heard."])
        assert len(server.acknowledged) == 1
        assert [actor for _, actor, _ in await speakers(scene)] == ["channel:slack:T1:U1"]


async def test_a_guest_of_slack_connect_is_of_their_own_workspace_and_no_namesake() -> None:
    shared = {
        **CALLBACK, "team_id": "T2", "is_ext_shared_channel": True,
        "authorizations": [{"team_id": "T1", "user_id": BOT_USER}],
        "event": {**SAID, "team": "T2", "user_team": "T2"},
    }  # fmt: skip
    said = hooked().reader.read(shared)
    assert said is not None
    assert (said.message.sender_id, said.message.earlier_sender_id) == ("T2:U1", None)
    assert hooked().reader.read({**shared, "event": SAID}).message.sender_id == "T2:U1"  # type: ignore[union-attr]


async def test_an_entry_without_a_workspace_means_ones_own(tmp_path: Path) -> None:
    team = rules(kind=ChannelKind.SLACK, allow_from=("U1", "U2"), deny_from=("U2",), dm_policy=NAMED.dm_policy.DENY)
    async with workspace(tmp_path, team) as (scene, server):
        await server.say("of another team", user_team="T2")
        await server.say("denied", user="U2", channel="D2")
        await server.say("hello", channel="D3")
        await until(lambda: server.sent)
        assert await speakers(scene) == [("channel:slack:T1:U1", "channel:slack:T1:U1", "hello")]


async def test_links_and_questions_of_earlier_releases_are_carried_over_once(tmp_path: Path) -> None:
    async with channel_scene(tmp_path, (), rules(kind=ChannelKind.SLACK)) as scene:
        await scene.link("U1", "user:alice", "operator")
    strict = rules(kind=ChannelKind.SLACK, dm_policy=NAMED.dm_policy.DENY)
    for number in range(2):
        async with workspace(tmp_path, strict) as (scene, server):
            await server.say("hello", ts=f"180000000{number}.1")
            await until(lambda: "Heard." in server.texts)
            (link,) = await scene.engine.pairing.views.links(None, "", 10)
            assert (link.sender_id, link.principal) == ("T1:U1", "user:alice")
            assert {owner for owner, _, _ in await speakers(scene)} == {"user:alice"}
            stream = system_stream(scene.engine._parts.node)
            events = await scene.engine._setup.journal.read(stream, 0, 1_000)
            carried = [event.data for event in events if isinstance(event.data, PairingCarriedOver)]
            assert carried == [PairingCarriedOver(channel="team", workspace="T1", links_count=1)]


@pytest.mark.parametrize("is_isolated", [False, True])
async def test_a_conversation_of_an_earlier_release_goes_on(is_isolated: bool, tmp_path: Path) -> None:
    given = rules(kind=ChannelKind.SLACK, allow_from=("*",), isolate_session_by_sender=is_isolated)
    async with channel_scene(tmp_path, ECHO, given) as scene:
        await scene.say("then", sender_id="U1", conversation_id="D1")
        await scene.heard(1)
    async with workspace(tmp_path, given) as (scene, server):
        await server.say("now")
        await server.say("elsewhere", channel="D9")
        await until(lambda: len(server.sent) >= 2)
        owners = {text: owner for owner, _, text in await speakers(scene)}
        assert owners == {"then": "channel:slack:U1", "now": "channel:slack:U1", "elsewhere": "channel:slack:T1:U1"}
