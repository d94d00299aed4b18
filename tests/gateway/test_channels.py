"""Channels over real HTTP: signed requests in, signed answers out, and everything else refused."""

import gzip
import hashlib
import hmac
import io
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from palyra.adapters.channels.webhook import WebhookChannel, WebhookSettings
from palyra.adapters.clock import SystemClock
from palyra.adapters.net.client import HttpClient
from palyra.adapters.providers.scripted import Script
from palyra.core.channels.model import ChannelKind, DirectMessages
from palyra.core.ids import Principal
from palyra.engine.api.requests import RunsQuery
from palyra.engine.channels.directory import ConfiguredChannel
from palyra.engine.engine import Engine
from palyra.gateway.http.request_reader import BodyRoom
from palyra.gateway.http.settings import HttpSettings
from palyra.ports.tokens import Role
from tests.gateway.scene import ADMIN, NOW_MS, Scene, connected, listening, request_bytes
from tests.support.asking import says
from tests.support.channels import permits, rules
from tests.support.engines import Workshop
from tests.support.waiting import until
from tests.support.web_server import served

NOW_S = NOW_MS // 1000
SECRET = "s3cret-of-the-webhook"
ANSWER = [Script(turns=tuple(says("Hi there.") for _ in range(50)))]


@dataclass
class Receiver:
    """A service that takes answers: it checks signatures, and answers what `statuses` says."""

    url: str = ""
    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    taken: dict[str, dict] = field(default_factory=dict)
    requests_count: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.requests_count += 1
        body = await request.read()
        signed = request.headers["x-palyra-timestamp"].encode() + b"." + body
        expected = "v1=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        assert request.headers["x-palyra-signature"] == expected
        status, headers = self.statuses.pop(0) if self.statuses else (200, {})
        if status == 200:
            self.taken.setdefault(request.headers["x-palyra-delivery"], json.loads(body))
        return web.Response(status=status, headers=headers)

    @property
    def texts(self) -> list[str]:
        return [body["text"] for body in self.taken.values()]


@dataclass
class Hooked:
    engine: Engine
    receiver: Receiver
    client: ClientSession
    address: str

    async def post(self, body: object, **changes: object) -> tuple[int, dict]:
        """Sends a signed request. `changes` replace the timestamp, the signature, the raw bytes or the channel."""
        raw = changes.get("raw", json.dumps(body).encode())
        assert isinstance(raw, bytes)
        timestamp = str(changes.get("timestamp", NOW_S))
        signature = "v1=" + hmac.new(SECRET.encode(), timestamp.encode() + b"." + raw, hashlib.sha256).hexdigest()
        headers = {
            "x-palyra-timestamp": timestamp,
            "x-palyra-signature": str(changes.get("signature", signature)),
            "content-type": str(changes.get("content_type", "application/json")),
        }
        url = f"{self.address}/api/v1/channels/{changes.get('channel', 'tickets')}/inbound"
        async with self.client.post(url, data=io.BytesIO(raw), headers=headers) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def hooked(root: Path, **fields: object) -> AsyncIterator[Hooked]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/answers", receiver.take)
    workshop, http = Workshop(root, ANSWER), HttpClient()
    async with AsyncExitStack() as closing:
        address = await closing.enter_async_context(served(app))
        closing.push_async_callback(http.close)
        receiver.url = f"{address}/answers"
        settings = WebhookSettings(name="tickets", secret=lambda: SECRET, outbound_url=receiver.url)
        given = rules(name="tickets", kind=ChannelKind.WEBHOOK, **fields)
        workshop.channels = (ConfiguredChannel(given, WebhookChannel(settings, http, SystemClock())),)
        workshop.may_answer = permits
        async with workshop.open() as engine:
            scene = Scene(engine, settings=HttpSettings(port=0))
            async with listening(scene) as server, ClientSession() as client:
                yield Hooked(engine, receiver, client, server.address)


def body(envelope_id: str = "e1", **fields: object) -> dict[str, object]:
    base = {"envelope_id": envelope_id, "sender_id": "7", "conversation_id": "t-1", "text": "hello", "is_direct": True}
    return {**base, **fields}


async def test_a_signed_message_starts_a_run_and_its_answer_is_sent_signed(tmp_path: Path) -> None:
    async with hooked(tmp_path) as hook:
        status, answer = await hook.post(body())
        assert (status, answer["accepted"]) == (202, True)
        run = await hook.engine.runs.get(account("7"), answer["run_id"])
        assert (run.origin, run.principal) == ("webhook:tickets", "channel:webhook:7")
        await until(lambda: hook.receiver.taken)
        (taken,) = hook.receiver.taken.values()
        assert (taken["channel"], taken["conversation_id"], taken["text"]) == ("tickets", "t-1", "Hi there.")


