"""Payloads of every platform, changed at random, through the adapter and the engine down to a real journal.

Nothing raises out of an adapter's loop, the connection stays, and the next good message is answered.
"""

import gzip
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.channels.discord import DiscordChannel, DiscordSettings
from palyra.adapters.channels.webhook import WebhookChannel, WebhookSettings
from palyra.adapters.clock import SystemClock
from palyra.adapters.net.client import HttpClient
from palyra.core.channels.model import ChannelKind
from palyra.core.channels.signatures import sign_webhook
from palyra.core.errors import Invalid, Unauthorized
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.ports.channels import ChannelAdapter, HttpRequestPart
from tests.adapters.channels.test_discord_guilds import forward
from tests.adapters.channels.test_forwarded import FORWARDS, SHARED
from tests.adapters.channels.test_odd_payloads import ECHO, PRESSED, SAID, post, slack_over_http
from tests.adapters.channels.test_slack import NOW_S
from tests.adapters.channels.test_telegram import telegram
from tests.corpora.test_slack_corpus import CORPORA
from tests.support.channels import ChannelScene, MemoryPlatform, permits, rules
from tests.support.discord import BOT, TOKEN, discord_server
from tests.support.engines import Workshop
from tests.support.examples import examples
from tests.support.slack import OURS
from tests.support.waiting import until

pytest.importorskip("slack_sdk", reason="the extra slack is not installed")
pytest.importorskip("discord", reason="the extra discord is not installed")

BATCH = 25
QUICK = settings(max_examples=examples(3), deadline=None, suppress_health_check=list(HealthCheck))


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ODD = st.sampled_from(
    [None, True, 0, -1, 2**70, 1.5, "", "x" * 300, "x" * 150_000, "\ud800", "a\x00b", "\u202e", [], {}, [["1"]],
     {"a": {}}, [None], _deep(200), "1" * 5_000, -(2**63)]
)  # fmt: skip


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield (*before, name)
        yield from _paths(member, (*before, name))


