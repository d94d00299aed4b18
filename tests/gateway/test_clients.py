"""The typed clients, over HTTP and over gRPC, against one daemon's gateway: the same records from both."""

import asyncio
import importlib.util
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from palyra.cli.client import Client
from palyra.cli.target import DaemonTarget
from palyra.client import GrpcGatewayClient, HttpGatewayClient, LiveUpdate, RequestFailed, RunWish, TapeEvent
from palyra.core.ids import RunId
from palyra.engine.api import approvals
from palyra.gateway.http.server import serve_http
from palyra.gateway.http.settings import HttpSettings
from tests.gateway.grpc_scene import open_grpc
from tests.gateway.prepared import Prepared
from tests.gateway.scene import ADMIN, WAIT_S, Scene
from tests.gateway.test_grpc_tls import authority
from tests.support.engines import OWNER

EXAMPLES = Path(__file__).parents[2] / "examples" / "clients"
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
GONE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@dataclass
class Both:
    http: HttpGatewayClient
    grpc: GrpcGatewayClient
    url: str
    address: str


@pytest.fixture
async def both(prepared: Prepared) -> AsyncIterator[Both]:
    scene = Scene(prepared.engine, prepared.ids, settings=HttpSettings(port=0))
    async with (
        open_grpc(scene) as wire,
        serve_http(scene.settings, scene.gateway) as server,
        HttpGatewayClient(server.address, ADMIN) as http,
        GrpcGatewayClient(wire.server.address, ADMIN) as grpc,
    ):
        yield Both(http, grpc, server.address, wire.server.address)


async def test_both_see_the_same_session_run_and_tape(both: Both) -> None:
    session = await both.http.resolve_session(key="shared")
    assert await both.grpc.resolve_session(key="shared") == session
    run = await both.grpc.start_run(RunWish(text="go", session_key="shared", idempotency_key="once"))
    again = await both.http.start_run(RunWish(text="go", session_key="shared", idempotency_key="once"))
    assert again.id == run.id
    updates = [update async for update in both.http.follow(run.id)]
    streamed = [update async for update in await both.grpc.follow(run.id)]
    assert [each for each in updates if isinstance(each, TapeEvent)] == streamed
    ended = await both.http.get_run(run.id)
    assert (ended.state, ended.answer) == ("done", "It is done.")
    tape = [event async for event in both.grpc.read_tape(session.id)]
    assert tape == [event async for event in both.http.read_tape(session.id)]
    assert tape[-1].is_terminal


async def test_objectives_go_and_come_back_over_both(both: Both) -> None:
    wish = RunWish(text="go", idempotency_key="aim", objectives=("tool:time.now succeeded",))
    run = await both.grpc.start_run(wish)
    again = await both.http.start_run(wish)
    assert again.id == run.id
    named = [[each.objective for each in record.objectives] for record in (run, again, await both.http.get_run(run.id))]
    assert named == [["tool:time.now succeeded"]] * 3


async def test_a_conversation_streams_text_and_is_cancelled_by_a_message(both: Both) -> None:
    conversation = await both.grpc.run(RunWish(text="slowly"))
    kinds: list[str] = []
    async for update in conversation:
        if isinstance(update, LiveUpdate) and "model.delta" not in kinds:
            await conversation.cancel()
        kinds.append(update.type)
    assert kinds[-1] == "run.cancelled"
    assert "model.delta" in kinds


async def test_leaving_a_conversation_leaves_the_run(both: Both, prepared: Prepared) -> None:
    conversation = await both.grpc.run(RunWish(text="slowly"))
    conversation.leave()
    record = await prepared.engine.runs.get(OWNER, RunId(conversation.run_id))
    assert record.state in ("accepted", "in_progress")
    assert (await both.http.cancel_run(conversation.run_id)).id == conversation.run_id


async def test_an_approval_is_seen_and_answered_alike(both: Both, prepared: Prepared) -> None:
    first, second = await prepared.approval(), await prepared.approval()
    over_http = {card.id: card for card in (await both.http.list_approvals()).items}
    over_grpc = {card.id: card for card in (await both.grpc.list_approvals()).items}
    assert over_http == over_grpc
    asked = over_grpc[first.id].calls
    assert [(call.call_id, call.arguments) for call in asked] == [(first.call_id, first.arguments)]
    assert (await both.http.answer_approval(first.id, "deny")).status == "denied"
    assert (await both.grpc.answer_approval(second.id, "deny")).status == "denied"
    for client in (both.http, both.grpc):
        with pytest.raises(RequestFailed) as refused:
            await client.answer_approval(first.id, "deny")
        assert (refused.value.code, refused.value.is_retryable) == ("approval_decided", False)


async def test_a_no_that_lasts_is_given_alike(both: Both, prepared: Prepared) -> None:
    first, second = await prepared.approval(), await prepared.approval()
    await both.http.answer_approval(first.id, "deny", "session")
    await both.grpc.answer_approval(second.id, "deny", "session")
    found = {each.approval_id: each.kind for each in await prepared.engine.approvals.grants(OWNER, "", 100)}
    assert (found[first.id], found[second.id]) == ("refusal", "refusal")


