"""Discord through a real engine with the real discord.py, against a stand-in of its gateway and REST."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.adapters.channels.discord import DiscordChannel, DiscordSettings
from palyra.adapters.providers.prepared_turns import Chunk, Turn
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import ChannelKind
from palyra.core.errors import Unavailable
from palyra.engine.channels.directory import ConfiguredChannel
from tests.support.asking import SEND_THEN_ANSWER, says
from tests.support.channels import PDF, ChannelScene, MemoryPlatform, attached, permits, report, rules
from tests.support.discord import BOT, TOKEN, DiscordServer, discord_server
from tests.support.engines import Workshop
from tests.support.waiting import until

pytest.importorskip("discord", reason="the extra discord is not installed")

CODE = "```python\n" + "x = 1\n" * 400 + "```"
HELLO = [
    Script(when="long", turns=(says(f"Here it is:\n\n{CODE}\n\nDone."),)),
    Script(turns=tuple(says("Hi @everyone.") for _ in range(20))),
]
ECHO = [Script(turns=tuple(says("Heard.") for _ in range(20)))]
TEAM = rules(kind=ChannelKind.DISCORD, allow_from=("*",))
IN_GUILD: dict[str, Any] = {"guild_id": "50", "channel": "60", "mentions": [BOT]}


def channel(server: DiscordServer, token: str = TOKEN) -> DiscordChannel:
    return DiscordChannel(DiscordSettings(name="team", token=lambda: token, api_url=server.url))


@asynccontextmanager
async def discord(root: Path, scripts: Sequence[Script] = HELLO) -> AsyncIterator[tuple[ChannelScene, DiscordServer]]:
    async with discord_server() as server:
        workshop = Workshop(root, scripts)
        workshop.may_answer = permits
        workshop.channels = (ConfiguredChannel(TEAM, channel(server)),)
        async with workshop.open() as engine:
            connection = engine.channels.connections["team"]
            await until(lambda: connection.is_connected)
            yield ChannelScene(engine, MemoryPlatform(), workshop), server


async def test_a_direct_message_is_answered_once_and_calls_nobody(tmp_path: Path) -> None:
    async with discord(tmp_path) as (_, server):
        message_id = await server.say("hello")
        await until(lambda: server.sent)
        (body,) = server.sent
        assert (body["channel_id"], body["message_reference"]["message_id"]) == ("70", message_id)
        assert (body["content"], body["allowed_mentions"]) == ("Hi @\u200beveryone.", {"parse": []})


async def test_a_task_of_the_library_that_is_late_meets_a_closed_channel_in_silence(tmp_path: Path) -> None:
    async with discord(tmp_path) as (scene, _):
        adapter = scene.workshop.channels[0].adapter
        assert isinstance(adapter, DiscordChannel)
        client = adapter._client
    assert client is not None
    client.dispatch("ready")


async def test_a_guild_is_heard_only_where_discord_marked_a_mention(tmp_path: Path) -> None:
    async with discord(tmp_path) as (_, server):
        await server.say("<@999> spoofed", guild_id="50", channel="60")
        said = await server.say("<@999> hello", **IN_GUILD)
        await until(lambda: server.sent)
        assert [body["message_reference"]["message_id"] for body in server.sent] == [said]


async def test_a_long_answer_comes_in_parts_with_whole_code_blocks(tmp_path: Path) -> None:
    async with discord(tmp_path) as (_, server):
        await server.say("long please")
        await until(lambda: server.sent and "Done." in server.texts[-1])
        assert len(server.sent) > 1
        assert all(len(text) <= 2_000 and text.count("```") % 2 == 0 for text in server.texts)


async def test_an_answer_is_shown_while_it_is_written_and_stands_once(tmp_path: Path) -> None:
    chunks = tuple(Chunk(f" word{number} @everyone", 60 if number else 2_000) for number in range(60))
    async with discord(tmp_path, [Script(turns=(Turn(chunks=chunks),))]) as (_, server):
        await server.say("tell me a story")
        await until(lambda: server.sent and "word59" in server.texts[-1])
        assert server.typed
        assert len(server.sent) == 1
        shown = [body["content"] for _, body in server.edits]
        assert len(shown) > 1
        assert all(text.endswith(" …") for text in shown[:-1])
        assert shown[-1].endswith("word59 @\u200beveryone")
        assert all("@everyone" not in text and body["allowed_mentions"] == {"parse": []}
                   for text, (_, body) in zip(shown, server.edits, strict=True))  # fmt: skip


async def test_an_attachment_is_read(tmp_path: Path) -> None:
    async with discord(tmp_path) as (scene, server):
        url = f"{server.url}/files/note.txt"
        file = {"id": "1", "filename": "note.txt", "size": 18, "url": url, "proxy_url": url,
                    "content_type": "text/plain; charset=utf-8"}  # fmt: skip
        await server.say("see this", attachments=[file])
        await until(lambda: server.sent)
        assert await attached(scene, "channel:discord:7") == ("see this", [("note.txt", "text/plain", 18)])


async def test_an_approval_is_answered_by_button(tmp_path: Path) -> None:
    async with discord(tmp_path, SEND_THEN_ANSWER) as (scene, server):
        await scene.link("9", "user:carol", "operator")
        await server.say("<@999> go", **IN_GUILD)
        await until(lambda: any("components" in body for body in server.sent))
        row = next(body["components"][0] for body in server.sent if "components" in body)
        assert [button["label"] for button in row["components"]] == ["Allow once", "Deny"]
        await server.press(row["components"][0]["custom_id"], "9", "60")
        await until(lambda: "Sent." in server.texts)
        assert len(scene.workshop.executed()) == 1
        assert len(server.deferred) == 1


async def test_commands_are_listed_and_slash_commands_are_performed(tmp_path: Path) -> None:
    async with discord(tmp_path) as (scene, server):
        await until(lambda: server.commands)
        assert {"status", "approve", "help"} <= {each["name"] for each in server.commands}
        await scene.link("9", "user:carol", "operator")
        await server.slash("whoami", "9", "60")
        await until(lambda: any("user:carol" in text for text in server.texts))
        await server.slash("approve", "8", "60", id="01JZ8Y7Q4B9C2D5E6F7G8H9J0K")
        await until(lambda: any("Nothing waits" in text for text in server.texts))
        assert len(server.deferred) == 2


async def test_a_429_is_waited_out_and_a_forbidden_conversation_is_dead(tmp_path: Path) -> None:
    async with discord(tmp_path) as (scene, server):
        limited = {"message": "You are being rate limited.", "retry_after": 0.05, "global": False}
        server.failures = [(429, limited, {"Via": "1.1 test", "Retry-After": "1"})]
        await server.say("hello")
        await until(lambda: server.sent)
        server.failures = [(403, {"code": 50001, "message": "Missing Access"}, {})]
        await server.say("hello")
        await until(lambda: _states(scene, ["sent", "dead"]))


async def _states(scene: ChannelScene, expected: list[str]) -> bool:
    return [state.value for state in await scene.states()] == expected


async def test_a_dropped_connection_is_resumed(tmp_path: Path) -> None:
    async with discord(tmp_path) as (_, server):
        await server.gateways[0].socket.close(code=4000)
        await until(lambda: server.gateways and server.resumed_count + server.identified_count > 1)
        await server.say("are you there?")
        await until(lambda: server.sent)


async def test_a_wrong_token_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with discord_server() as server:
        assert (await channel(server).check()).known_as == "palyra"
        assert caplog.messages == []
        with pytest.raises(Unavailable, match="token_refused"):
            await channel(server, "wrong").check()


async def test_an_unreachable_platform_is_told() -> None:
    nowhere = DiscordSettings(name="team", token=lambda: TOKEN, api_url="http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="connect_failed"):
        await DiscordChannel(nowhere).check()


async def test_a_file_follows_the_text_in_a_message_of_its_own(tmp_path: Path) -> None:
    async with discord(tmp_path) as (scene, server):
        await scene.engine.outbox.send(report("team", "70"))
        await until(lambda: len(server.sent) == 2)
        text, file = server.sent
        assert (text["content"], "files" in text) == ("Here it is.", False)
        assert file["files"] == [("report.pdf", "application/pdf", PDF)]
        assert (file["enforce_nonce"], file["nonce"] != text["nonce"]) == (True, True)


async def test_a_message_with_a_slow_file_is_not_overtaken(tmp_path: Path) -> None:
    async with discord(tmp_path, ECHO) as (_, server):
        server.file_ready.clear()
        url = f"{server.url}/files/note.txt"
        file = {"id": "1", "filename": "note.txt", "size": 18, "url": url, "proxy_url": url}
        first = await server.say("first", attachments=[file])
        second = await server.say("second")
        other = await server.say("third", channel="71")
        await until(lambda: server.sent)
        assert [body["message_reference"]["message_id"] for body in server.sent] == [other]
        server.file_ready.set()
        await until(lambda: len(server.sent) >= 2)
        answered = [body["message_reference"]["message_id"] for body in server.sent[1:]]
        assert answered in ([first, second], [second])  # As two messages, or joined into one burst.
