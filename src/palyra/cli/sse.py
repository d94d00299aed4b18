"""Parses server-sent events: bytes of a stream in, frames out, in whatever pieces the bytes arrive.

Does not own: connections (client).
"""

import msgspec

from palyra.core.errors import Unavailable
from palyra.core.events.base import JsonObject

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
        self._rest = b""
        self._id: int | None = None
        self._type = ""
        self._lines: list[bytes] = []
        self._bytes_count = 0

    def feed(self, arrived: bytes) -> list[SseFrame]:
        *lines, self._rest = (self._rest + arrived).split(b"\n")
        self._require_bounded(len(self._rest))
        found = (self._take(line.removesuffix(b"\r")) for line in lines)
        return [frame for frame in found if frame is not None]

    def _take(self, line: bytes) -> SseFrame | None:
        if not line:
            return self._end()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._require_bounded(self._bytes_count + len(value))
            self._bytes_count += len(value)
            self._lines.append(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and value.isdigit() and len(value) <= ID_DIGITS_MAX:
            self._id = int(value)
        return None

    def _end(self) -> SseFrame | None:
        lines, frame_id, name = self._lines, self._id, self._type
        self._id, self._type, self._lines, self._bytes_count = None, "", [], 0
        if not lines:
            return None
        try:
            return SseFrame(frame_id, name, msgspec.json.decode(b"\n".join(lines), type=JsonObject))
        except (msgspec.DecodeError, UnicodeDecodeError) as cause:
            raise Unavailable(
                "stream_garbled", "the daemon sent something that is not an event; check --url"
            ) from cause

    def _require_bounded(self, bytes_count: int) -> None:
        if bytes_count > FRAME_BYTES_MAX:
            raise Unavailable("stream_garbled", f"the daemon sent an event of more than {FRAME_BYTES_MAX} bytes")