async def test_an_ignored_message_replayed_after_its_sender_is_let_in_is_a_duplicate(tmp_path: Path) -> None:
    async with hooked(tmp_path, dm_policy=DirectMessages.DENY) as hook:
        assert (await hook.post(body()))[1]["accepted"] is False
        assert await hook.post(body()) == (200, {"duplicate": True})


async def test_a_replay_is_a_duplicate_and_runs_nothing(tmp_path: Path) -> None:
    async with hooked(tmp_path) as hook:
        assert (await hook.post(body()))[0] == 202
        assert await hook.post(body()) == (200, {"duplicate": True})
        assert await hook.post(body(text="something else")) == (200, {"duplicate": True})
        assert len(await hook.engine.runs.list(None, RunsQuery())) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": "v1=" + "0" * 64},
        {"signature": ""},
        {"timestamp": NOW_S - 301},
        {"timestamp": NOW_S + 301},
        {"timestamp": "x"},
        {"channel": "unknown"},
        {"channel": "tickets%2f"},
    ],
)
async def test_forged_stale_and_misdirected_requests_are_401_and_run_nothing(tmp_path: Path, changes: dict) -> None:
    async with hooked(tmp_path) as hook:
        status, answer = await hook.post(body(), **changes)
        assert (status, answer["error"]["code"]) == (401, "signature_invalid")
        assert await hook.engine.runs.list(None, RunsQuery()) == ()


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"raw": b"x" * (1024 * 1024 + 1)}, 413),
        ({"raw": gzip.compress(b"0" * 10_000_000)}, 400),
        ({"raw": b"[" * 100_000}, 400),
        ({"raw": b"not json"}, 400),
        ({"raw": b'{"text":1}'}, 400),
        ({"content_type": "application/xml"}, 400),
    ],
)
async def test_bodies_that_do_not_fit_are_refused_after_their_signature(
    tmp_path: Path, changes: dict, status: int
) -> None:
    async with hooked(tmp_path) as hook:
        assert (await hook.post(body(), **changes))[0] == status
        assert await hook.engine.runs.list(None, RunsQuery()) == ()


async def test_bodies_that_nobody_has_signed_are_held_within_one_limit(tmp_path: Path) -> None:
    """Small ones are always taken, so that a stranger who sends large ones slowly holds up no platform."""
    path = "/api/v1/channels/tickets/inbound"
    large = request_bytes("POST", path, transfer_encoding="chunked") + b"%x\r\n%b\r\n" % (250_000, b"x" * 250_000)
    async with hooked(tmp_path) as hook:
        scene = Scene(hook.engine, settings=HttpSettings(port=0))
        room = scene.gateway.services.unproven = BodyRoom(300_000)
        async with listening(scene) as server, connected(server.port) as first, connected(server.port) as second:
            await first.send(large)
            await until(lambda: room.left_bytes < 70_000)
            await second.send(large)
            assert b" 503 " in await second.until(b"\r\n")
            async with connected(server.port) as third:
                await third.send(request_bytes("POST", path, b"x" * 10_000))
                assert b" 401 " in await third.until(b"\r\n")
            await first.send(b"0\r\n\r\n")
            assert b" 401 " in await first.until(b"\r\n")
            assert room.left_bytes == 300_000


async def test_unknown_senders_are_taken_and_ignored_in_silence(tmp_path: Path) -> None:
    from palyra.core.channels.model import DirectMessages

    async with hooked(tmp_path, dm_policy=DirectMessages.DENY) as hook:
        assert await hook.post(body()) == (202, {"accepted": False, "run_id": None})
        assert await hook.post(body("e2", is_direct=False)) == (202, {"accepted": False, "run_id": None})
        assert await hook.engine.runs.list(None, RunsQuery()) == ()


async def test_a_receiver_that_is_busy_is_asked_again_when_it_says(tmp_path: Path) -> None:
    async with hooked(tmp_path) as hook:
        hook.receiver.statuses = [(429, {"retry-after": "0"}), (503, {}), (200, {})]
        await hook.post(body())
        await until(lambda: hook.receiver.taken)
        assert (hook.receiver.requests_count, hook.receiver.texts) == (3, ["Hi there."])


async def test_a_receiver_that_refuses_leaves_a_dead_letter(tmp_path: Path) -> None:
    async with hooked(tmp_path) as hook:
        hook.receiver.statuses = [(410, {})]
        await hook.post(body())
        await until(lambda: _dead(hook))
        headers = {"authorization": f"Bearer {ADMIN}"}
        async with hook.client.get(f"{hook.address}/api/v1/outbox?state=dead", headers=headers) as listed:
            (item,) = (await listed.json())["items"]
        assert item["error"] == "the receiver answered 410"
        replay = f"{hook.address}/api/v1/outbox/{item['id']}/replay"
        async with hook.client.post(replay, headers=headers, json={}) as answered:
            assert answered.status == 200
        await until(lambda: hook.receiver.taken)


