"""Followers: frames come in the order they were sent, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from palyra.core.events import Event
from palyra.core.events.run import RunStarted
from palyra.core.ids import Principal, RunId, SessionId, StreamId
from palyra.core.trust import Trust
from palyra.engine.hub import BUFFERED_FRAMES_MAX, TAKEN_FRAMES_MAX, Frame, Hub, LiveFrame, NoFrames
from palyra.ports.journal import Journal
from tests.support.waiting import WAIT_S

SESSION = SessionId(StreamId("01JZ0000000000000000000000"))
RUN = RunId("01JZ0000000000000000000001")


class EmptyTape:
    """A journal that a follower who keeps up never has to ask for more."""

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        return ()


class Tape:
    """A journal with so many events on its one tape, read in pages of two."""

    def __init__(self, last_seq: int) -> None:
        self.last_seq = last_seq
        self.read_count = 0

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        self.read_count += 1
        return tuple(recorded(seq) for seq in range(after_seq + 1, min(after_seq + 2, self.last_seq) + 1))


def delta(text: str) -> LiveFrame:
    return LiveFrame(SESSION, RUN, "model.delta", {"turn": 1, "offset": 0, "text": text})


def recorded(seq: int) -> Event:
    return Event(
        seq=seq,
        position=seq,
        stream=SESSION,
        run_id=RUN,
        type=RunStarted.TYPE,
        at_ms=1,
        actor=Principal("system:engine"),
        trust=Trust.SYSTEM,
        data=RunStarted(),
        hash="00",
        salt=None,
        digest="00",
    )


async def take(frames: AsyncIterator[Frame]) -> Frame:
    async with asyncio.timeout(WAIT_S):
        return await anext(frames)


async def test_every_live_frame_arrives_in_order_however_close_together_they_come() -> None:
    hub = Hub(cast(Journal, EmptyTape()))
    frames = hub.attach(SESSION).follow(0)
    sent = [delta(str(number)) for number in range(5)]
    received = []
    for frame in sent:
        hub.live(frame)
        received.append(await take(frames))
    assert received == sent


async def test_recorded_event_comes_behind_the_live_frames_that_were_there_first() -> None:
    hub = Hub(cast(Journal, EmptyTape()))
    frames = hub.attach(SESSION).follow(0)
    hub.live(delta("first"))
    assert await take(frames) == delta("first")
    hub.live(delta("second"))
    hub.publish([recorded(1)])
    assert await take(frames) == delta("second")
    assert await take(frames) == recorded(1)


async def test_what_waits_together_is_taken_together_and_no_more_than_a_reader_can_hold() -> None:
    hub = Hub(cast(Journal, EmptyTape()))
    follower = hub.attach(SESSION).follow(0)
    hub.publish([recorded(1)])
    for number in range(TAKEN_FRAMES_MAX + 4):
        hub.live(delta(str(number)))
    first = [*await follower.take(), *await follower.take()]
    assert first[0] == recorded(1)
    assert [len(first), first[-1]] == [TAKEN_FRAMES_MAX + 5, delta(str(TAKEN_FRAMES_MAX + 3))]


async def test_a_reader_who_waits_can_be_woken_with_nothing() -> None:
    hub = Hub(cast(Journal, EmptyTape()))
    follower = hub.attach(SESSION).follow(0)
    taking = asyncio.create_task(follower.take())
    await asyncio.sleep(0)
    follower.wake()
    async with asyncio.timeout(WAIT_S):
        assert list(await taking) == []


async def test_a_gap_and_an_overflow_are_read_from_the_tape_without_loss_or_repetition() -> None:
    tape = Tape(3)
    hub = Hub(cast(Journal, tape))
    frames = hub.attach(SESSION).follow(0)
    assert [await take(frames) for _ in range(3)] == [recorded(seq) for seq in (1, 2, 3)]
    tape.last_seq = 6
    hub.publish([recorded(6)])
    assert [await take(frames) for _ in range(3)] == [recorded(seq) for seq in (4, 5, 6)]
    tape.last_seq = 7 + BUFFERED_FRAMES_MAX
    hub.publish([recorded(seq) for seq in range(7, tape.last_seq + 1)])
    seqs = [
        frame.seq for frame in [await take(frames) for _ in range(7, tape.last_seq + 1)] if isinstance(frame, Event)
    ]
    assert seqs == list(range(7, tape.last_seq + 1))


async def test_a_reader_who_keeps_up_does_not_read_the_tape() -> None:
    tape = Tape(0)
    hub = Hub(cast(Journal, tape))
    follower = hub.attach(SESSION)
    hub.publish([recorded(1)])
    frames = follower.follow(follower.first_seq() - 1)
    for seq in (2, 3):
        assert await take(frames) == recorded(seq - 1)
        hub.publish([recorded(seq)])
    assert tape.read_count == 0


async def test_who_has_seen_everything_is_given_nothing() -> None:
    nothing = NoFrames()
    nothing.wake()
    assert [frame async for frame in nothing] == []
    assert list(await nothing.take()) == []
    await nothing.aclose()
