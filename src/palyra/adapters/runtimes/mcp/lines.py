"""Cuts a stream of bytes into lines of bounded length.

Does not own: what a line means.
Invariants: at most `line_bytes_max` and one piece of the stream are held, however long a line is. Of a longer line the
first and last bytes are kept, because they may tell which request it answers.
"""

import re
from collections.abc import Iterator

import msgspec

EDGE_BYTES = 512
_ID_FIRST = re.compile(rb'\A\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*[,}]')
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class TooLong(msgspec.Struct, frozen=True):
    """A line that was thrown away. `answers` is the request it seems to answer, if that can be told."""

    size_bytes: int
    answers: int | None


class LineCutter:
    def __init__(self, line_bytes_max: int) -> None:
        self._limit = line_bytes_max
        self._held = bytearray()
        self._dropped_bytes = 0  # Counts the bytes of the current line beyond those held; 0 while the line fits.
        self._tail = b""

    def feed(self, piece: bytes) -> Iterator[bytes | TooLong]:
        """Yields the lines that this piece ends, without their line breaks. Empty lines are left out."""
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._hold(piece[start:end])
            start = end + 1
            line = self._taken()
            if line != b"":
                yield line
        self._hold(piece[start:])

    @property
    def held_bytes(self) -> int:
        return len(self._held) + len(self._tail)

    def _hold(self, part: bytes) -> None:
        if not self._dropped_bytes and len(self._held) + len(part) <= self._limit:
            self._held += part
            return
        if not self._dropped_bytes:
            self._dropped_bytes, self._tail = len(self._held), bytes(self._held[-EDGE_BYTES:])
            del self._held[EDGE_BYTES:]
            if len(self._held) < EDGE_BYTES:
                self._held += part[: EDGE_BYTES - len(self._held)]
        self._dropped_bytes += len(part)
        self._tail = (self._tail + part[-EDGE_BYTES:])[-EDGE_BYTES:]

    def _taken(self) -> bytes | TooLong:
        line: bytes | TooLong = bytes(self._held).strip()
        if self._dropped_bytes:
            line = TooLong(self._dropped_bytes, _answered(bytes(self._held), self._tail))
        self._held.clear()
        self._dropped_bytes, self._tail = 0, b""
        return line


def _answered(head: bytes, tail: bytes) -> int | None:
    found = _ID_FIRST.search(head) or _ID_LAST.search(tail)
    return int(found[1]) if found else None
