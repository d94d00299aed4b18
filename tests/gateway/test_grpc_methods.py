"""The methods of gRPC that are answered once: what they do, who may call them, and how they refuse."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.errors import Conflict, Corrupt, Invalid, NotFound, PalyraError, Unauthorized, Unavailable
from palyra.core.ids import Principal
from palyra.engine.api import approvals
from palyra.gateway.access.caller import NOBODY
from palyra.gateway.grpc.messages import approval_message, read_run
from palyra.gateway.grpc.methods import METHODS
from palyra.gateway.grpc.server import CHECK, SERVICE, DaemonHealth
from palyra.gateway.grpc.settings import HANDSHAKE_TIMEOUT_MS, MESSAGE_BYTES_MAX, GrpcSettings
from palyra.gateway.grpc.status_codes import status_of
from palyra.gateway.http.settings import HttpSettings
from palyra.gateway.routes.table import ROUTES
from palyra.gateway.v1 import approvals_pb2, events_pb2, gateway_pb2, runs_pb2, sessions_pb2
from palyra.ports.tokens import Role
from tests.gateway.grpc_scene import ANSWERS, GrpcScene, bearer, open_grpc, refused
from tests.gateway.prepared import Prepared
from tests.gateway.scene import ADMIN, WAIT_S, Failing, Scene
from tests.support.asking import finished
from tests.support.engines import OWNER
from tests.support.examples import examples

BOB = Principal("user:bob")
USER = "palyra_of-bob-as-user"
GONE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
Status = grpc.StatusCode
READ_MAX_S = 0.1  # Of CPU time. The aim is a hundredth of that.


@pytest.fixture
async def wire(scene: Scene) -> AsyncIterator[GrpcScene]:
    scene.tokens.add(USER, Role.USER, principal=BOB, id="bob")
    async with open_grpc(scene) as opened:
        yield opened


def test_every_method_of_the_proto_is_served_and_has_the_action_of_a_route() -> None:
    declared = {method.name for method in gateway_pb2.DESCRIPTOR.services_by_name["Gateway"].methods}
    assert {method.name for method in METHODS} | {"RunStream"} == declared
    assert {method.action for method in METHODS} <= {route.action for route in ROUTES}


async def test_a_session_is_found_by_its_key_and_listed(wire: GrpcScene) -> None:
    asked = sessions_pb2.ResolveSessionRequest(key="grpc key", label="first")
    made = (await wire.ask("ResolveSession", asked)).session
    again = (await wire.ask("ResolveSession", asked)).session
    assert (made.id, made.key, made.owner) == (again.id, "grpc key", OWNER)
    pages = await wire.ask("ListSessions", sessions_pb2.ListSessionsRequest(limit=1))
    assert len(pages.sessions) == 1
    assert pages.next_after == pages.sessions[0].id
    rest = await wire.ask("ListSessions", sessions_pb2.ListSessionsRequest(after=pages.next_after))
    assert made.id in {session.id for session in rest.sessions}


async def test_a_routed_message_is_a_run_and_its_key_makes_it_one_run(wire: GrpcScene, prepared: Prepared) -> None:
    asked = runs_pb2.RouteMessageRequest(start=runs_pb2.RunStart(text="go", idempotency_key="one"))
    run = (await wire.ask("RouteMessage", asked)).run
    assert (await wire.ask("RouteMessage", asked)).run.id == run.id
    assert run.origin == "grpc"
    record = await prepared.engine.runs.get(OWNER, run.id)
    await finished(prepared.engine, record)
    tape = await wire.ask("ReadTape", events_pb2.ReadTapeRequest(session_id=run.session_id, limit=2))
    assert [event.seq for event in tape.events] == [1, 2]
    assert tape.next_after == 2
    rest = await wire.ask("ReadTape", events_pb2.ReadTapeRequest(session_id=run.session_id, after=2))
    assert rest.events[-1].type == "run.done"
    assert not rest.HasField("next_after")


async def test_an_approval_is_listed_and_answered_once(wire: GrpcScene, prepared: Prepared) -> None:
    card = await prepared.approval()
    pending = approvals_pb2.ListApprovalsRequest(status=approvals_pb2.APPROVAL_STATUS_PENDING)
    assert card.id in {item.id for item in (await wire.ask("ListApprovals", pending)).approvals}
    denial = approvals_pb2.ResolveApprovalRequest(approval_id=card.id, decision=approvals_pb2.DECISION_DENY)
    done = (await wire.ask("ResolveApproval", denial)).approval
    assert (done.status, done.decided_by) == ("denied", OWNER)
    second = await wire.refusal("ResolveApproval", denial)
    assert (second.status, second.code, second.retryable) == (Status.FAILED_PRECONDITION, "approval_decided", "false")


async def test_every_call_of_a_question_is_sent(wire: GrpcScene, prepared: Prepared) -> None:
    """A yes allows them all, so whoever answers must be able to see them all (L7)."""
    card = await prepared.approval()
    asked = replace(card, count=2, calls=tuple(replace(card.calls[0], call_id=each) for each in ("c1", "c2")))
    sent = approval_message(asked)
    assert [call.call_id for call in sent.calls] == ["c1", "c2"]
    assert [call.arguments_json for call in sent.calls] == [sent.arguments_json] * 2


async def test_all_of_a_question_can_be_read_page_by_page(
    wire: GrpcScene, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = await prepared.approval()
    assert [approval_message(replace(card, is_cut=each)).is_cut for each in (False, True)] == [False, True]
    monkeypatch.setattr(approvals, "FULL_PAGE_CHARS", 10)
    first = await wire.ask("ReadApproval", approvals_pb2.ReadApprovalRequest(approval_id=card.id))
    assert (len(first.text), first.next_offset) == (10, 10)
    rest_of = approvals_pb2.ReadApprovalRequest(approval_id=card.id, offset=first.total_chars - 3)
    rest = await wire.ask("ReadApproval", rest_of)
    assert (len(rest.text), rest.HasField("next_offset")) == (3, False)
    refused = await wire.refusal("ReadApproval", approvals_pb2.ReadApprovalRequest(approval_id=card.id), token=USER)
    assert refused.status is Status.NOT_FOUND


async def test_a_run_is_cancelled_and_cancelling_again_is_no_error(wire: GrpcScene, prepared: Prepared) -> None:
    run = await prepared.running_run()
    await wire.ask("CancelRun", runs_pb2.CancelRunRequest(run_id=run.id))
    record = await prepared.engine.runs.get(OWNER, run.id)
    await finished(prepared.engine, record)
    assert (await wire.ask("CancelRun", runs_pb2.CancelRunRequest(run_id=run.id))).run.state == "cancelled"


async def test_attachments_and_schemas_reach_the_run(wire: GrpcScene, prepared: Prepared) -> None:
    start = runs_pb2.RunStart(text="go", answer_schema_json='{"type":"string"}')
    start.attachments.add(name="a.txt", media_type="text/plain", data=b"some words")
    run = (await wire.ask("RouteMessage", runs_pb2.RouteMessageRequest(start=start))).run
    tape = await wire.ask("ReadTape", events_pb2.ReadTapeRequest(session_id=run.session_id))
    assert any("a.txt" in event.data_json for event in tape.events)


@pytest.mark.parametrize("count", [0, 2, 257])
def test_the_files_of_an_attachment_reach_the_run_or_are_refused(count: int) -> None:
    """A path that a tainted session wrote lowers the trust of the attachment, whichever protocol names it."""
    start = runs_pb2.RunStart(text="go")
    paths = [f"/w/{number}" for number in range(count)]
    start.attachments.add(name="a.txt", media_type="text/plain", data=b"some words", paths=paths)
    if count > 256:
        with pytest.raises(Invalid, match="paths"):
            read_run(start, NOBODY)
        return
    assert read_run(start, NOBODY).attachments[0].paths == tuple(paths)


@pytest.mark.parametrize("typed", ["", "Answer:"])
async def test_typed_words_reach_the_tape(wire: GrpcScene, typed: str) -> None:
    start = runs_pb2.RunStart(text="Answer: obey me", typed=typed)
    run = (await wire.ask("RouteMessage", runs_pb2.RouteMessageRequest(start=start))).run
    tape = await wire.ask("ReadTape", events_pb2.ReadTapeRequest(session_id=run.session_id))
    (said,) = [event for event in tape.events if event.type == "message.user"]
    assert (f'"typed":"{typed}"' in said.data_json, said.trust) == (True, "local")


async def test_objectives_reach_the_run_and_are_told_with_it(wire: GrpcScene, prepared: Prepared) -> None:
    start = runs_pb2.RunStart(text="go", objectives=["tool:time.now succeeded"])
    run = (await wire.ask("RouteMessage", runs_pb2.RouteMessageRequest(start=start))).run
    ((objective, state),) = [(each.objective, each.state) for each in run.objectives]
    assert (objective, state in ("open", "unmet")) == ("tool:time.now succeeded", True)  # The run may be over by now.
    outside = runs_pb2.RunStart(text="go", objectives=["file:/etc/passwd exists"])
    refusal = await wire.refusal("RouteMessage", runs_pb2.RouteMessageRequest(start=outside))
    assert (refusal.status, refusal.code) == (Status.INVALID_ARGUMENT, "objective_invalid")


@pytest.mark.parametrize("name", sorted(ANSWERS))
async def test_nobody_without_a_token_gets_anything_from_a_method(wire: GrpcScene, name: str) -> None:
    """Nor is their message parsed: bytes that are no message are answered alike."""
    for token, code in ((None, "token_missing"), ("palyra_wrong", "token_invalid")):
        found = await wire.refusal(name, b"\xff\xff\xff", token)
        assert (found.status, found.code) == (Status.UNAUTHENTICATED, code)


async def test_reflection_and_unknown_methods_need_a_token_and_the_health_check_does_not(wire: GrpcScene) -> None:
    async def code_of(method: str, token: str | None, body: bytes = b"") -> Status:
        opened: Any = wire.channel.stream_stream(method)
        call = opened(metadata=bearer(token), timeout=WAIT_S)
        try:
            await call.write(body)
            await call.done_writing()
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
        return Status.OK

    assert await code_of(CHECK, None) is Status.OK
    listing = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    watching = "/grpc.health.v1.Health/Watch"
    assert await code_of(watching, None) is Status.UNAUTHENTICATED
    assert await code_of(REFLECT, None, listing) is Status.UNAUTHENTICATED
    assert await code_of(REFLECT, ADMIN, listing) is Status.OK
    assert await code_of(f"/{SERVICE}/Nothing", None) is Status.UNAUTHENTICATED
    assert await code_of(f"/{SERVICE}/Nothing", ADMIN) is Status.UNIMPLEMENTED


@pytest.mark.parametrize("method", ["/grpc.health.v1.Health/Watch", REFLECT, f"/{SERVICE}/Nothing"])
async def test_a_stranger_is_refused_before_any_message_comes(wire: GrpcScene, method: str) -> None:
    opened: Any = wire.channel.stream_stream(method)
    call = opened(timeout=WAIT_S)
    assert await call.code() is Status.UNAUTHENTICATED


async def test_a_watcher_with_a_token_hears_of_the_daemons_health(wire: GrpcScene) -> None:
    watch: Any = wire.channel.unary_stream("/grpc.health.v1.Health/Watch")
    call = watch(health_pb2.HealthCheckRequest(service="other").SerializeToString(), metadata=bearer(ADMIN))
    heard = health_pb2.HealthCheckResponse.FromString(await call.read())
    assert heard.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    call.cancel()


async def test_a_watcher_counts_as_a_stream_of_its_token_and_ends_with_it(wire: GrpcScene) -> None:
    """Otherwise one reader could take all the calls that there may be at once, and keep them."""
    slots = wire.gateway.services.slots
    watch: Any = wire.channel.unary_stream("/grpc.health.v1.Health/Watch")
    call = watch(b"", metadata=bearer(USER), timeout=WAIT_S)
    await call.read()
    assert slots.taken_count == 1
    slots.end_of("bob")
    assert await call.code() is Status.OK
    assert slots.taken_count == 0


async def test_a_watcher_that_is_ended_while_it_is_written_to_ends_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC cannot end a call while it writes; the client would wait until its deadline."""

    async def watch(health: DaemonHealth, request: object, context: Any) -> None:
        writing = asyncio.ensure_future(context.write(health_pb2.HealthCheckResponse()))
        await asyncio.sleep(0)
        opened.gateway.services.slots.end_of("bob")
        await writing

    monkeypatch.setattr(DaemonHealth, "Watch", watch)
    scene.tokens.add(USER, Role.USER, principal=BOB, id="bob")
    async with open_grpc(scene) as opened:
        method: Any = opened.channel.unary_stream("/grpc.health.v1.Health/Watch")
        call = method(b"", metadata=bearer(USER), timeout=WAIT_S)
        await call.read()
        assert await call.code() is Status.OK
        assert opened.gateway.services.slots.taken_count == 0


