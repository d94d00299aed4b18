"""Server-sent events, read. Owns: bytes in any pieces to whole events. Not: the connection, or what an event means.

Bytes stay bytes: line ends are single bytes in UTF-8, so a character split over two reads needs no care here. All events
that one read completes come out at once. Invariant: memory is bounded by the limit plus one read.
"""

import msgspec

from palyra.core.errors import Unavailable

EVENT_BYTES_MAX = 8 * 1024 * 1024  # An image in base64 fits into one event; anything larger is no answer of a model.

_BOM = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """`name` and `id` are b"" unless the stream gave them for this event."""

    name: bytes
    data: bytes
    id: bytes = b""


class SseParser:
    """Fed in order; raises Unavailable `event_too_large` for a line or an event beyond the limit."""

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._limit = event_bytes_max
        self._tail: list[bytes] = []  # Pieces of the line that has not ended yet.
        self._tail_size = 0
        self._is_after_cr = False
        self._is_first_line = True
        self._name = b""
        self._id = b""
        self._data: list[bytes] = []
        self._data_size = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        if self._is_one_event(chunk):
            return [SseEvent(b"", chunk[6:-2])]
        if self._is_after_cr or b"\r" in chunk:
            chunk = self._with_plain_ends(chunk)
        ended, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._keep(rest)
            return []
        if self._tail:
            ended = b"".join((*self._tail, ended))
            self._tail.clear()
            self._tail_size = 0
        events = self._read_lines(ended.split(b"\n"))
        self._keep(rest)
        return events

    def _is_one_event(self, chunk: bytes) -> bool:
        """One whole event of one line of data, with nothing under way before it: what a token mostly comes as."""
        is_plain = chunk[:6] == b"data: " and chunk[-2:] == b"\n\n" and chunk.count(b"\n") == 2
        is_alone = not (self._tail or self._data or self._name or self._id or self._is_after_cr or self._is_first_line)
        return is_plain and is_alone and b"\r" not in chunk and len(chunk) <= self._limit

    def finish(self) -> list[SseEvent]:
        """The event that was under way when the stream ended without its blank line, if there is one."""
        lines = [b"".join(self._tail), b""]
        self._tail.clear()
        self._tail_size = 0
        return self._read_lines(lines)

    def _with_plain_ends(self, chunk: bytes) -> bytes:
        """CRLF and CR become LF. A CR at the end has ended its line already; an LF that follows it is its second half."""
        if self._is_after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._is_after_cr = False
            if not chunk:
                return chunk
        if chunk:
            self._is_after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._tail.append(piece)
        self._tail_size += len(piece)
        if self._tail_size > self._limit:
            raise _too_large(self._limit)

    def _read_lines(self, lines: list[bytes]) -> list[SseEvent]:
        if self._is_first_line:
            self._is_first_line = False
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[SseEvent] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append(SseEvent(self._name, data[0] if len(data) == 1 else b"\n".join(data), self._id))
                    data.clear()
                    self._data_size = 0
                self._name = self._id = b""
            elif line.startswith(b"data: "):
                data.append(line[6:])
                self._count(len(line))
            elif not line.startswith(b":"):
                self._read_field(line)
        return events

    def _read_field(self, line: bytes) -> None:
        """Any field but the usual data line: `data` with no space, `event`, `id`; `retry` and strange ones are not ours."""
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value
        elif field == b"id":
            self._id = value
        elif field == b"data":
            self._data.append(value)
            self._count(len(line))

    def _count(self, size: int) -> None:
        self._data_size += size
        if self._data_size > self._limit:
            raise _too_large(self._limit)


def _too_large(limit: int) -> Unavailable:
    return Unavailable(
        "event_too_large", f"an event of the stream is larger than {limit} bytes; the address may be wrong"
    )
