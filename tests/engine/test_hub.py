"""Followers: frames come in the order they were sent, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from palyra.core.events import Event
from palyra.core.events.run import RunStarted
from palyra.core.ids import Principal, RunId, SessionId, StreamId
from palyra.core.trust import Trust
from palyra.engine.hub import Frame, Hub, Live
from palyra.ports.journal import Journal

SESSION = SessionId(StreamId("01JZ0000000000000000000000"))
RUN = RunId("01JZ0000000000000000000001")
LIMIT_S = 5.0  # Nothing here takes that long; it only ends a test that would hang.


class EmptyTape:
    """A journal that a follower who keeps up never has to ask for more."""

    async def read(self, stream: StreamId, after_seq: int, limit: int) -> tuple[Event, ...]:
        return ()


def delta(text: str) -> Live:
    return Live(SESSION, RUN, "model.delta", {"turn": 1, "offset": 0, "text": text})


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
    async with asyncio.timeout(LIMIT_S):
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
