"""RunStream: a run followed, answered, steered and cancelled over one stream; and what a stream never does to a run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palyra.core.ids import Principal, RunId
from palyra.engine.hub import BUFFERED_FRAMES_MAX, LiveFrame
from palyra.gateway.grpc import run_stream
from palyra.gateway.http.settings import HttpSettings
from palyra.gateway.v1 import approvals_pb2, runs_pb2
from palyra.ports.tokens import Role
from tests.gateway.grpc_scene import GrpcScene, bearer, open_grpc, refused
from tests.gateway.prepared import Prepared
from tests.gateway.scene import NOW_MS, WAIT_S, Scene
from tests.support.asking import finished
from tests.support.engines import OWNER
from tests.support.examples import examples
from tests.support.waiting import until

BOB = Principal("user:bob")
USER = "palyra_of-bob-as-user"
ALLOW = approvals_pb2.DECISION_ALLOW
Status = grpc.StatusCode
Said = runs_pb2.RunStreamRequest


@pytest.fixture
async def wire(scene: Scene) -> AsyncIterator[GrpcScene]:
    scene.tokens.add(USER, Role.USER, principal=BOB, id="bob")
    async with open_grpc(scene) as opened:
        yield opened


def start(text: str, **changes: object) -> Said:
    return Said(start=runs_pb2.RunStart(text=text, **changes))  # type: ignore[arg-type]


def follow(run_id: str, after_seq: int | None = None) -> Said:
    return Said(follow=runs_pb2.RunFollow(run_id=run_id, after_seq=after_seq))


def cancel(request_id: int = 0) -> Said:
    return Said(request_id=request_id, cancel=runs_pb2.RunCancel())


async def begun(wire: GrpcScene, first: Said, token: str | None = None, **options: Any) -> tuple[Any, str]:
    """A stream after its first message, and the id of its run."""
    call = wire.stream(token, **options) if token is not None else wire.stream(**options)
    await call.write(first)
    return call, (await call.read()).started.run_id


async def speaking(wire: GrpcScene, key: str, deadlines_s: tuple[float, ...]) -> tuple[Any, str]:
    """A stream whose run speaks, under the first deadline that leaves the time for that."""
    for deadline_s in deadlines_s:
        with contextlib.suppress(grpc.aio.AioRpcError):
            call, run_id = await begun(wire, start("slowly", idempotency_key=key), timeout=deadline_s)
            await first_of(call, is_live)
            return call, run_id
    raise AssertionError("the run never spoke")


async def rest(call: Any) -> list[runs_pb2.RunStreamResponse]:
    messages = []
    async with asyncio.timeout(6 * WAIT_S):
        while (message := await call.read()) is not grpc.aio.EOF:
            messages.append(message)
    code = await call.code()
    if code is not Status.OK:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), await call.trailing_metadata(), await call.details())
    return messages


def last_event(messages: list[runs_pb2.RunStreamResponse]) -> str:
    """The word that a message was accepted may come after the run's last event."""
    return [message.event.type for message in messages if message.HasField("event")][-1]


async def first_of(call: Any, fits: Callable[[runs_pb2.RunStreamResponse], object]) -> runs_pb2.RunStreamResponse:
    async with asyncio.timeout(WAIT_S):
        while not fits(message := await call.read()):
            assert message is not grpc.aio.EOF
    return message


async def ending(call: Any) -> tuple[Status, str]:
    try:
        await rest(call)
    except grpc.aio.AioRpcError as error:
        return refused(error).status, refused(error).code
    return Status.OK, ""


def is_event(kind: str) -> Callable[[runs_pb2.RunStreamResponse], bool]:
    return lambda message: message.event.type == kind


def is_live(message: runs_pb2.RunStreamResponse) -> bool:
    return message.WhichOneof("message") == "frame"


async def test_a_run_comes_whole_and_in_order_and_the_stream_ends_with_it(wire: GrpcScene) -> None:
    call, run_id = await begun(wire, start("go"))
    await call.done_writing()  # A client that has nothing more to say still hears everything.
    messages = await rest(call)
    events = [message.event for message in messages if message.WhichOneof("message") == "event"]
    assert [event.seq for event in events] == list(range(events[0].seq, events[0].seq + len(events)))
    assert (events[0].type, events[-1].type) == ("run.accepted", "run.done")
    assert {event.run_id for event in events} == {run_id}
    assert "".join(message.frame.model.text for message in messages if is_live(message)) == "It is done."
    assert await call.code() is Status.OK


