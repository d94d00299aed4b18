"""Redacts texts of any length without holding the event loop.

Owns: how much is scanned before other tasks have their turn, and the buffer of live text that came too fast.
Does not own: what a secret is (core.redaction), frames (model_call, tool_call).
A stranger chooses how long a tool's output is and how costly to scan. So a long text is fed to a redaction stream in
pieces, which gives the same result as the whole text at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from palyra.core.redaction import Redacted, RedactionStream, Redactor

# At the measured worst of 10 µs a character, a piece takes 10 ms. Two streams of a call may have a piece each.
PIECE_CHARS = 1_024
LIVE_CHARS_MAX = 1 << 20  # Live text that waits for its turn. Beyond it live text ends; the record has all of it.


async def redact_text(redactor: Redactor, text: str) -> Redacted:
    """Redacts a whole text. Other tasks have their turn after each piece."""
    if len(text) <= PIECE_CHARS:
        return redactor.text(text)
    stream, ready = redactor.stream(), []
    for start in range(0, len(text), PIECE_CHARS):
        ready.append(stream.feed(text[start : start + PIECE_CHARS]))
        await asyncio.sleep(0)
    ready.append(stream.finish())
    return Redacted("".join(ready), stream.secrets)


class LiveFeed:
    """Redacts one growing live text and passes on what is safe. A long piece is passed on over several turns."""

    def __init__(self, stream: RedactionStream, send: Callable[[str], None]) -> None:
        self._stream = stream
        self._send = send
        self._waiting: deque[str] = deque()
        self._waiting_chars = 0
        self._is_over = False

    def feed(self, text: str) -> None:
        if self._is_over:
            return
        if not self._waiting and len(text) <= PIECE_CHARS:
            self._pass_on(self._stream.feed(text))
            return
        self._waiting_chars += len(text)
        if self._waiting_chars > LIVE_CHARS_MAX:
            self._end()
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._take_turn)
        self._waiting.extend(text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))

    def finish(self) -> None:
        """Passes on the rest. Text that still waits for its turn is left to the record."""
        if not self._is_over and not self._waiting:
            self._pass_on(self._stream.finish())
        self._end()

    def _take_turn(self) -> None:
        if not self._waiting:
            return
        piece = self._waiting.popleft()
        self._waiting_chars -= len(piece)
        self._pass_on(self._stream.feed(piece))
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _pass_on(self, safe: str) -> None:
        if safe:
            self._send(safe)

    def _end(self) -> None:
        self._is_over = True
        self._waiting.clear()
        self._waiting_chars = 0
