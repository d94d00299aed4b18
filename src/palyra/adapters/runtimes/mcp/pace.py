"""How much a server may say. Owns: what reading a message costs, and a limit to that in each second. Not: reading (stdio, http).

Parsing takes time by the parts of a message rather than by its bytes: 8 MiB of text take 9 ms, 8 MiB of empty lists 4 s and
a gigabyte of memory, in which nothing else happens. So parts are counted before anything is parsed.
"""

import asyncio

PARTS_MAX = 100_000  # Of one message: a tenth of a second or two.
PARTS_PER_UNIT = 8
UNITS_PER_S_NORMAL = 1_000  # A server that says more is flooding: what nobody waits for is then dropped unread.
UNITS_PER_S_MAX = 20_000  # About a quarter of the loop's time. Beyond it the rest of the second is waited.

_MARKS = (b",", b"[", b"{")


def count_parts(body: bytes) -> int:
    """At least as many as there are: what looks like one inside a text counts too."""
    return sum(body.count(mark) for mark in _MARKS)


def has_too_many_parts(body: bytes) -> bool:
    """Looks outside of texts only, and only where it matters, since that takes longer."""
    if count_parts(body) <= PARTS_MAX:
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * PARTS_MAX:
        return True
    return count_parts(b"".join(plain.split(b'"')[::2])) > PARTS_MAX


class MessagePace:
    """Of one connection."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._units = 0

    @property
    def is_normal(self) -> bool:
        return self._units <= UNITS_PER_S_NORMAL

    async def take(self, body: bytes, lines_count: int = 1) -> None:
        """Before this is read. Returns when there is time for it."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._began_s >= 1:
            self._began_s, self._units = now_s, 0
        before = self._units
        self._units += lines_count + count_parts(body) // PARTS_PER_UNIT
        if before > UNITS_PER_S_MAX:
            await asyncio.sleep(1 - (now_s - self._began_s))
        elif before // UNITS_PER_S_NORMAL != self._units // UNITS_PER_S_NORMAL:
            await asyncio.sleep(0)
