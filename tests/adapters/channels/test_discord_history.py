"""What people wrote to Discord while nothing was connected is read, with the real discord.py, once and in order."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.channels import discord_history
from palyra.adapters.channels.discord import DiscordChannel, DiscordSettings
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.missed import AGE_MAX_MS
from palyra.core.channels.model import ChannelKind, ChannelRules, DirectMessages
from palyra.core.events.run import MessageUser
from palyra.core.ids import Principal
from palyra.engine.channels import catch_up, heard_positions
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.engine.engine import Engine
from palyra.ports.channels import PositionViews
from tests.support.asking import says
from tests.support.channels import ChannelScene, MemoryPlatform, permits, rules
from tests.support.discord import BOT, TOKEN, DiscordServer, discord_server
from tests.support.engines import Workshop
from tests.support.waiting import until

pytest.importorskip("discord", reason="the extra discord is not installed")

HEARD = [Script(turns=tuple(says("Heard.") for _ in range(40)))]
TEAM = rules(kind=ChannelKind.DISCORD, allow_from=("*",))
IN_GUILD: dict[str, Any] = {"guild_id": "50", "channel": "60"}
ALICE, GROUP = Principal("channel:discord:7"), Principal("channel:team")
LIMITED = {"message": "You are being rate limited.", "retry_after": 0.05, "global": False}
Failure = tuple[int, dict[str, Any], dict[str, str]]
VIA = {"Via": "1.1 test", "Retry-After": "1"}


class Home:
    """A daemon's home beside a platform that stays up while engines come and go."""

    def __init__(self, root: Path, server: DiscordServer) -> None:
        self.root, self.server = root, server

    @asynccontextmanager
    async def up(self, scripts: Sequence[Script] = HEARD, team: ChannelRules = TEAM) -> AsyncIterator[ChannelScene]:
        workshop = Workshop(self.root, scripts)
        workshop.may_answer = permits
        settings = DiscordSettings(name="team", token=lambda: TOKEN, api_url=self.server.url)
        workshop.channels = (ConfiguredChannel(team, DiscordChannel(settings)),)
        async with workshop.open() as engine:
            await until(lambda: engine.channels.connections["team"].is_connected)
            yield ChannelScene(engine, MemoryPlatform(), workshop)

    async def known(self, **place: Any) -> None:
        """Lets the daemon hear of a conversation, and stops it."""
        async with self.up():
            count = len(self.server.sent)
            await self.server.say("<@999> first", **{"mentions": [BOT], **place})
            await until(lambda: len(self.server.sent) > count)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with discord_server() as server:
        yield Home(tmp_path, server)


async def said(engine: Engine, owner: Principal) -> list[str]:
    """Returns what the owner's only session was told, line by line."""
    (session,) = await engine.sessions.list(owner, "", 10)
    events = await engine.sessions.tape(owner, session.id, 0, 1_000)
    texts = [event.data.text for event in events if isinstance(event.data, MessageUser)]
    return [line for text in texts for line in text.splitlines()]


async def caught_up(scene: ChannelScene) -> None:
    await until(lambda: scene.engine.channels.catch_ups["team"]._task is None)


async def test_what_was_written_meanwhile_is_taken_once_and_in_order(home: Home) -> None:
    await home.known()
    for number in range(3):
        await home.server.say(f"missed {number}")
    async with home.up() as scene:
        live = await home.server.say("live")
        await until(lambda: live in [each["message_reference"]["message_id"] for each in home.server.sent])
        assert await said(scene.engine, ALICE) == ["first", "missed 0", "missed 1", "missed 2", "live"]
    async with home.up() as scene:
        await caught_up(scene)
        assert await said(scene.engine, ALICE) == ["first", "missed 0", "missed 1", "missed 2", "live"]


async def test_a_live_message_waits_for_those_before_it(home: Home) -> None:
    await home.known()
    await home.server.say("missed")
    home.server.history_failures["70"] = [(429, {**LIMITED, "retry_after": 0.5}, VIA)]
    async with home.up() as scene:
        await home.server.say("live")
        await until(lambda: len(home.server.sent) >= 2)
        await until(lambda: _has(scene, "live"))
        assert await said(scene.engine, ALICE) == ["first", "missed", "live"]


async def _has(scene: ChannelScene, line: str) -> bool:
    return line in await said(scene.engine, ALICE)


async def test_a_guild_is_read_by_the_same_rules(home: Home) -> None:
    await home.known(**IN_GUILD)
    await home.server.say("chatter", **IN_GUILD)
    await home.server.say("<@999> spoofed", **IN_GUILD)
    await home.server.say("<@999> meant for you", mentions=[BOT], **IN_GUILD)
    await home.server.say("of a robot", **{**IN_GUILD, "author": {**BOT, "id": "5"}, "mentions": [BOT]})
    async with home.up() as scene:
        await caught_up(scene)
        await until(lambda: len(home.server.sent) == 2)
        assert await said(scene.engine, GROUP) == ["first", "meant for you"]


async def test_several_pages_are_read(home: Home) -> None:
    await home.known(**IN_GUILD)
    for number in range(250):
        await home.server.say(f"chatter {number}", **IN_GUILD)
    await home.server.say("<@999> the last", mentions=[BOT], **IN_GUILD)
    home.server.history["60"][30]["mentions"] = [BOT]
    async with home.up() as scene:
        await caught_up(scene)
        await until(lambda: len(home.server.sent) == 3)
        assert await said(scene.engine, GROUP) == ["first", "chatter 28", "the last"]
        assert home.server.history_reads.count("60") == 3


