"""Unpacking bodies. Owns: gzip and deflate in pieces, never more than there is room for. Not: reading them.

A small body can unpack to one without end. Every step here says how much it may give, so memory is bounded by that.
"""

import zlib

from palyra.core.errors import Unavailable

MEMBERS_MAX = 64  # Gzip files may be joined; each one costs a copy of what follows it.

_AUTOMATIC = zlib.MAX_WBITS | 32  # Gzip or zlib, by its first bytes.
_RAW = -zlib.MAX_WBITS
_KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
ACCEPTED = "gzip, deflate"


def make_unpacker(encoding: str) -> "Unpacker | None":
    """None for a body that is not packed. Raises Unavailable `encoding_unknown`."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in _KNOWN:
        raise Unavailable("encoding_unknown", "the body is packed in a way that is not understood here")
    return Unpacker(may_be_raw=name == "deflate")


class Unpacker:
    def __init__(self, *, may_be_raw: bool = False) -> None:
        self._may_be_raw = may_be_raw
        self._member = zlib.decompressobj(_AUTOMATIC)
        self._members_count = 1
        self.is_ended = False

    def feed(self, packed: bytes, room: int) -> bytes:
        """At most `room` bytes (1 or more) of what this piece unpacks to. Raises Unavailable `body_damaged`."""
        pieces: list[bytes] = []
        while packed and room > 0 and not self.is_ended:
            piece = self._unpack(packed, room)
            pieces.append(piece)
            room -= len(piece)
            packed = self._member.unconsumed_tail
            if self._member.eof:
                packed = self._begin_next()
        return b"".join(pieces)

    def _unpack(self, packed: bytes, room: int) -> bytes:
        try:
            return self._member.decompress(packed, room)
        except zlib.error as cause:
            if not self._may_be_raw:
                raise Unavailable("body_damaged", "the body is damaged: it cannot be unpacked") from cause
        self._may_be_raw = False
        self._member = zlib.decompressobj(_RAW)
        return self._unpack(packed, room)

    def _begin_next(self) -> bytes:
        """What follows a whole member; only another gzip file counts, the rest is padding."""
        self._may_be_raw = False
        rest = self._member.unused_data
        self._members_count += 1
        if self._members_count > MEMBERS_MAX or not (rest == b"" or rest.startswith(b"\x1f")):
            self.is_ended = True
            return b""
        self._member = zlib.decompressobj(_AUTOMATIC)
        return rest
