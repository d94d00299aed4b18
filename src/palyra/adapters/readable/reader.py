"""Reads documents: short plain files in a thread, everything else in a process of its own.

Does not own: the readers of the kinds (extraction), the process's own limits (child).
Invariants: nothing here blocks the event loop. A document that takes too much time, memory or output ends its process
alone, and so does a cancelled read.
"""

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process

import msgspec

from palyra.adapters.readable.child import ReadingReply, ReadingTask
from palyra.adapters.readable.extraction import extract
from palyra.core.documents import DocumentKind, find_kind, unreadable
from palyra.core.errors import Unavailable
from palyra.ports.readable import ReadableText

BODY_BYTES_MAX = 32 * 1024 * 1024  # As large as an upload may be.
IN_PROCESS_BYTES_MAX = (
    128 * 1024
)  # Reading so much plain text takes milliseconds, starting a process a tenth of a second.
READ_S = 20.0
PROCESSES_MAX = 2  # Each may use a whole core.
_REPLY_BYTES_A_CHAR = 6  # What JSON needs at most for one character.
_REPLY_BYTES = 16 * 1024  # Room for everything but the text.
_PIECE_BYTES = 256 * 1024
_CHILD = "palyra.adapters.readable.child"


class IsolatedReader:
    """Implements ports.readable.DocumentReader."""

    def __init__(self, read_s: float = READ_S) -> None:
        self._read_s = read_s
        self._processes = asyncio.Semaphore(PROCESSES_MAX)

    async def read(self, body: bytes, media_type: str, chars_max: int) -> ReadableText:
        if len(body) > BODY_BYTES_MAX:
            raise unreadable(f"it has {len(body)} bytes; the most that is read is {BODY_BYTES_MAX}")
        if chars_max < 1:
            raise unreadable("there is no room for any of its text")
        kind = find_kind(body, media_type)
        if kind not in (DocumentKind.PDF, DocumentKind.HTML) and len(body) <= IN_PROCESS_BYTES_MAX:
            return await asyncio.to_thread(extract, body, media_type, chars_max)
        async with self._processes:
            return await self._read_apart(body, ReadingTask(media_type=media_type, chars_max=chars_max))

    async def _read_apart(self, body: bytes, task: ReadingTask) -> ReadableText:
        process = await _start()
        try:
            async with asyncio.timeout(self._read_s):
                await _send(process, msgspec.json.encode(task) + b"\n", body)
                said = await receive(process, task.chars_max * _REPLY_BYTES_A_CHAR + _REPLY_BYTES)
        except TimeoutError as cause:
            raise unreadable("reading it takes too long") from cause
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
        reply = _decoded(said)
        if reply is None:
            raise unreadable("it is damaged, or reading it takes too much time or memory")
        if reply.read is None:
            raise unreadable(reply.reason)
        return reply.read


async def _start() -> Process:
    """Starts the process. It gets no environment, and its modules come from the installation alone."""
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", _CHILD, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, cwd="/"
        )
    except OSError as cause:
        raise Unavailable("reader_failed", f"the reader of documents cannot start: {cause.strerror}") from cause


async def _send(process: Process, *parts: bytes) -> None:
    """Writes the document. A process that has ended meanwhile is noticed when its reply is read."""
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        for part in parts:
            process.stdin.write(part)
            await process.stdin.drain()
    process.stdin.close()


async def receive(process: Process, bytes_max: int) -> bytes:
    """Reads the whole reply; nothing if it is longer than it may be.

    The rest of too long a reply is read and dropped: a pipe that is not read to its end keeps the process from ending.
    """
    assert process.stdout is not None
    said = bytearray()
    while piece := await process.stdout.read(_PIECE_BYTES):
        if len(said) <= bytes_max:
            said += piece
        else:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return bytes(said) if len(said) <= bytes_max else b""


def _decoded(said: bytes) -> ReadingReply | None:
    try:
        return msgspec.json.decode(said, type=ReadingReply)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
