"""Streams over a real socket: their form, resuming, and that one client never costs another anything."""

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from palyra.core.chain import to_wire
from palyra.core.errors import Corrupt
from palyra.core.events.base import ErasedData
from palyra.core.events.run import MessageUser
from palyra.core.ids import Principal
from palyra.engine.hub import Frame
from palyra.gateway.event_bytes import SHARED_FRAME_BYTES_MAX, SHARED_FRAMES_MAX
from palyra.gateway.http.frames import FrameBytes
from palyra.gateway.http.settings import OUTBOX_BYTES_MAX, STREAMS_PER_TOKEN_MAX, HttpSettings
from palyra.gateway.http.sse import EventStream, StreamSlots
from palyra.ports.tokens import Role
from tests.gateway.frames import RUN_ID, SESSION_ID, GivenFrames, delta, event, last_event
from tests.gateway.prepared import Prepared
from tests.gateway.scene import RUN, SESSION, WAIT_S, Failing, Scene, Wire, connected, listening, request_bytes
from tests.support.waiting import until

ONE_RUN = f"/api/v1/runs/{RUN}"
FEED = f"/api/v1/sessions/{SESSION}/events"
OWNER = Principal("user:owner")
RETRY = b"retry: 1000\n\n"


def frame_bytes(number: int, seq: int) -> bytes:
    wire = json.dumps(to_wire(event(seq)), separators=(",", ":"), ensure_ascii=False).encode()
    return b"id: %d\nevent: message.user\ndata: %b\n\n" % (number, wire)


def fields(block: bytes) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in block.decode().strip().splitlines())


def given(scene: Scene, *frames: Frame) -> GivenFrames:
    """A stream that whoever follows something in the scene gets."""
    found = GivenFrames(*frames)
    scene.follow(found)
    return found


@pytest.fixture
async def open_scene(prepared: Prepared) -> AsyncIterator[tuple[Scene, int]]:
    scene = Scene(prepared.engine, prepared.ids, HttpSettings(port=0))
    async with listening(scene) as server:
        yield scene, server.port


