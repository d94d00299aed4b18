"""Live frames that are written in the moment they come: in order with all others, to the letter, whatever the client does."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from palyra.core.events import Event
from palyra.core.ids import StreamId
from palyra.engine.hub import Hub, LiveFrame
from palyra.gateway.http.connection import write_now
from palyra.gateway.http.settings import HttpSettings
from palyra.ports.journal import Journal
from tests.gateway.frames import RUN_ID, SESSION_ID, delta, event
from tests.gateway.prepared import Prepared
from tests.gateway.scene import WAIT_S, Scene, Wire, connected, listening, request_bytes

FEED = "/api/v1/sessions/{session_id}/events"
WORD = "word "


class Tape:
    """A journal of one tape, as long as was published."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        return tuple(self.events[after_seq : after_seq + limit])


class Speaker:
    """A hub with one session: says words, and records events in between."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.hub = Hub(cast(Journal, self.tape))
        self.said = ""

    def say(self, word: str = WORD) -> None:
        self.hub.live(delta(word, len(self.said)))
        self.said += word

    def record(self) -> None:
        recorded = event(len(self.tape.events) + 1)
        self.tape.events.append(recorded)
        self.hub.publish([recorded])


@asynccontextmanager
async def followed(prepared: Prepared, speaker: Speaker) -> AsyncIterator[Wire]:
    scene = Scene(prepared.engine, prepared.ids, HttpSettings(port=0))
    scene.follow(speaker.hub.attach(SESSION_ID).follow(0))
    async with listening(scene) as server, connected(server.port) as wire:
        await wire.send(request_bytes("GET", scene.filled(FEED)))
        await wire.until(b"\r\n\r\n")
        assert (await wire.chunk()).startswith(b"retry:")
        yield wire


def heard(body: bytes) -> tuple[str, list[int]]:
    """The text of all live frames, each of which begins where the last ended, and the seqs of the events."""
    text, seqs = "", []
    for block in body.split(b"\n\n")[:-1]:
        lines = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        data = json.loads(lines[b"data"])
        if b"id" in lines:
            seqs.append(data["seq"])
        else:
            assert data["data"]["offset"] == len(text)
            text += data["data"]["text"]
    return text, seqs


async def test_a_word_that_comes_while_the_reader_waits_is_written_before_anybody_else_has_a_turn(
    prepared: Prepared,
) -> None:
    speaker = Speaker()
    async with followed(prepared, speaker) as wire:
        await settled()
        (follower,) = speaker.hub._followers[SESSION_ID]
        tap = follower._tap
        was_written: list[bool] = []

        def noting(frame: LiveFrame) -> bool:
            was_written.append(tap is not None and tap(frame))
            return was_written[-1]

        follower.tap(noting)
        speaker.say()
        assert was_written == [True]  # Nobody had a turn of the loop: nothing was awaited.
        assert heard(await wire.chunk()) == (WORD, [])


async def test_words_of_one_moment_leave_together(prepared: Prepared) -> None:
    speaker = Speaker()
    async with followed(prepared, speaker) as wire:
        await settled()
        for _ in range(50):
            speaker.say()
        body, chunks_count = b"", 0
        while len(heard(body)[0]) < len(speaker.said):
            body += await wire.chunk()
            chunks_count += 1
    assert heard(body) == (speaker.said, [])
    assert chunks_count < 10


async def settled() -> None:
    """The reader's task has taken what there is and waits."""
    for _ in range(10):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", range(6))
async def test_words_and_events_come_in_order_and_whole(prepared: Prepared, seed: int) -> None:
    draw = random.Random(seed)
    speaker = Speaker()
    async with followed(prepared, speaker) as wire:
        body = b""

        async def listen() -> None:
            nonlocal body
            while not (speaker.tape.events and b'"seq":%d,' % LAST in body):
                body += await wire.chunk()
                if draw.random() < 0.1:
                    await asyncio.sleep(0.01)

        LAST = 40
        listening_task = asyncio.create_task(listen())
        for _ in range(LAST):
            for _ in range(draw.randrange(12)):
                speaker.say(draw.choice(("a", "bc ", "déf", "\n")))
                if draw.random() < 0.5:
                    await asyncio.sleep(draw.choice((0, 0, 0.002)))
            speaker.record()
        async with asyncio.timeout(WAIT_S):
            await listening_task
    assert heard(body) == (speaker.said, list(range(1, LAST + 1)))


async def test_a_client_that_does_not_read_loses_no_letter_and_holds_nobody_up(prepared: Prepared) -> None:
    speaker = Speaker()
    async with followed(prepared, speaker) as wire:
        await settled()
        for number in range(6_000):
            speaker.say("x" * 200)
            if number % 10 == 0:
                await asyncio.sleep(0)
        speaker.record()
        (follower,) = speaker.hub._followers[SESSION_ID]
        assert follower._frames or follower._is_behind  # Not everything was poured into the socket.
        body = b""
        async with asyncio.timeout(WAIT_S):
            while b'"seq":1,' not in body:
                body += await wire.chunk()
    assert heard(body) == (speaker.said, [1])


async def test_a_word_that_cannot_be_written_breaks_the_stream_and_not_whoever_said_it(prepared: Prepared) -> None:
    speaker = Speaker()
    async with followed(prepared, speaker) as wire:
        await settled()
        speaker.hub.live(LiveFrame(SESSION_ID, RUN_ID, "model.delta", {"turn": 1, "offset": 0, "text": "\ud800"}))
        await wire.rest()
        speaker.say()


def cycle_in(**state: object) -> tuple[RequestResponseCycle, list[bytes]]:
    """An answer under way, as far as writing past it looks at it."""
    written: list[bytes] = []
    transport = SimpleNamespace(write=written.append, is_closing=lambda: bool(state.get("is_closing")))
    cycle = SimpleNamespace(
        response_started=state.get("response_started", True),
        response_complete=state.get("response_complete", False),
        chunked_encoding=state.get("chunked_encoding", True),
        disconnected=state.get("disconnected", False),
        flow=SimpleNamespace(write_paused=state.get("write_paused", False)),
        transport=transport,
    )
    return cast(RequestResponseCycle, cycle), written


def test_a_piece_is_written_as_one_chunk() -> None:
    cycle, written = cycle_in()
    assert write_now(cycle, b"twelve bytes")
    assert written == [b"c\r\ntwelve bytes\r\n"]


@pytest.mark.parametrize(
    "state",
    [
        {"response_started": False},
        {"response_complete": True},
        {"chunked_encoding": None},
        {"disconnected": True},
        {"write_paused": True},
        {"is_closing": True},
    ],
    ids=lambda state: next(iter(state)),
)
def test_nothing_is_written_past_an_answer_that_cannot_take_it(state: dict[str, object]) -> None:
    cycle, written = cycle_in(**state)
    assert not write_now(cycle, b"x")
    assert written == []