async def test_health_checks_without_a_message_are_few_and_end_soon(
    wire: GrpcScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no token, and gRPC holds up to 1 MiB of each while its message comes."""
    monkeypatch.setattr("palyra.gateway.grpc.settings.CHECKS_MAX", 2)
    check: Any = wire.channel.stream_stream(CHECK)
    codes: list[str] = []
    for limit_s in (0.2, 2.0, 20.0):  # On a slow machine two may be over before the third has come.
        monkeypatch.setattr("palyra.gateway.grpc.settings.CHECK_MESSAGE_S", limit_s)
        calls = [check(timeout=WAIT_S) for _ in range(3)]
        codes = sorted([refused(error).code for error in await asyncio.gather(*(_refusal(call) for call in calls))])
        if "checks_busy" in codes:
            break
    assert codes == ["checks_busy", "timeout", "timeout"]
    monkeypatch.setattr("palyra.gateway.grpc.settings.CHECK_MESSAGE_S", WAIT_S)
    whole: Any = wire.channel.unary_unary(CHECK)
    assert await whole(b"", timeout=WAIT_S)


async def _refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.read()
    return error.value


async def test_a_client_that_knows_nothing_calls_through_reflection_alone(wire: GrpcScene) -> None:
    assert OWNER in await asyncio.to_thread(_owners_by_reflection, wire.server.address)


class _Bearing(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds the token to every call, as command line clients do."""

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(_with_token(client_call_details), request)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(_with_token(client_call_details), request_iterator)


def _with_token(details: Any) -> Any:
    names = ("method", "timeout", "credentials", "wait_for_ready", "compression")
    return SimpleNamespace(**{name: getattr(details, name, None) for name in names}, metadata=bearer(ADMIN))


def _owners_by_reflection(address: str) -> set[str]:
    """Makes the messages from what the server says of itself: no generated code is used."""
    with grpc.insecure_channel(address) as plain:
        channel = grpc.intercept_channel(plain, _Bearing())
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName(SERVICE).methods_by_name["ListSessions"]
        question: Any = GetMessageClass(method.input_type)
        answer: Any = GetMessageClass(method.output_type)
        call = channel.unary_unary(
            f"/{SERVICE}/{method.name}",
            request_serializer=question.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return {session.owner for session in call(question(limit=400), timeout=WAIT_S).sessions}


async def test_health_says_when_the_daemon_drains(wire: GrpcScene, prepared: Prepared) -> None:
    method = wire.channel.unary_unary(
        CHECK,
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    kinds = health_pb2.HealthCheckResponse
    assert (await method(health_pb2.HealthCheckRequest(service=SERVICE), timeout=WAIT_S)).status == kinds.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await method(health_pb2.HealthCheckRequest(service="other"), timeout=WAIT_S)
    assert refused(unknown.value).status is Status.NOT_FOUND
    prepared.engine.status.is_draining = True
    try:
        assert (await method(health_pb2.HealthCheckRequest(), timeout=WAIT_S)).status == kinds.NOT_SERVING
        found = await wire.refusal("RouteMessage", runs_pb2.RouteMessageRequest(start=runs_pb2.RunStart(text="go")))
        assert (found.status, found.code, found.retryable) == (Status.UNAVAILABLE, "draining", "true")
    finally:
        prepared.engine.status.is_draining = False


async def test_anothers_thing_and_no_thing_are_answered_alike(wire: GrpcScene, prepared: Prepared) -> None:
    session = await prepared.session()
    there = await wire.refusal("ReadTape", events_pb2.ReadTapeRequest(session_id=session), USER)
    gone = await wire.refusal("ReadTape", events_pb2.ReadTapeRequest(session_id=GONE), USER)
    assert there.message.replace(session, "?") == gone.message.replace(GONE, "?")
    assert (there.status, there.code) == (gone.status, gone.code) == (Status.NOT_FOUND, "session_unknown")
    run = await prepared.waiting_run()
    found = await wire.refusal("CancelRun", runs_pb2.CancelRunRequest(run_id=run.id), USER)
    assert (found.status, found.code) == (Status.NOT_FOUND, "run_unknown")


@pytest.mark.parametrize(
    ("role", "name", "status"),
    [
        (Role.VIEWER, "RouteMessage", Status.PERMISSION_DENIED),
        (Role.VIEWER, "ResolveSession", Status.PERMISSION_DENIED),
        (Role.VIEWER, "ListSessions", None),
        (Role.USER, "ResolveSession", None),
    ],
)
async def test_roles_are_those_of_http(wire: GrpcScene, role: Role, name: str, status: Status | None) -> None:
    wire.scene.tokens.add("palyra_in-a-role", role, principal=BOB, id="in-a-role")
    try:
        await wire.ask(name, b"", "palyra_in-a-role")
    except grpc.aio.AioRpcError as error:
        assert refused(error).status is status
    else:
        assert status is None


async def test_everyones_sessions_need_an_operator(wire: GrpcScene, prepared: Prepared) -> None:
    asked = sessions_pb2.ListSessionsRequest(everyone=True, limit=400)
    assert (await wire.refusal("ListSessions", asked, USER)).code == "role_insufficient"
    owners = {session.owner for session in (await wire.ask("ListSessions", asked)).sessions}
    assert OWNER in owners


async def test_the_rate_of_a_token_is_limited(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, prepared.ids, settings=HttpSettings(requests_per_minute=2))
    scene.tokens.add(USER, Role.USER, principal=BOB, id="bob")
    async with open_grpc(scene) as wire:
        for _ in range(2):
            await wire.ask("ListSessions", b"", USER)
        found = await wire.refusal("ListSessions", b"", USER)
        assert (found.status, found.code, found.retryable) == (Status.RESOURCE_EXHAUSTED, "rate_limited", "true")
        await wire.ask("ListSessions", b"")  # An administrator on this machine has no limit.


async def test_too_many_refused_tokens_are_told_so(wire: GrpcScene) -> None:
    codes = [(await wire.refusal("ListSessions", b"", "palyra_wrong")).code for _ in range(40)]
    assert codes[0] == "token_invalid"
    assert codes[-1] == "too_many_failures"


@pytest.mark.parametrize(
    ("name", "message", "code"),
    [
        ("RouteMessage", runs_pb2.RouteMessageRequest(), "message_invalid"),
        ("RouteMessage", runs_pb2.RouteMessageRequest(start=runs_pb2.RunStart(text=" ")), "text_empty"),
        (
            "RouteMessage",
            runs_pb2.RouteMessageRequest(start=runs_pb2.RunStart(text="go", answer_schema_json="{")),
            "answer_schema_invalid",
        ),
        (
            "RouteMessage",
            runs_pb2.RouteMessageRequest(start=runs_pb2.RunStart(text="go", session_id=GONE, session_key="k")),
            "session_ambiguous",
        ),
        ("ResolveSession", sessions_pb2.ResolveSessionRequest(session_id="no ulid"), "message_invalid"),
        ("ReadTape", b"\xff\xff", "message_malformed"),
        ("ListSessions", sessions_pb2.ListSessionsRequest(limit=2**32 - 1), "message_invalid"),
        ("ListApprovals", b"\x08\x63", "message_invalid"),
    ],
    ids=["empty", "blank", "schema", "ambiguous", "ulid", "malformed", "limit", "enum"],
)
async def test_a_wrong_message_is_refused_by_its_code(wire: GrpcScene, name: str, message: object, code: str) -> None:
    found = await wire.refusal(name, message)  # type: ignore[arg-type]
    assert (found.status, found.code) == (Status.INVALID_ARGUMENT, code)


def test_attachments_beyond_those_of_a_run_are_not_even_looked_at() -> None:
    """A message has room for half a million empty ones; reading them all held the event loop for a quarter second."""
    start = runs_pb2.RunStart(text="go", attachments=[runs_pb2.Attachment()] * 400_000)
    begun_s = time.thread_time()
    with pytest.raises(Invalid, match="attachments"):
        read_run(start, NOBODY)
    assert time.thread_time() - begun_s < READ_MAX_S


async def test_a_message_that_is_too_large_is_refused_before_it_is_held(wire: GrpcScene) -> None:
    found = await wire.refusal("ListSessions", b"x" * (MESSAGE_BYTES_MAX + 1))
    assert found.status is Status.RESOURCE_EXHAUSTED


async def test_an_unexpected_failure_tells_an_id_and_no_detail(
    wire: GrpcScene, caplog: pytest.LogCaptureFixture
) -> None:
    wire.scene.engine.sessions = Failing(RuntimeError("secret detail"))
    found = await wire.refusal("ListSessions", b"")
    assert (found.status, found.code) == (Status.INTERNAL, "internal")
    assert "secret" not in found.message
    assert found.message.split()[2].rstrip(";") in caplog.text


async def test_a_deadline_ends_a_call_that_hangs_and_frees_what_it_held(wire: GrpcScene) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    wire.scene.engine.sessions.list = hang
    for deadline_s in (0.2, 2.0, 20.0):  # On a slow machine the first may be over before the call has come.
        found = await wire.refusal("ListSessions", b"", timeout=deadline_s)
        assert found.status is Status.DEADLINE_EXCEEDED
        if begun.is_set():
            break
    async with asyncio.timeout(WAIT_S):
        await ended.wait()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("a", ""), Status.INVALID_ARGUMENT),
        (Unauthorized("a", ""), Status.PERMISSION_DENIED),
        (Unauthorized("token_missing", ""), Status.UNAUTHENTICATED),
        (NotFound("a", ""), Status.NOT_FOUND),
        (Conflict("a", ""), Status.ABORTED),
        (Conflict("a", "", is_retryable=False), Status.FAILED_PRECONDITION),
        (Unavailable("a", ""), Status.UNAVAILABLE),
        (Unavailable("too_many_streams", ""), Status.RESOURCE_EXHAUSTED),
        (Corrupt("a", ""), Status.DATA_LOSS),
        (PalyraError("a", ""), Status.INTERNAL),
    ],
)
def test_every_kind_of_error_has_its_status(error: PalyraError, status: Status) -> None:
    assert status_of(error) is status


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(ANSWERS)), body=st.binary(max_size=200))
async def test_no_bytes_make_the_daemon_fail(wire: GrpcScene, name: str, body: bytes) -> None:
    wire.scene.clock.at_s += 1
    try:
        await wire.ask(name, body)
    except grpc.aio.AioRpcError as error:
        found = refused(error)
        assert found.status not in (Status.INTERNAL, Status.UNKNOWN), found
        assert found.code


