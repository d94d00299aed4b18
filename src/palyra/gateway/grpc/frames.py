"""Frames of a run as messages of its stream.

Owns: joining live text that waits together, cutting text that is too long, and the bytes of each message.
Does not own: following (engine.hub), writing (run_stream).
Invariants: joining changes no text and no offset; it makes fewer messages of the same. The bytes of a recorded event
are made once for all who follow it.
"""

from collections.abc import Iterable, Iterator, Mapping

from palyra.core.events import Event
from palyra.engine.hub import Frame, LiveFrame
from palyra.gateway.event_bytes import EventBytes
from palyra.gateway.grpc.messages import event_message
from palyra.gateway.grpc.settings import DELTA_LENGTH_MAX
from palyra.gateway.v1 import events_pb2, runs_pb2

_KEYS = ("turn", "call_id", "stream")


class StreamBytes:
    """The bytes of frames as a client of RunStream gets them."""

    def __init__(self) -> None:
        self._recorded = EventBytes(_event_bytes)

    def encode(self, frames: Iterable[Frame]) -> Iterator[bytes]:
        for frame in cut(join(frames)):
            yield self._recorded.of(frame) if isinstance(frame, Event) else _live_bytes(frame)


def join(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Joins text that directly continues the frame before it, up to the most that one message holds."""
    parts: list[LiveFrame] = []
    length = 0
    for frame in frames:
        if isinstance(frame, LiveFrame) and parts and length < DELTA_LENGTH_MAX and _continues(parts[-1], frame):
            parts.append(frame)
            length += len(_text_of(frame))
            continue
        yield from _joined(parts)
        parts, length = [], 0
        if isinstance(frame, LiveFrame):
            parts, length = [frame], len(_text_of(frame))
        else:
            yield frame
    yield from _joined(parts)


def cut(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Cuts live text that is too long for one message. Offsets stay true."""
    for frame in frames:
        text = _text_of(frame) if isinstance(frame, LiveFrame) else ""
        if isinstance(frame, Event) or len(text) <= DELTA_LENGTH_MAX:
            yield frame
            continue
        offset = _whole(frame.data, "offset")
        for start in range(0, len(text), DELTA_LENGTH_MAX):
            piece = {**frame.data, "offset": offset + start, "text": text[start : start + DELTA_LENGTH_MAX]}
            yield LiveFrame(frame.session_id, frame.run_id, frame.type, piece)


def _joined(parts: list[LiveFrame]) -> Iterator[LiveFrame]:
    if len(parts) == 1:
        yield parts[0]
    elif parts:
        first = parts[0]
        text = "".join(_text_of(part) for part in parts)
        yield LiveFrame(first.session_id, first.run_id, first.type, {**first.data, "text": text})


def _continues(last: LiveFrame, frame: LiveFrame) -> bool:
    if frame.type != last.type or frame.run_id != last.run_id or "text" not in frame.data:
        return False
    is_same = all(last.data.get(key) == frame.data.get(key) for key in _KEYS)
    return is_same and _whole(frame.data, "offset") == _whole(last.data, "offset") + len(_text_of(last))


def _event_bytes(event: Event) -> bytes:
    return runs_pb2.RunStreamResponse(event=event_message(event)).SerializeToString()


def _live_bytes(frame: LiveFrame) -> bytes:
    return runs_pb2.RunStreamResponse(frame=_live_message(frame)).SerializeToString()


def _live_message(frame: LiveFrame) -> events_pb2.LiveFrame:
    data, session_id, run_id = frame.data, frame.session_id, frame.run_id
    match frame.type:
        case "model.delta":
            return events_pb2.LiveFrame(session_id=session_id, run_id=run_id, model=_text_delta(data))
        case "reasoning.delta":
            return events_pb2.LiveFrame(session_id=session_id, run_id=run_id, reasoning=_text_delta(data))
        case "tool.delta":
            tool = events_pb2.ToolDelta(
                call_id=_word(data, "call_id"),
                stream=_word(data, "stream"),
                offset=_whole(data, "offset"),
                text=_word(data, "text"),
            )
            return events_pb2.LiveFrame(session_id=session_id, run_id=run_id, tool=tool)
        case _:
            progress = events_pb2.Progress(phase=_word(data, "phase"), message=_word(data, "message"))
            return events_pb2.LiveFrame(session_id=session_id, run_id=run_id, progress=progress)


def _text_delta(data: Mapping[str, object]) -> events_pb2.TextDelta:
    return events_pb2.TextDelta(turn=_whole(data, "turn"), offset=_whole(data, "offset"), text=_word(data, "text"))


def _text_of(frame: LiveFrame) -> str:
    return _word(frame.data, "text")


def _word(data: Mapping[str, object], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _whole(data: Mapping[str, object], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0
