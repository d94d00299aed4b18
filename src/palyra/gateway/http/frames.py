"""Events and live frames as bytes.

Owns: their wire form in pages and in event streams.
Does not own: sending them (sse).
Invariants: a recorded event has an `id:`; a live frame has none, and its data lacks seq, position, time and hash. The
bytes of a recorded event are made once for all who follow it (gateway.event_bytes).
"""

from typing import Annotated

import msgspec

from palyra.core.events import Event
from palyra.core.ids import RunId, StreamId
from palyra.engine.hub import Frame, LiveFrame
from palyra.gateway.event_bytes import EventBytes

AnyObject = Annotated[object, msgspec.Meta(extra_json_schema={"type": "object"})]


class WireEvent(msgspec.Struct, frozen=True):
    """One recorded event as clients see it; the members of `data` are those of its type."""

    seq: int
    position: int
    session_id: StreamId
    run_id: RunId | None
    type: str
    at_ms: int
    actor: str
    trust: str
    data: AnyObject
    hash: str


class WireLiveFrame(msgspec.Struct, frozen=True):
    """A frame that no tape holds: model.delta, reasoning.delta, tool.delta or progress."""

    session_id: StreamId
    run_id: RunId
    type: str
    data: dict[str, object]


_encoder = msgspec.json.Encoder()


def wire_event(event: Event) -> WireEvent:
    return WireEvent(
        event.seq,
        event.position,
        event.stream,
        event.run_id,
        event.type,
        event.at_ms,
        event.actor,
        event.trust.value,
        event.data,
        event.hash,
    )


class FrameBytes:
    """SSE bytes of frames; those of recorded events are shared by everybody who follows the same ones."""

    def __init__(self) -> None:
        self._unnumbered = EventBytes(_unnumbered_bytes)

    def by_seq(self, frame: Frame) -> bytes:
        """For streams of one tape."""
        if isinstance(frame, Event):
            return b"id: %d\n%b" % (frame.seq, self._unnumbered.of(frame))
        return _live_bytes(frame)

    def by_position(self, frame: Frame) -> bytes:
        """For the stream over all tapes."""
        if isinstance(frame, Event):
            return b"id: %d\n%b" % (frame.position, self._unnumbered.of(frame))
        return _live_bytes(frame)


def _unnumbered_bytes(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.type.encode(), _encoder.encode(wire_event(event)))


def _live_bytes(frame: LiveFrame) -> bytes:
    """Live frames are many, and hardly ever have a second follower: nobody shares these."""
    return b"event: %b\ndata: %b\n\n" % (frame.type.encode(), _encoder.encode(frame))