def changed(bases: list[dict[str, Any]], kept: tuple[str, ...] = ()) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Returns batches of payloads with up to three members replaced or removed. `kept` are members that stay."""

    def change(base: dict[str, Any], changes: list[tuple[int, Any]]) -> dict[str, Any]:
        made = deepcopy(base)
        for number, odd in changes:
            paths = [path for path in _paths(made) if path[0] not in kept]
            *above, last = paths[number % len(paths)]
            place: Any = made
            for step in above:
                place = place[step]
            if odd is ... and isinstance(place, dict):
                del place[last]
            elif odd is not ...:
                place[last] = odd
        return made

    one = st.builds(
        change,
        st.sampled_from(bases),
        st.lists(st.tuples(st.integers(0, 10_000), ODD | st.just(...)), min_size=1, max_size=3),
    )
    return st.lists(one, min_size=BATCH, max_size=BATCH)


def _slack_bases() -> list[dict[str, Any]]:
    """Ours, and recorded ones where the corpus is."""
    shared = {**SAID, "attachments": [{**SHARED, "text": "words"}], "thread_ts": "1.2", "user_team": "T2"}
    said = [{**OURS, "type": "event_callback", "event": event} for event in (SAID, shared)]
    path = CORPORA / "slack_payloads.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines() if path.exists() else []
    recorded = [json.loads(line)["payload"] for line in lines if line.strip()]
    return [*said, PRESSED, *({**each, **OURS} for each in recorded if isinstance(each, dict))]


@QUICK
@given(changed(_slack_bases()))
async def test_slack_goes_on(batch: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        async with slack_over_http(Path(root)) as (scene, server):
            await post(scene, {**OURS, "type": "event_callback", "event": {**SAID, "user": "U8", "channel": "D8"}})
            for payload in batch:
                try:
                    await post(scene, payload)
                except Unauthorized:
                    continue
            await post(scene, {**OURS, "type": "event_callback", "event": {**SAID, "user": "U9", "channel": "D9"}})
            await until(lambda: any(body["channel"] == "D9" for body in server.sent))


TELEGRAM = [
    {"message_id": 5, "chat": {"id": 7, "type": "private"}, "date": 1_700_000_000, "text": "@palyra_bot hello",
     "from": {"id": 7, "is_bot": False, "first_name": "Alice", "username": "alice"},
     "entities": [{"type": "mention", "offset": 0, "length": 11}], "quote": {"text": "words", "position": 0},
     "reply_to_message": {"message_id": 4, "from": BOT | {"id": 66}, "text": "words"}, **extra}
    for extra in ({}, {"caption": "x", "photo": [{"file_id": "a.jpg"}]}, *FORWARDS.values())
]  # fmt: skip


@QUICK
@given(changed(TELEGRAM))
async def test_telegram_goes_on(batch: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        async with telegram(Path(root), ECHO) as (scene, server):
            for message in batch:
                server.add(message=message)
            for broken in (b'{"update_id":%d,"message":' + b"[" * 200_000 + b"}", b'{"update_id":%d,"x":"\xff"}'):
                number = server.add()
                server.raw[number] = broken % number
            server.raw[server.add()] = b'{"update_id":"odd"}'
            server.say("hello", 9)
            await until(lambda: any(body["chat_id"] == "9" for body in server.sent))
            assert not await _was_lost(scene)


DISCORD = [
    {"id": "1", "channel_id": "70", "type": 0, "content": "<@999> hello", "mentions": [BOT], "mention_everyone": False,
     "author": {"id": "7", "username": "alice", "global_name": None}, "guild_id": "50", "member": {"nick": "Al"},
     "attachments": [], "flags": 0, **extra}
    for extra in ({}, forward("words"))
]  # fmt: skip
PRESS = {"id": "1", "token": "t", "type": 3, "channel_id": "70", "data": {"custom_id": "/whoami"}, "user": {"id": "7"}}


@QUICK
@given(changed([*DISCORD, PRESS]))
async def test_discord_goes_on(batch: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        async with discord_server() as server:
            adapter = DiscordChannel(DiscordSettings(name="team", token=lambda: TOKEN, api_url=server.url))
            async with _opened(Path(root), ChannelKind.DISCORD, adapter) as scene:
                for payload in batch:
                    is_pressed = "token" in payload
                    await server.dispatch(
                        {**payload, "id": payload.get("id") or server.next_id()} if not is_pressed else payload,
                        "INTERACTION_CREATE" if is_pressed else "MESSAGE_CREATE",
                    )
                await server.say("hello", sender="9", channel="79")
                await until(lambda: any(body["channel_id"] == "79" for body in server.sent))
                assert server.identified_count == 1
                assert not await _was_lost(scene)


WEBHOOK = [
    {"envelope_id": "1", "sender_id": "7", "conversation_id": "c", "text": "hello", "is_direct": True, **extra}
    for extra in ({}, {"thread_id": "t", "sender_display": "Al", "message_id": "m"})
]


def _signed(body: bytes) -> HttpRequestPart:
    headers = {"x-palyra-timestamp": str(NOW_S), "x-palyra-signature": sign_webhook("s", NOW_S, body)}
    return HttpRequestPart(headers=headers, body=body, now_s=NOW_S)


@QUICK
@given(changed(WEBHOOK))
async def test_a_webhook_goes_on(batch: list[dict[str, Any]]) -> None:
    client = HttpClient()
    with tempfile.TemporaryDirectory() as root:
        adapter = WebhookChannel(WebhookSettings(name="team", secret=lambda: "s"), client, SystemClock())
        async with _opened(Path(root), ChannelKind.WEBHOOK, adapter) as scene:
            bodies = [json.dumps(each).encode() for each in batch]
            for body in (*bodies, b"[" * 100_000, b"\xff", b"", b"0" * 9_000, b'{"sender_id":' + b"1" * 9_000 + b"}"):
                try:
                    await scene.engine.channels.receive_request("team", _signed(body))
                except Invalid:
                    continue
            good = json.dumps({**WEBHOOK[0], "envelope_id": "good", "conversation_id": "good"}).encode()
            (receipt,) = await scene.engine.channels.receive_request("team", _signed(good))  # type: ignore[misc]
            assert receipt.run_id is not None
    await client.close()


@asynccontextmanager
async def _opened(root: Path, kind: ChannelKind, adapter: ChannelAdapter) -> AsyncIterator[ChannelScene]:
    workshop = Workshop(root, ECHO)
    workshop.may_answer = permits
    workshop.channels = (ConfiguredChannel(rules(kind=kind, allow_from=("*",)), adapter),)
    async with workshop.open() as engine:
        await until(lambda: engine.channels.connections["team"].is_connected)
        yield ChannelScene(engine, MemoryPlatform(), workshop)


async def _was_lost(scene: ChannelScene) -> bool:
    return scene.engine.channels.connections["team"]._failures > 0
