"""An inbox. Owns: bringing frames, lines, keys and interrupts to one reader, one after the other. Not: acting on any.

One reader means no locks: whatever a chat or a run decides, it decides between two items.
"""

import asyncio
import codecs
import os
import signal
import sys
from contextlib import suppress

import msgspec

from palyra.cli.client import Client
from palyra.cli.sse import SseFrame
from palyra.core.errors import PalyraError

READ_BYTES_MAX = 65_536


class Typed(msgspec.Struct, frozen=True):
    """What came from the keyboard, as it came; empty at its end."""

    text: str


class Interrupted(msgspec.Struct, frozen=True):
    """Ctrl-C."""


class Retrying(msgspec.Struct, frozen=True):
    """The stream broke and is being connected again."""

    error: PalyraError


class Connected(msgspec.Struct, frozen=True):
    """The stream is there, for the first time or again."""


class StreamLost(msgspec.Struct, frozen=True):
    """The stream is gone for good."""

    error: PalyraError


Item = SseFrame | Typed | Interrupted | Retrying | Connected | StreamLost


class Inbox:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None
        self._is_listening = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def next(self) -> Item:
        return await self._items.get()

    def follow(self, path: str, after: int | None) -> None:
        """From now on frames come from here."""
        self.stop()
        self._following = asyncio.create_task(self._follow(path, after))

    def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()

    async def close(self) -> None:
        self.stop()
        if self._following is not None:
            with suppress(asyncio.CancelledError):
                await self._following

    def catch_interrupts(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._items.put_nowait, Interrupted())

    def release_interrupts(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def listen(self) -> None:
        """Whatever is typed from now on becomes an item."""
        self._is_listening = True
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def hush(self) -> None:
        if not self._is_listening:
            return
        self._is_listening = False
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        arrived = os.read(sys.stdin.fileno(), READ_BYTES_MAX)
        if not arrived:
            self.hush()
        text = self._decoder.decode(arrived, final=not arrived)
        if text or not arrived:
            self._items.put_nowait(Typed(text))

    async def _follow(self, path: str, after: int | None) -> None:
        try:
            async for frame in self._client.follow(path, after, self._change):
                self._items.put_nowait(frame)
        except PalyraError as error:
            self._items.put_nowait(StreamLost(error))

    def _change(self, error: PalyraError | None) -> None:
        self._items.put_nowait(Connected() if error is None else Retrying(error))