@asynccontextmanager
async def following(port: int, path: str, **headers: str) -> AsyncIterator[Wire]:
    async with connected(port) as wire:
        await wire.send(request_bytes("GET", path, b"", **headers))
        assert (await wire.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        assert await wire.chunk() == RETRY
        yield wire


async def test_frames_have_the_documented_form(open_scene: tuple[Scene, int]) -> None:
    scene, port = open_scene
    frames = given(scene)
    async with connected(port) as wire:
        await wire.send(request_bytes("GET", scene.filled(FEED)))
        head = await wire.until(b"\r\n\r\n")
        assert b"content-type: text/event-stream; charset=utf-8\r\n" in head
        assert b"cache-control: no-store\r\n" in head
        assert b"\r\nserver:" not in head
        assert await wire.chunk() == RETRY
        frames.give(event(1))
        assert await wire.chunk() == frame_bytes(1, 1)
        frames.give(delta("Hel\nlo", 3))
        live = fields(await wire.chunk())
        assert set(live) == {"event", "data"}
        assert live["event"] == "model.delta"
        assert json.loads(live["data"]) == {
            "session_id": SESSION_ID,
            "run_id": RUN_ID,
            "type": "model.delta",
            "data": {"turn": 1, "offset": 3, "text": "Hel\nlo"},
        }


async def test_stream_over_all_tapes_is_numbered_by_position(prepared: Prepared) -> None:
    last = (await prepared.journal.read_all(0, 10_000))[-1].position
    scene = Scene(prepared.engine, settings=HttpSettings(port=0))
    async with listening(scene) as server, following(server.port, f"/api/v1/events?after={last}") as wire:
        run = await prepared.finished_run()
        block = fields((await wire.chunk()).split(b"\n\n")[0])
    data = json.loads(block["data"])
    assert data["session_id"] == run.session_id
    assert int(block["id"]) == data["position"] > data["seq"]


async def test_stream_of_a_run_ends_with_it_and_the_connection_lives_on(
    open_scene: tuple[Scene, int], prepared: Prepared
) -> None:
    scene, port = open_scene
    run = await prepared.running_run()
    async with following(port, f"/api/v1/runs/{run.id}/events") as wire:
        body = b""
        while b"model.delta" not in body:
            body += await wire.chunk()
        assert body.startswith(b"id: 2\nevent: run.accepted\n")
        await scene.ask("POST", f"/api/v1/runs/{run.id}/cancel", {})
        while chunk := await wire.chunk():
            body = chunk
        assert b"event: run.cancelled\n" in body
        await wire.send(request_bytes("GET", "/healthz"))
        assert b"200 OK" in await wire.until(b"\r\n\r\n")
    await until(lambda: scene.gateway.stream_count == 0)


async def test_run_can_be_started_as_a_stream(open_scene: tuple[Scene, int]) -> None:
    scene, port = open_scene
    async with connected(port) as wire:
        await wire.send(request_bytes("POST", "/api/v1/runs", b'{"text":"hi"}', accept="text/event-stream"))
        head = await wire.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        body = await wire.until(b"0\r\n\r\n")
        assert body.count(b"\nevent: run.done\n") == 1
        run_id = re.search(rb'"run_id":"(\w+)"', body).group(1)  # type: ignore[union-attr]
        assert b"location: /api/v1/runs/%b\r\n" % run_id in head
    assert scene.asked[-1][0] == "runs.start_and_follow"


async def test_a_stream_that_ended_leaves_nothing_to_the_garbage_collector(open_scene: tuple[Scene, int]) -> None:
    scene, port = open_scene
    gc.collect()
    gc.disable()
    try:
        async with connected(port) as wire:
            await wire.send(request_bytes("POST", "/api/v1/runs", b'{"text":"hi"}', accept="text/event-stream"))
            await wire.until(b"0\r\n\r\n")
            await wire.send(request_bytes("GET", "/healthz"))  # A connection holds its latest request.
            await wire.until(b"\r\n\r\n")
            await until(lambda: scene.gateway.stream_count == 0)
            await until(lambda: not any(isinstance(each, EventStream) for each in gc.get_objects()))
    finally:
        gc.enable()


async def test_frames_that_wait_together_leave_in_one_chunk(open_scene: tuple[Scene, int]) -> None:
    scene, port = open_scene
    frames = given(scene)
    async with following(port, scene.filled(FEED)) as wire:
        for seq in range(1, 6):
            frames.give(event(seq))
        assert await wire.chunk() == b"".join(frame_bytes(seq, seq) for seq in range(1, 6))


@pytest.mark.parametrize(
    ("target", "headers", "cursor"),
    [
        (f"{ONE_RUN}/events", {}, None),
        (f"{ONE_RUN}/events", {"last_event_id": "17"}, 17),
        (f"{ONE_RUN}/events", {"last_event_id": ""}, None),
        (f"{ONE_RUN}/events?after=3", {"last_event_id": "17"}, 17),
        (f"{ONE_RUN}/events?after=3", {}, 3),
    ],
)
async def test_stream_resumes_after_the_newest_cursor(
    scene: Scene, target: str, headers: dict[str, str], cursor: int | None
) -> None:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    await scene.ask("GET", target, headers=sent)
    assert scene.asked == [("runs.follow", OWNER, scene.ids["run_id"], cursor)]


async def test_quiet_stream_has_heartbeats(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, prepared.ids, HttpSettings(port=0, heartbeat_s=0.05))
    frames = given(scene)
    async with listening(scene) as server, following(server.port, scene.filled(FEED)) as wire:
        assert [await wire.chunk() for _ in range(2)] == [b":\n\n"] * 2
        frames.give(event(1))
        while (chunk := await wire.chunk()) == b":\n\n":
            pass
        assert frame_bytes(1, 1) in chunk


async def test_client_that_leaves_closes_its_stream_at_once(open_scene: tuple[Scene, int]) -> None:
    scene, port = open_scene
    frames = given(scene)
    async with following(port, scene.filled(FEED)):
        assert scene.gateway.stream_count == 1
    await asyncio.wait_for(frames.closed.wait(), WAIT_S)
    await until(lambda: scene.gateway.stream_count == 0)


async def test_client_that_takes_nothing_is_cut_and_costs_others_nothing(prepared: Prepared) -> None:
    """The stalled one holds a bounded part of the endless feed; the other gets all of its own meanwhile."""
    scene = Scene(prepared.engine, prepared.ids, HttpSettings(port=0, heartbeat_s=0.1))
    large = event(1, MessageUser(text="x" * 60_000))
    endless = given(scene, *[large] * 400)
    async with listening(scene) as server, connected(server.port) as stalled:
        stalled.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await stalled.send(request_bytes("GET", scene.filled(FEED)))
        await until(lambda: endless.taken_count > 0)
        scene.follow(GivenFrames(*(event(seq) for seq in range(1, 200)), last_event(200), is_over=True))
        async with following(server.port, scene.filled(f"{ONE_RUN}/events")) as lively:
            body = await lively.until(b"0\r\n\r\n")
            assert body.count(b"\nevent: ") == 200
        await asyncio.wait_for(endless.closed.wait(), WAIT_S)
        await until(lambda: scene.gateway.stream_count == 0)
        assert endless.taken_count < 400


async def test_full_outbox_stops_asking_for_frames(open_scene: tuple[Scene, int]) -> None:
    scene, port = open_scene
    size = 60_000
    frames = given(scene)
    for seq in range(1, 1001):
        frames.give(event(seq, MessageUser(text="x" * size)))
    async with connected(port) as wire:
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await wire.send(request_bytes("GET", scene.filled(FEED)))
        await until(lambda: frames.taken_count > OUTBOX_BYTES_MAX // size)
        for _ in range(100):
            await asyncio.sleep(0)
        assert frames.taken_count < 1000


async def test_failure_in_the_middle_ends_the_stream_unfinished(
    open_scene: tuple[Scene, int], caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that stops without its last chunk makes every client reconnect with its cursor."""
    scene, port = open_scene
    frames = given(scene)
    async with following(port, scene.filled(FEED)) as wire:
        frames.give(event(1))
        assert await wire.chunk() == frame_bytes(1, 1)
        frames.give(Corrupt("tape_damaged", "damaged"))
        assert await wire.rest() == b""
    await until(lambda: scene.gateway.stream_count == 0)
    assert "internal error" in caplog.text
    assert "Exception in ASGI application" not in caplog.text


async def test_refusal_before_the_stream_is_plain_json_and_frees_the_slot(scene: Scene) -> None:
    scene.engine.feed = scene.engine.runs = Failing(Corrupt("tape_damaged", "damaged"))
    for target in (FEED, f"{ONE_RUN}/events", "/api/v1/events"):
        assert (await scene.ask("GET", target)).code == "tape_damaged"
    assert scene.gateway.stream_count == 0


async def test_streams_of_one_token_are_bounded(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-a-collector", Role.USER)
    slots: StreamSlots = scene.gateway._services.slots
    taken = []
    for _ in range(STREAMS_PER_TOKEN_MAX):
        with slots.reserved(token[-12:]) as slot:
            taken.append(slot)
    refused = await scene.ask("GET", FEED, token=token)
    assert (refused.status, refused.code, scene.asked) == (429, "too_many_streams", [])
    assert (await scene.ask("GET", FEED)).status == 200
    for slot in taken:
        slots.leave(slot)
        slots.leave(slot)
    assert (await scene.ask("GET", ONE_RUN, token=token)).status == 200
    assert slots.taken_count == 0


async def test_stopping_ends_streams_cleanly(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, prepared.ids, HttpSettings(port=0))
    frames = given(scene, event(1))
    async with listening(scene) as server, following(server.port, scene.filled(FEED)) as wire:
        assert await wire.chunk() == frame_bytes(1, 1)
        await server.stop()
        assert await wire.chunk() == b""
        assert await wire.rest() == b""
        await asyncio.wait_for(frames.closed.wait(), WAIT_S)


def test_bytes_of_a_frame_are_made_once() -> None:
    shared = FrameBytes()
    one = event(1)
    assert shared.by_seq(one) == frame_bytes(1, 1)
    assert shared.by_position(one) == frame_bytes(1001, 1)
    assert shared._unnumbered.of(one) is shared._unnumbered.of(one)


def test_erased_event_is_never_given_with_its_old_content() -> None:
    shared = FrameBytes()
    shared.by_seq(event(1))
    erased = replace(event(1), data=ErasedData(erased="asked"))
    assert b"erased" in shared.by_seq(erased)
    assert b"line one" not in shared.by_seq(erased)


def test_shared_bytes_are_bounded() -> None:
    shared = FrameBytes()
    shared.by_seq(event(1, MessageUser(text="x" * SHARED_FRAME_BYTES_MAX)))
    assert len(shared._unnumbered._shared) == 0
    for seq in range(SHARED_FRAMES_MAX + 5):
        shared.by_seq(event(seq))
    assert len(shared._unnumbered._shared) == SHARED_FRAMES_MAX