async def _dead(hook: Hooked) -> bool:
    return [item.state for item in await hook.engine.outbox.list(None, (), 0, 10)] == ["dead"]


async def test_pairing_is_done_over_http_from_code_to_link(tmp_path: Path) -> None:
    from palyra.core.channels.model import DirectMessages

    headers = {"authorization": f"Bearer {ADMIN}"}
    async with hooked(tmp_path, dm_policy=DirectMessages.PAIRING) as hook:

        async def ask(method: str, path: str, sent: object = None) -> dict:
            async with hook.client.request(method, f"{hook.address}/api/v1{path}", headers=headers, json=sent) as got:
                assert got.status < 300, await got.text()
                return await got.json()

        wish = {"principal": "user:alice", "role": "user"}
        code = await ask("POST", "/pairing/codes", {"channel": "tickets", **wish})
        assert len(code["code"].replace("-", "")) == 8
        assert (await ask("GET", "/pairing/codes"))["items"][0]["code"] is None
        assert (await hook.post(body(text=code["code"])))[1]["accepted"] is True
        (card,) = (await ask("GET", "/approvals?status=pending"))["items"]
        assert (card["kind"], card["arguments"]["sender_id"]) == ("pairing", "7")
        assert card["preview"].endswith("asks to be linked as user:alice in the role user.")
        answer = {"decision": "allow", **wish}
        assert (await ask("POST", f"/approvals/{card['id']}", answer))["status"] == "allowed"
        (link,) = (await ask("GET", "/pairing/links"))["items"]
        assert (link["principal"], link["role"], link["made_by"]) == ("user:alice", "user", "user:owner")
        _, taken = await hook.post(body("e2"))
        assert (await hook.engine.runs.get(Principal("user:alice"), taken["run_id"])).principal == "user:alice"
        await ask("DELETE", f"/pairing/links/{link['id']}")
        assert (await hook.post(body("e3")))[1]["accepted"] is False


async def test_a_channel_is_shown_tested_paused_and_resumed(tmp_path: Path) -> None:
    async with hooked(tmp_path) as hook:
        scene = Scene(hook.engine)
        await until(lambda: hook.engine.channels.connections["tickets"].is_connected)
        (listed,) = (await scene.ask("GET", "/api/v1/channels")).json["items"]
        assert (listed["name"], listed["kind"], listed["state"]) == ("tickets", "webhook", "ok")
        assert (await scene.ask("GET", "/api/v1/channels/tickets")).json == listed
        assert (await scene.ask("GET", "/api/v1/channels/none")).status == 404
        tested = await scene.ask("POST", "/api/v1/channels/tickets/test", {})
        note = f"{hook.receiver.url} takes connections; no message was sent there"
        assert tested.json == {"ok": True, "known_as": None, "note": note}
        assert (await scene.ask("POST", "/api/v1/channels/tickets/pause", {})).json["state"] == "paused"
        assert (await hook.post(body()))[0] == 503
        resumed = await scene.ask("POST", "/api/v1/channels/tickets/resume", {})
        assert resumed.json["state"] in ("idle", "ok")
        assert (await hook.post(body()))[0] == 202


async def test_nobody_gives_a_role_above_their_own(tmp_path: Path) -> None:
    async with hooked(tmp_path) as hook:
        scene = Scene(hook.engine)
        token = scene.tokens.add("palyra_operator", Role.OPERATOR, principal="user:bob")
        refused = await scene.ask("POST", "/api/v1/pairing/codes", {"role": "admin"}, token=token)
        assert (refused.status, refused.code) == (403, "role_insufficient")


async def test_nobody_confirms_a_role_above_their_own(tmp_path: Path) -> None:
    """An operator who names nobody's role would give the one that an administrator had in mind for somebody else."""
    async with hooked(tmp_path, dm_policy=DirectMessages.PAIRING) as hook:
        scene = Scene(hook.engine)
        token = scene.tokens.add("palyra_operator", Role.OPERATOR, principal="user:bob")
        code = (await scene.ask("POST", "/api/v1/pairing/codes", {"principal": "user:ann", "role": "admin"})).json
        await hook.post(body(text=code["code"]))
        (card,) = (await scene.ask("GET", "/api/v1/approvals?status=pending", token=token)).json["items"]
        path, given = f"/api/v1/approvals/{card['id']}", {"decision": "allow", "principal": "user:bob"}
        refused = await scene.ask("POST", path, given, token=token)
        assert (refused.status, refused.code) == (403, "role_insufficient")
        assert (await scene.ask("POST", path, {**given, "role": "operator"}, token=token)).json["status"] == "allowed"


def account(sender_id: str) -> Principal:
    return Principal(f"channel:webhook:{sender_id}")
