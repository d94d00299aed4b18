"""Limits how much an MCP server may send: what reading a message costs, and how much of that fits in a second.

Does not own: reading messages (stdio, http).
The time of parsing depends on the parts of a message rather than on its bytes. 8 MiB of text take 9 ms. 8 MiB of empty
lists take 4 s and a gigabyte of memory, and the event loop stands still meanwhile. So parts are counted before anything
is parsed.
"""

import asyncio

PARTS_MAX = 100_000  # Limits one message. So many parts take a tenth of a second or two.
PARTS_PER_UNIT = 8
# A server that sends more is flooding. Messages that nobody waits for are then dropped unread.
UNITS_PER_S_NORMAL = 1_000
# This is about a quarter of the loop's time. Beyond it, reading waits for the rest of the second.
UNITS_PER_S_MAX = 20_000

_MARKS = (b",", b"[", b"{")


def count_parts(body: bytes) -> int:
    """Counts at least as many parts as there are: characters inside a text that look like a part count too."""
    return sum(body.count(mark) for mark in _MARKS)


def has_too_many_parts(body: bytes) -> bool:
    """Tells whether there are too many parts outside of texts.

    Texts are told apart only where it matters, because that is slow.
    """
    if count_parts(body) <= PARTS_MAX:
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * PARTS_MAX:
        return True
    return count_parts(b"".join(plain.split(b'"')[::2])) > PARTS_MAX


class MessagePace:
    def __init__(self) -> None:
        self._began_s = 0.0
        self._units = 0

    @property
    def is_normal(self) -> bool:
        return self._units <= UNITS_PER_S_NORMAL

    async def take(self, body: bytes, lines_count: int = 1) -> None:
        """Waits until there is time to read this body."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._began_s >= 1:
            self._began_s, self._units = now_s, 0
        before = self._units
        self._units += lines_count + count_parts(body) // PARTS_PER_UNIT
        if before > UNITS_PER_S_MAX:
            await asyncio.sleep(1 - (now_s - self._began_s))
        elif before // UNITS_PER_S_NORMAL != self._units // UNITS_PER_S_NORMAL:
            await asyncio.sleep(0)