async def test_an_approval_is_answered_within_the_stream(wire: GrpcScene, prepared: Prepared) -> None:
    call, run_id = await begun(wire, start("send"))
    await call.write(Said(request_id=7, answer=await yes_to(call, run_id, prepared)))
    messages = await rest(call)
    assert [message.WhichOneof("message") for message in messages if message.request_id == 7] == ["accepted"]
    types = [message.event.type for message in messages if message.WhichOneof("message") == "event"]
    assert types.index("tool.started") < types.index("tool.finished")
    assert types[-1] == "run.done"


async def test_a_second_answer_to_an_approval_is_refused(wire: GrpcScene, prepared: Prepared) -> None:
    call, run_id = await begun(wire, start("send and tell"))
    answer = await yes_to(call, run_id, prepared)
    for request_id in (7, 8):
        await call.write(Said(request_id=request_id, answer=answer))
    told = await first_of(call, lambda message: message.request_id == 8)
    assert (told.refused.code, told.refused.retryable) == ("approval_decided", False)
    await call.write(cancel())
    await rest(call)


async def yes_to(call: Any, run_id: str, prepared: Prepared) -> approvals_pb2.ResolveApprovalRequest:
    await first_of(call, is_event("approval.requested"))
    card = await prepared.approval_of(await prepared.engine.runs.get(OWNER, RunId(run_id)), OWNER)
    return approvals_pb2.ResolveApprovalRequest(approval_id=card.id, decision=ALLOW)


async def test_cancelling_is_a_message(wire: GrpcScene) -> None:
    call, _ = await begun(wire, start("slowly"))
    await first_of(call, is_live)
    await call.write(cancel(3))
    messages = await rest(call)
    assert [m.WhichOneof("message") for m in messages if m.request_id == 3] == ["accepted"]
    assert [m.event.type for m in messages if m.WhichOneof("message") == "event"][-1] == "run.cancelled"


async def test_input_reaches_the_run(wire: GrpcScene, prepared: Prepared) -> None:
    call, run_id = await begun(wire, start("slowly"))
    await first_of(call, is_live)
    await call.write(Said(request_id=1, input=runs_pb2.RunInput(text="and this")))
    assert (await first_of(call, lambda m: m.request_id == 1)).WhichOneof("message") == "accepted"
    await call.write(Said(request_id=2, input=runs_pb2.RunInput(text="")))
    assert (await first_of(call, lambda m: m.request_id == 2)).refused.code == "message_invalid"
    await call.write(cancel())
    await rest(call)
    record = await prepared.engine.runs.get(OWNER, RunId(run_id))
    tape = await prepared.engine.sessions.tape(OWNER, record.session_id, 0, 400)
    assert any(event.type == "message.user" and "and this" in str(event.data) for event in tape)


@pytest.mark.parametrize("leaving", ["cancelled", "deadline", "connection"])
async def test_a_dropped_stream_never_cancels_its_run(
    wire: GrpcScene, prepared: Prepared, leaving: str, scene: Scene
) -> None:
    async with grpc.aio.insecure_channel(wire.server.address) as channel:
        own = GrpcScene(scene, wire.gateway, wire.server, channel)
        call, run_id = await speaking(own, leaving, (1.0, 10.0, WAIT_S) if leaving == "deadline" else (6 * WAIT_S,))
        if leaving == "cancelled":
            call.cancel()
        elif leaving == "deadline":
            assert (await ending(call))[0] is Status.DEADLINE_EXCEEDED
    await until(lambda: wire.gateway.stream_count == 0, "the stream's end")
    record = await prepared.engine.runs.get(OWNER, RunId(run_id))
    assert record.state == "in_progress"
    again, _ = await begun(wire, follow(run_id))
    assert (await first_of(again, is_live)).frame.model.text.startswith("word0 ")
    await again.write(cancel())
    assert last_event(await rest(again)) == "run.cancelled"