async def test_connections_beyond_the_limit_are_closed_and_the_others_work(scene: Scene) -> None:
    async with open_grpc(scene, GrpcSettings(port=0, connections_max=4)) as wire:
        await wire.ask("ListSessions", b"")
        opened = [await asyncio.open_connection("127.0.0.1", wire.server.port) for _ in range(12)]
        ends = [asyncio.ensure_future(_read_to_end(reader)) for reader, _ in opened]
        async with asyncio.timeout(WAIT_S):
            while sum(end.done() for end in ends) < 8:
                await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)
        await wire.ask("ListSessions", b"")
        for end in ends:
            end.cancel()
        for _, writer in opened:
            writer.close()
    gc.collect()


async def test_a_connection_without_a_call_is_closed_and_clients_open_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever opens all that there may be, and calls nothing, locks everyone out for good."""
    monkeypatch.setattr("palyra.gateway.grpc.settings.IDLE_CONNECTION_MS", 200)
    async with open_grpc(scene) as wire:
        await wire.ask("ListSessions", b"")
        reader, writer = await asyncio.open_connection("127.0.0.1", wire.server.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        async with asyncio.timeout(WAIT_S):
            await _read_to_end(reader)
        writer.close()
        await wire.ask("ListSessions", b"")


@pytest.mark.parametrize("name", ["RunStream", "ListSessions"])
async def test_a_stranger_who_sends_no_message_is_refused_at_once(wire: GrpcScene, name: str) -> None:
    opened: Any = wire.channel.stream_stream(f"/{SERVICE}/{name}")
    call = opened(timeout=WAIT_S)
    assert await call.code() is Status.UNAUTHENTICATED


async def test_a_message_that_does_not_come_is_awaited_in_bounded_time(
    wire: GrpcScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as quick:
        quick.setattr("palyra.gateway.grpc.call_edge.REQUEST_TIMEOUT_S", 0.1)
        quick.setattr("palyra.gateway.grpc.run_stream.FIRST_MESSAGE_S", 0.1)
        for method, token in ((f"/{SERVICE}/ListSessions", ADMIN), (f"/{SERVICE}/RunStream", ADMIN), (CHECK, None)):
            opened: Any = wire.channel.stream_stream(method)
            call = opened(metadata=bearer(token), timeout=WAIT_S)
            assert await call.code() is Status.DEADLINE_EXCEEDED
    assert wire.gateway.stream_count == 0
    await wire.ask("ListSessions", b"")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes(range(256)) * 40,
        b"\x16\x03\x01\xff\xff",
    ],
    ids=["nothing", "http1", "half_a_preface", "noise", "tls"],
)
async def test_strangers_who_speak_no_grpc_hold_nobody_up(wire: GrpcScene, said: bytes) -> None:
    """Some close their half, some stay silent; others are answered meanwhile."""
    opened = [await asyncio.open_connection("127.0.0.1", wire.server.port) for _ in range(40)]
    for number, (_, writer) in enumerate(opened):
        writer.write(said)
        if number % 2 and writer.can_write_eof():
            writer.write_eof()
    async with asyncio.timeout(WAIT_S):
        for _ in range(5):
            await wire.ask("ListSessions", b"")
    for _, writer in opened:
        writer.close()


CLIENT_RETRY_MS = 800  # The least that gRPC's libraries wait before they connect again.


async def test_silent_connections_in_every_place_hold_others_up_for_a_moment_only(scene: Scene) -> None:
    places = 64
    async with open_grpc(scene, GrpcSettings(port=0, connections_max=places)) as wire:
        opened = [await asyncio.open_connection("127.0.0.1", wire.server.port) for _ in range(places)]
        check: Any = wire.channel.unary_unary("/grpc.health.v1.Health/Check")
        # gRPC's own limit, which would hold without ours, is two minutes.
        await check(b"", timeout=WAIT_S, wait_for_ready=True)
        for _, writer in opened:
            writer.close()
    assert HANDSHAKE_TIMEOUT_MS < CLIENT_RETRY_MS


async def _read_to_end(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(65_536):
            pass
    except ConnectionError:
        return


def messages_of(kind: type[Message], depth: int = 3) -> st.SearchStrategy[Message]:
    """Messages of a type with any fields, set or not."""

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        message = kind()
        for descriptor in kind.DESCRIPTOR.fields:
            if draw(st.booleans()):
                fill(message, descriptor, draw, depth)
        return message

    return build()


def fill(message: Message, descriptor: Any, draw: st.DrawFn, depth: int) -> None:
    if descriptor.message_type is not None:
        if depth:
            inner = draw(messages_of(GetMessageClass(descriptor.message_type), depth - 1))
            target: Any = getattr(message, descriptor.name)
            if descriptor.is_repeated:
                target.append(inner)
            else:
                target.CopyFrom(inner)
        return
    value = draw(values_of(descriptor))
    if descriptor.is_repeated:
        getattr(message, descriptor.name).append(value)
    else:
        setattr(message, descriptor.name, value)


def values_of(descriptor: Any) -> st.SearchStrategy[Any]:
    match descriptor.cpp_type:
        case descriptor.CPPTYPE_STRING if descriptor.type == descriptor.TYPE_BYTES:
            return st.binary(max_size=20)
        case descriptor.CPPTYPE_STRING:
            return st.sampled_from(["", GONE, "{}", "[]", "null"]) | st.text(max_size=20)
        case descriptor.CPPTYPE_BOOL:
            return st.booleans()
        case descriptor.CPPTYPE_ENUM:
            return st.sampled_from([value.number for value in descriptor.enum_type.values])
        case descriptor.CPPTYPE_DOUBLE:
            return st.floats()
        case descriptor.CPPTYPE_UINT64:
            return st.integers(0, 2**64 - 1)
        case descriptor.CPPTYPE_UINT32:
            return st.integers(0, 2**32 - 1)
        case _:
            return st.integers(-(2**31), 2**31 - 1)


CALLS = st.sampled_from(METHODS).flatmap(
    lambda method: messages_of(method.request).map(lambda message: (method.name, message))
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=CALLS)
async def test_no_message_makes_the_daemon_fail(wire: GrpcScene, call: tuple[str, Message]) -> None:
    name, message = call
    try:
        await wire.ask(name, message)
    except grpc.aio.AioRpcError as error:
        found = refused(error)
        assert found.status not in (Status.INTERNAL, Status.UNKNOWN), (message, found)
        assert found.code
