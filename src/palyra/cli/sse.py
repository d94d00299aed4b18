"""Frames of the daemon's streams. Does not own: reading server-sent events (core.sse), connections (client)."""

import msgspec

from palyra.core.errors import Unavailable
from palyra.core.events.base import JsonObject
from palyra.core.sse import SseEvent, SseParser

FRAME_BYTES_MAX = 4 * 1024 * 1024  # An event's data has at most 256 KiB; the live text of one turn is far smaller.
ID_DIGITS_MAX = 16


class SseFrame(msgspec.Struct, frozen=True):
    """One frame. A recorded event has an id, which is the cursor to continue from; a live frame has none."""

    id: int | None
    type: str
    event: JsonObject

    @property
    def data(self) -> JsonObject:
        data = self.event.get("data")
        return data if isinstance(data, dict) else {}

    @property
    def at_ms(self) -> int:
        at_ms = self.event.get("at_ms")
        return at_ms if isinstance(at_ms, int) else 0


class FrameReader:
    """Takes bytes as they arrive and returns the frames that are complete."""

    def __init__(self) -> None:
        self._parser = SseParser(FRAME_BYTES_MAX)

    def feed(self, arrived: bytes) -> list[SseFrame]:
        try:
            return [_frame(event) for event in self._parser.feed(arrived)]
        except (Unavailable, msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise Unavailable(
                "stream_garbled", "the daemon sent something that is not an event; check --url"
            ) from cause


def _frame(event: SseEvent) -> SseFrame:
    is_cursor = event.id.isdigit() and len(event.id) <= ID_DIGITS_MAX
    frame_id = int(event.id) if is_cursor else None
    return SseFrame(frame_id, event.name.decode("utf-8", "replace"), msgspec.json.decode(event.data, type=JsonObject))