async def test_a_stream_resumes_behind_its_cursor(wire: GrpcScene, prepared: Prepared) -> None:
    run = await prepared.finished_run()
    call, _ = await begun(wire, follow(run.id))
    seqs = [message.event.seq for message in await rest(call)]
    again, _ = await begun(wire, follow(run.id, seqs[2]))
    assert [message.event.seq for message in await rest(again)] == seqs[3:]
    last, _ = await begun(wire, follow(run.id, seqs[-1]))
    assert await rest(last) == []


@pytest.mark.parametrize(
    ("first", "status", "code"),
    [
        (cancel(), Status.INVALID_ARGUMENT, "stream_unstarted"),
        (Said(), Status.INVALID_ARGUMENT, "stream_unstarted"),
        (start(""), Status.INVALID_ARGUMENT, "message_invalid"),
        (follow("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Status.NOT_FOUND, "run_unknown"),
        (None, Status.INVALID_ARGUMENT, "stream_empty"),
    ],
    ids=["cancel", "nothing", "empty_text", "unknown_run", "no_message"],
)
async def test_a_stream_that_begins_wrongly_is_refused(
    wire: GrpcScene, first: Said | None, status: Status, code: str
) -> None:
    call = wire.stream()
    if first is not None:
        await call.write(first)
    else:
        await call.done_writing()
    assert await ending(call) == (status, code)
    assert wire.gateway.stream_count == 0


async def test_anothers_run_cannot_be_followed_or_answered(wire: GrpcScene, prepared: Prepared) -> None:
    card = await prepared.approval()
    assert card.run_id is not None
    call = wire.stream(USER)
    await call.write(follow(card.run_id))
    assert await ending(call) == (Status.NOT_FOUND, "run_unknown")
    call, _ = await begun(wire, start("slowly"), USER)
    answer = approvals_pb2.ResolveApprovalRequest(approval_id=card.id, decision=ALLOW)
    await call.write(Said(request_id=1, answer=answer))
    assert (await first_of(call, lambda m: m.request_id == 1)).refused.code == "approval_unknown"
    await call.write(cancel())
    await rest(call)


async def test_a_second_start_is_refused_and_the_stream_goes_on(wire: GrpcScene) -> None:
    call, _ = await begun(wire, start("slowly"))
    await call.write(start("go"))
    assert (await first_of(call, lambda m: m.refused.code)).refused.code == "stream_started"
    await call.write(cancel())
    assert last_event(await rest(call)) == "run.cancelled"


async def test_a_revoked_token_and_a_stop_end_its_streams_and_not_the_run(wire: GrpcScene, prepared: Prepared) -> None:
    call, run_id = await begun(wire, start("slowly"), USER)
    await first_of(call, is_live)
    wire.gateway.services.slots.end_of("bob")
    assert await ending(call) == (Status.UNAVAILABLE, "stream_ended")
    record = await prepared.engine.runs.get(BOB, RunId(run_id))
    assert record.state == "in_progress"
    await prepared.engine.runs.cancel(BOB, RunId(run_id))
    await finished(prepared.engine, record, BOB)


@pytest.mark.parametrize("changes", [{"revoked": True}, {"expires_at_ms": NOW_MS}], ids=["revoked", "expired"])
async def test_a_message_with_a_token_that_holds_no_more_does_nothing(
    wire: GrpcScene, prepared: Prepared, changes: dict[str, Any]
) -> None:
    """The file of tokens was changed, or time has passed: nobody ended the stream."""
    call, run_id = await begun(wire, start("slowly"), USER)
    await first_of(call, is_live)
    wire.scene.tokens.add(USER, Role.USER, principal=BOB, id="bob", **changes)
    await call.write(cancel(1))
    assert await ending(call) == (Status.UNAUTHENTICATED, "token_invalid")
    record = await prepared.engine.runs.get(BOB, RunId(run_id))
    assert record.state == "in_progress"
    await prepared.engine.runs.cancel(BOB, RunId(run_id))
    await finished(prepared.engine, record, BOB)


async def test_a_message_is_judged_by_the_role_that_its_token_has_now(wire: GrpcScene) -> None:
    call, _ = await begun(wire, start("slowly"), USER)
    await first_of(call, is_live)
    wire.scene.tokens.add(USER, Role.VIEWER, principal=BOB, id="bob")
    await call.write(cancel(1))
    assert (await first_of(call, lambda m: m.request_id == 1)).refused.code == "role_insufficient"
    wire.scene.tokens.add(USER, Role.USER, principal=BOB, id="bob")
    await call.write(cancel())
    assert last_event(await rest(call)) == "run.cancelled"


async def test_a_slow_reader_holds_nothing_up_is_bounded_and_misses_no_event(
    wire: GrpcScene, prepared: Prepared
) -> None:
    """The client reads nothing while far more is said than it could be sent; then it gets everything recorded."""
    call, run_id = await begun(wire, start("slowly"))
    await first_of(call, is_live)
    run = await prepared.engine.runs.get(OWNER, RunId(run_id))
    hub = prepared.engine.feed.hub
    for number in range(40 * BUFFERED_FRAMES_MAX):
        hub.live(LiveFrame(run.session_id, run.id, "tool.delta", delta_of(number)))
        if number % 500 == 0:
            await asyncio.sleep(0)
    follower = next(iter(hub._followers[run.session_id]))
    assert len(follower._frames) <= BUFFERED_FRAMES_MAX
    await prepared.engine.runs.cancel(OWNER, run.id)
    await finished(prepared.engine, run)
    record = await prepared.engine.runs.get(OWNER, run.id)
    messages = await rest(call)
    seqs = [message.event.seq for message in messages if message.WhichOneof("message") == "event"]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert seqs[-1] == record.ended_seq
    assert len(messages) < 4 * BUFFERED_FRAMES_MAX  # Joined while they waited.
    hub.end_live(run.session_id)


def delta_of(number: int) -> dict[str, object]:
    return {"call_id": "c", "stream": "stdout", "offset": 400 * number, "text": "x" * 400}


async def test_a_client_that_takes_nothing_is_cut(
    wire: GrpcScene, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_stream, "WRITE_TIMEOUT_S", 0.2)
    call, run_id = await begun(wire, start("slowly"))
    run = await prepared.engine.runs.get(OWNER, RunId(run_id))
    hub = prepared.engine.feed.hub

    def speak() -> bool:
        for number in range(200):
            hub.live(LiveFrame(run.session_id, run.id, "tool.delta", delta_of(number)))
        return wire.gateway.stream_count == 0

    await until(speak, "the end of a stream that nobody reads")
    hub.end_live(run.session_id)
    assert (await prepared.engine.runs.get(OWNER, run.id)).state == "in_progress"
    await prepared.engine.runs.cancel(OWNER, run.id)
    call.cancel()


@pytest.mark.parametrize("name", ["streams_max", "streams_per_token_max"])
async def test_streams_beyond_a_limit_are_refused_with_what_to_raise(prepared: Prepared, name: str) -> None:
    scene = Scene(prepared.engine, prepared.ids, settings=replace(HttpSettings(), **{name: 1}))
    async with open_grpc(scene) as wire:
        call, _ = await begun(wire, start("slowly"))
        second = wire.stream()
        with contextlib.suppress(grpc.aio.AioRpcError):  # Writing may meet the refusal already.
            await second.write(start("go"))
        with pytest.raises(grpc.aio.AioRpcError, match=f"limits.{name}") as ended:
            await rest(second)
        assert refused(ended.value).status is Status.RESOURCE_EXHAUSTED
        await call.write(cancel())
        await rest(call)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(st.binary(max_size=120), min_size=1, max_size=4))
async def test_no_bytes_in_a_stream_make_the_daemon_fail(wire: GrpcScene, bodies: list[bytes]) -> None:
    async def said() -> AsyncIterator[bytes]:
        for body in bodies:
            yield body

    wire.scene.clock.at_s += 60
    method: Any = wire.channel.stream_stream("/palyra.gateway.v1.Gateway/RunStream")
    call = method(said(), metadata=bearer(USER), timeout=WAIT_S)
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        # grpcio's own word for a write into a stream that the server has ended has no code of ours.
        is_clients_own = error.details() == "Internal error from Core"
        assert is_clients_own or refused(error).status not in (Status.INTERNAL, Status.UNKNOWN), refused(error)
