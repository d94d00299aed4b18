"""A real daemon is killed while it reads what people wrote to Discord meanwhile: all is taken once and in order."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_channel_file_kills import tape
from tests.support.daemons import Daemon
from tests.support.discord import BOT, TOKEN, DiscordServer, discord_server
from tests.support.examples import examples
from tests.support.lasting import Lasting, lasting
from tests.support.waiting import wait_until

pytest.importorskip("discord", reason="the extra discord is not installed")

DIRECT_COUNT = 110  # Two pages, and several bursts.
GROUP_COUNT = 20
KILLS_COUNT = examples(2)
WAIT_S = 120.0
SCRIPT = '[[scripts]]\nturns = [{ text = "heard" }]\n'
CHANNEL = """
[[channel]]
name = "team"
kind = "discord"
token = "env:DISCORD_TOKEN"
api_url = "{url}"
dm_policy = "allow"
allow_from = ["*"]
guilds = ["50"]
coalesce_ms = 0
when_busy = "queue"
"""


def make_daemon(home: Path, server: DiscordServer) -> Daemon:
    daemon = Daemon(home, SCRIPT, DISCORD_TOKEN=TOKEN)
    with (home / "palyra.toml").open("a") as file:
        file.write(CHANNEL.format(url=server.url))
    return daemon


def say(platform: Lasting[DiscordServer], text: str, number: int, **place: Any) -> None:
    """In the group two people speak by turns, so that each message starts a run."""
    sender = str(7 + number % 2) if "guild_id" in place else "7"
    platform.run(platform.server.say(f"<@999> {text}", sender, mentions=[BOT], **place))


def lines(daemon: Daemon) -> dict[str, list[str]]:
    """Returns what was taken in each session, line by line."""
    sessions = daemon.call("GET", "/api/v1/sessions?limit=100&everyone=true")[1]["items"]
    found: dict[str, list[str]] = {}
    for each in sessions:
        texts = [event["data"]["text"] for event in tape(daemon, each["id"]) if event["type"] == "message.user"]
        found[each["key"]] = [line for text in texts for line in text.splitlines()]
    return found


def test_killed_while_it_catches_up_every_message_is_taken_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(5)
    direct = ["first", *(f"direct {number}" for number in range(DIRECT_COUNT))]
    group = ["first", *(f"group {number}" for number in range(GROUP_COUNT))]
    places: tuple[dict[str, Any], ...] = ({"channel": "70"}, {"channel": "60", "guild_id": "50"})
    with lasting(discord_server) as platform, make_daemon(tmp_path, platform.server) as daemon:
        server = platform.server
        wait_until(lambda: server.commands, "the connection")
        for place in places:
            say(platform, "first", 0, **place)
        wait_until(lambda: len(server.sent) == len(places), "the first answers")
        daemon.kill()
        for place, texts in zip(places, (direct, group), strict=True):
            for number, text in enumerate(texts[1:]):
                say(platform, text, number, **place)
        # By the count of messages that were taken, so that kills hit the middle however slow the machine is.
        for taken_count in sorted(chance.sample(range(2, len(direct) + len(group)), KILLS_COUNT)):
            daemon.start()
            wait_until(lambda: sum(map(len, lines(daemon).values())) >= taken_count)  # noqa: B023 - in this round
            daemon.kill()
        daemon.start()
        wanted = {"channel:team:conversation:70": direct, "channel:team:conversation:60": group}
        wait_until(lambda: {key: len(each) for key, each in lines(daemon).items()} == {
            key: len(each) for key, each in wanted.items()}, "every message", WAIT_S)  # fmt: skip
        assert lines(daemon) == wanted
        wait_until(lambda: _is_settled(daemon), "every answer", WAIT_S)
        references = [body["message_reference"]["message_id"] for body in server.sent]
        assert len(references) == len(set(references))


def _is_settled(daemon: Daemon) -> bool:
    runs = daemon.call("GET", "/api/v1/runs?limit=500&everyone=true")[1]["items"]
    items = daemon.call("GET", "/api/v1/outbox?limit=500")[1]["items"]
    answers = [item["state"] for item in items if item["kind"] != "preview"]
    return set(answers) == {"sent"} and len(answers) == len(runs)
