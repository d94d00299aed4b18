"""What the bytes of one response say. Owns: the parser, the head as it becomes known, the pieces of a body nobody has taken.

Not: the connection they come from (answer). Invariants: a callback of the parser records and never raises; neither a head nor
trailers grow beyond HEAD_BYTES_MAX; what comes behind a whole response is noticed and not kept.
"""

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from multidict import CIMultiDict

HEAD_BYTES_MAX = 64 * 1024

_SWITCHING_PROTOCOLS = 101


class Parsing:
    def __init__(self, *, is_bodiless: bool) -> None:
        self.status = 0
        self.reason = b""
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.has_head = False
        self.is_whole = False
        self.may_stay = False  # The connection, once the response is whole.
        self.pieces: list[bytes] = []
        self.unread_bytes = 0
        self._is_bodiless = is_bodiless
        self._is_interim = False
        self._header_bytes = 0
        self._bytes_since_body = 0
        self._parser = HttpResponseParser(self)
        # As aiohttp reads responses: servers that are a little careless are understood all the same.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )

    def feed(self, data: bytes) -> None:
        """Raises HttpParserError for what is no HTTP."""
        if self.is_whole:
            self.may_stay = False
            return
        self._bytes_since_body += len(data)
        self._parse(data)

    def take(self) -> bytes:
        """All that has come and was not taken."""
        pieces = self.pieces
        chunk = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.unread_bytes = 0
        return chunk

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower() or "application/octet-stream"

    @property
    def ends_with_connection(self) -> bool:
        """A body whose length nobody said lasts until the server hangs up."""
        coding = ",".join(self.headers.getall("Transfer-Encoding", ())).rpartition(",")[2]
        return self.has_head and "Content-Length" not in self.headers and coding.strip().lower() != "chunked"

    def on_message_begin(self) -> None:
        if self.is_whole:
            self.may_stay = False  # More was said than was asked for.
        else:
            self.reason = b""
            self.headers.clear()

    def on_status(self, status: bytes) -> None:
        if not self.has_head:
            self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """Those behind a body, its trailers, are only counted."""
        self._header_bytes += len(name) + len(value)
        if not self.has_head:
            self.headers.add(name.decode("utf-8", "replace"), value.strip(b" \t").decode("utf-8", "replace"))

    def on_headers_complete(self) -> None:
        if self.has_head:
            return
        self.status = self._parser.get_status_code()
        self._is_interim = 100 <= self.status < 200 and self.status != _SWITCHING_PROTOCOLS
        self.has_head = not self._is_interim
        self.is_whole = self.has_head and self._is_bodiless

    def on_body(self, piece: bytes) -> None:
        if not self.is_whole:
            self._bytes_since_body = 0
            self.unread_bytes += len(piece)
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
        elif not self.is_whole:
            self.is_whole, self.may_stay = True, self._parser.should_keep_alive()

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.is_whole, self.may_stay = True, False
        except HttpParserError:
            if not self.is_whole:  # Else only what stands behind the response is none, and that has been noticed.
                raise
        is_endless = self._bytes_since_body > HEAD_BYTES_MAX and not self.is_whole
        if is_endless or self._header_bytes > HEAD_BYTES_MAX:
            self.is_whole = False
            raise HttpParserError("headers without an end")
