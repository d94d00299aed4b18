"""The queue of everything a chat or a run reacts to: frames of the stream, typed lines, interrupts.

Owns: one order for all of them, following the stream, and stopping at once.
Does not own: reading keys (edited_prompt, plain_prompt), or acting on an item (conversation, run_view).
Invariant: one reader takes one item after the other, so nothing here needs a lock.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress

import msgspec
import typer

from palyra.cli.client import Client
from palyra.cli.sse import SseFrame
from palyra.cli.terminal.questions import CardQuestion
from palyra.core.errors import PalyraError

EXIT_TERMINATED = 128 + signal.SIGTERM


class Typed(msgspec.Struct, frozen=True):
    """A line, and the question that the prompt showed when Enter was pressed.

    `typed` holds the typed pieces of a line of which others were pasted, and `head` the one that it begins with.
    """

    line: str
    question: CardQuestion | None = None
    typed: str | None = None
    head: str = ""

    @property
    def command(self) -> str:
        """The name of the command that the line is. A name of which a part was pasted is none."""
        name = self.line.split()[0] if self.line.startswith("/") else ""
        is_typed = self.typed is None or self.head.split()[:1] == [name]
        return name if is_typed else ""


class Interrupted(msgspec.Struct, frozen=True):
    """Ctrl-C."""

    is_line_cleared: bool = False


class InputEnded(msgspec.Struct, frozen=True):
    """Ctrl-D at an empty line, or a closed terminal."""


class Retrying(msgspec.Struct, frozen=True):
    """The stream broke and is reconnecting."""

    error: PalyraError


class Connected(msgspec.Struct, frozen=True):
    """The stream is connected, for the first time or again."""


class StreamLost(msgspec.Struct, frozen=True):
    """The stream could not be reconnected."""

    error: PalyraError


Item = SseFrame | Typed | Interrupted | InputEnded | Retrying | Connected | StreamLost
Put = Callable[[Item], None]


class Inbox:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None
        self._is_tried = asyncio.Event()

    async def next(self) -> Item:
        return await self._items.get()

    def put(self, item: Item) -> None:
        self._items.put_nowait(item)

    async def follow(self, path: str, after: int | None) -> None:
        """Takes frames from this path from now on.

        It waits for the first attempt to connect, because live text before that would be missed.
        """
        self._stop()
        self._is_tried.clear()
        self._following = asyncio.create_task(self._follow(path, after))
        await self._is_tried.wait()

    async def close(self) -> None:
        self._stop()
        if self._following is not None:
            with suppress(asyncio.CancelledError):
                await self._following

    def _stop(self) -> None:
        if self._following is not None:
            self._following.cancel()

    async def _follow(self, path: str, after: int | None) -> None:
        try:
            async for frame in self._client.follow(path, after, self._change):
                self.put(frame)
        except PalyraError as error:
            self.put(StreamLost(error))
            self._is_tried.set()

    def _change(self, error: PalyraError | None) -> None:
        self.put(Connected() if error is None else Retrying(error))
        self._is_tried.set()


class StoppableTask:
    """Work that a key or SIGTERM can stop at once, also while it waits for the daemon.

    The work is cancelled and not killed, so that the terminal gets its mode back.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._exit_code: int | None = None

    async def run(self, work: Coroutine[None, None, None], on_interrupt: Callable[[], None]) -> None:
        """Raises typer.Exit if the work was stopped with another exit code than 0."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(work)
        loop.add_signal_handler(signal.SIGTERM, self.stop, EXIT_TERMINATED)
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
        try:
            await self._task
        except asyncio.CancelledError:
            if self._exit_code is None:
                raise
            if self._exit_code:
                raise typer.Exit(self._exit_code) from None
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)

    def stop(self, exit_code: int = 0) -> None:
        self._exit_code = exit_code
        if self._task is not None:
            self._task.cancel()