async def test_what_is_too_old_is_left_and_told(home: Home) -> None:
    await home.known(age_ms=5 * AGE_MAX_MS)
    await home.server.say("older", age_ms=3 * AGE_MAX_MS)
    await home.server.say("old", age_ms=2 * AGE_MAX_MS)
    await home.server.say("of today")
    async with home.up() as scene:
        await caught_up(scene)
        await until(lambda: len(home.server.sent) == 2)
        assert await said(scene.engine, ALICE) == ["first", "of today"]
        (record,) = await scene.engine.channels.list()
        assert (record.state, record.left_count) == ("ok", 2)


async def test_of_too_many_the_newest_are_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "MESSAGES_MAX", 150)
    await home.known(**IN_GUILD)
    await home.server.say("<@999> the first of many", mentions=[BOT], **IN_GUILD)
    for number in range(150):
        await home.server.say(f"chatter {number}", **IN_GUILD)
    await home.server.say("<@999> the last", mentions=[BOT], **IN_GUILD)
    async with home.up() as scene:
        await caught_up(scene)
        await until(lambda: len(home.server.sent) == 2)
        assert await said(scene.engine, GROUP) == ["first", "the last"]
        assert (await scene.engine.channels.get("team")).left_count == 2


async def test_messages_of_robots_count_among_those_that_are_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot may write day and night. Reading all of it would hold up the live words of every conversation."""
    monkeypatch.setattr(catch_up, "MESSAGES_MAX", 150)
    await home.known(**IN_GUILD)
    for number in range(450):
        await home.server.say(f"log {number}", **{**IN_GUILD, "author": {**BOT, "id": "5"}})
    await home.server.say("<@999> the last", mentions=[BOT], **IN_GUILD)
    async with home.up() as scene:
        await caught_up(scene)
        await until(lambda: len(home.server.sent) == 2)
        assert home.server.history_reads.count("60") == 2
        assert (await scene.engine.channels.get("team")).left_count == 1


async def test_a_conversation_that_nobody_spoke_in_before_is_not_read(home: Home) -> None:
    await home.server.say("before the channel was there")
    async with home.up() as scene:
        await caught_up(scene)
        assert home.server.history_reads == []
        await home.server.say("hello")
        await until(lambda: home.server.sent)
    async with home.up() as scene:
        await caught_up(scene)
        assert await said(scene.engine, ALICE) == ["hello"]


@pytest.mark.parametrize("status", [403, 404])
async def test_a_conversation_that_was_closed_stops_no_other(home: Home, status: int) -> None:
    await home.known()
    await home.known(channel="71")
    await home.known(channel="72")
    closed: Failure = (status, {"code": 50001, "message": "Missing Access"}, {})
    home.server.history_failures["71"] = [closed]
    for conversation in ("70", "71", "72"):
        await home.server.say(f"missed in {conversation}", channel=conversation)
    async with home.up() as scene:
        await caught_up(scene)
        await until(lambda: len(home.server.sent) == 5)
        assert sorted(each["channel_id"] for each in home.server.sent[3:]) == ["70", "72"]
        await home.server.say("live", channel="71")
        await until(lambda: len(home.server.sent) == 6)


async def test_a_429_and_an_error_of_discord_are_waited_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "WAITS_S", (0.01, 0.01, 0.01))
    await home.known()
    await home.server.say("missed")
    unkind: Failure = (503, {"code": 0, "message": "upstream"}, {})
    home.server.history_failures["70"] = [(429, LIMITED, VIA), unkind, (429, {**LIMITED, "retry_after": 31.0}, VIA)]
    monkeypatch.setattr(discord_history, "BUSY_S_MAX", 0.1)
    async with home.up() as scene:
        await caught_up(scene)
        await until(lambda: len(home.server.sent) == 2)
        assert await said(scene.engine, ALICE) == ["first", "missed"]


async def test_a_session_that_begins_anew_reads_what_it_missed(home: Home) -> None:
    await home.known()
    async with home.up() as scene:
        await caught_up(scene)
        home.server.forgets_sessions = True
        gateways, home.server.gateways = home.server.gateways, []
        await home.server.say("missed")
        await gateways[0].socket.close(code=4009)
        await until(lambda: len(home.server.sent) == 2)
        assert await said(scene.engine, ALICE) == ["first", "missed"]


async def test_what_was_ignored_once_is_not_taken_by_later_rules(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard_positions, "WRITE_AFTER_S", 0.01)
    await home.known()
    closed = rules(kind=ChannelKind.DISCORD, dm_policy=DirectMessages.DENY)
    async with home.up(team=closed) as scene:
        message_id = await home.server.say("may I?")
        positions = scene.engine.channels.catch_ups["team"].views
        await until(lambda: _is_read(positions, message_id))
    async with home.up() as scene:
        await caught_up(scene)
        assert await said(scene.engine, ALICE) == ["first"]


async def _is_read(positions: PositionViews, message_id: str) -> bool:
    found = await positions.position("team", "70")
    return found is not None and found.message_id == message_id


async def test_what_was_written_during_a_pause_is_read_when_the_channel_is_resumed(home: Home) -> None:
    async with home.up() as scene:
        await home.server.say("first")
        await until(lambda: home.server.sent)
        owner = Principal("user:owner")
        await scene.engine.channels.pause(owner, "team")
        await home.server.say("missed")
        await scene.engine.channels.resume(owner, "team")
        await until(lambda: len(home.server.sent) == 2)
        assert await said(scene.engine, ALICE) == ["first", "missed"]