async def test_failures_have_the_daemons_code_over_both(both: Both) -> None:
    codes = []
    for call in (both.http.cancel_run(GONE), both.grpc.cancel_run(GONE), both.grpc.follow(GONE)):
        with pytest.raises(RequestFailed) as refused:
            await call
        codes.append(refused.value.code)
    assert codes == ["run_unknown"] * 3
    with pytest.raises(RequestFailed, match="word_unknown"):
        await both.grpc.list_approvals("nonsense")


async def test_nobody_there_is_a_failure_worth_a_retry() -> None:
    async with HttpGatewayClient("http://127.0.0.1:1", "t") as http, GrpcGatewayClient("127.0.0.1:1", "t") as grpc:
        for call in (http.list_sessions(), grpc.list_sessions()):
            with pytest.raises(RequestFailed) as refused:
                await call
            assert refused.value.is_retryable


async def test_a_lost_connection_is_opened_again_behind_the_last_event(
    both: Both, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await prepared.finished_run()
    once, opened = both.http._follow_once, []

    async def break_off(run_id: str, cursor: int | None) -> AsyncIterator[Any]:
        opened.append(cursor)
        async for update in once(run_id, cursor):
            yield update
            if len(opened) == 1:
                raise both.http._lost("cut")

    monkeypatch.setattr(both.http, "_follow_once", break_off)
    monkeypatch.setattr("palyra.client.http_client.RECONNECT_PAUSE_S", 0)
    seqs = [update.seq async for update in both.http.follow(run.id) if isinstance(update, TapeEvent)]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert opened == [None, seqs[0]]
    assert [update async for update in both.http.follow(run.id, seqs[-1])] == []


async def test_a_daemons_own_certificate_is_trusted_whoever_signed_it(prepared: Prepared, tmp_path: Path) -> None:
    key, cert = authority("an authority that nobody knows").issue("127.0.0.1")
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "cert").write_bytes(cert)
    files = [str(tmp_path / name) for name in ("cert", "key")]
    scene = Scene(prepared.engine, settings=HttpSettings(port=0, tls_cert=files[0], tls_key=files[1]))
    async with (
        serve_http(scene.settings, scene.gateway) as server,
        HttpGatewayClient(server.address, ADMIN, ca_file=files[0]) as client,
        HttpGatewayClient(server.address, ADMIN) as stranger,
        Client(DaemonTarget(server.address, ADMIN, files[0])) as command_line,
    ):
        listed = await command_line.items("/sessions", 100)
        assert [session.id for session in (await client.list_sessions()).items] == [each["id"] for each in listed]
        with pytest.raises(RequestFailed, match="unreachable"):
            await stranger.list_sessions()


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_examples_work(both: Both) -> None:
    async with asyncio.timeout(WAIT_S):
        assert await load("ask_over_http").ask(both.url, ADMIN, "go") == "done"
        asked: list[str] = []

        def decide(what: str) -> bool:
            asked.append(what)
            return True

        assert await load("approve_over_grpc").run(both.address, ADMIN, "send", decide) == "run.done"
    assert asked == ["mark.send {'text': 'mail'}"]


async def test_the_example_prints_an_answer_that_came_before_it_looked(
    both: Both, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load("ask_over_http")

    class Late(example.HttpGatewayClient):  # type: ignore[name-defined,misc]
        async def follow(self, *_: object) -> AsyncIterator[object]:
            while (await self.get_run(*_)).state != "done":
                await asyncio.sleep(0.01)
            none: tuple[object, ...] = ()
            for each in none:
                yield each

    monkeypatch.setattr(example, "HttpGatewayClient", Late)
    async with asyncio.timeout(WAIT_S):
        await example.ask(both.url, ADMIN, "go")
    assert len(capsys.readouterr().out.splitlines()[0]) > 0


async def test_the_examples_of_the_page_work_beside_a_question_of_another_run(
    both: Both, capsys: pytest.CaptureFixture[str]
) -> None:
    other = await both.http.start_run(RunWish(text="send", session_key="another"))
    async with asyncio.timeout(WAIT_S):
        async for update in both.http.follow(other.id):
            if update.type == "approval.requested":
                break
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            code = block.replace("http://127.0.0.1:7142", both.url).replace("127.0.0.1:7143", both.address)
            told: dict[str, Any] = {"token": ADMIN}
            exec(f"async def example():\n{indent(code.replace('Tidy up the notes', 'send'), '    ')}", told)
            await told["example"]()
    assert "It is done." in capsys.readouterr().out
    assert (await both.http.get_run(other.id)).state == "waiting"


async def test_both_read_all_of_a_question_page_by_page(
    both: Both, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = await prepared.approval()
    whole = await both.http.read_approval(card.id)
    monkeypatch.setattr(approvals, "FULL_PAGE_CHARS", 10)
    assert len(whole) > 20
    assert [await client.read_approval(card.id) for client in (both.http, both.grpc)] == [whole, whole]
