"""The writer thread: the queue before it, group commit, and the answers to the waiters.

Does not own: what a commit does (recorder).
While one group is being made durable, the next gathers in the queue.
Invariants: requests are served in order. A cancelled waiter harms no one; its commit happens as a whole or not at all.
What one request raises is the outcome of that request. The thread ends when it is stopped, or when the file cannot be
opened anew after a fault. Then all that is left is refused, so nobody waits for ever. At most QUEUED_MAX requests of an
event loop wait; the next one waits for a place.
"""

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from palyra.adapters.store.sqlite.recorder import Recorder
from palyra.core.commit.model import Commit
from palyra.core.errors import PalyraError, Unavailable
from palyra.core.events import Event

GROUP_MAX = 512  # So many hide an fsync, and are few enough that the first of them does not wait long for the last.
QUEUED_MAX = 4_096  # Limits the prepared commits in memory. Beyond that, callers have to wait.

Act = Callable[[Recorder], Any]
Answer = TypeVar("Answer")


class _Line:
    """The requests of one event loop. All but `tell` runs in that loop's thread.

    It is no asyncio.Semaphore: whole groups are released at once, and callers that need not wait take a short path.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._free_count = QUEUED_MAX
        self._waiting: deque[asyncio.Future[None]] = deque()

    def has_entered(self) -> bool:
        """Takes a place in the queue if there is one and nobody waits for it."""
        if self._free_count == 0 or self._waiting:
            return False
        self._free_count -= 1
        return True

    async def enter(self) -> None:
        """Waits for a place. Places are given in the order of arrival."""
        turn = self.loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(1)
            raise

    def leave(self, count: int) -> None:
        self._free_count += count
        while self._waiting and self._free_count > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                self._free_count -= 1
                turn.set_result(None)

    def tell(self, answers: list[tuple["_Request", Any]]) -> None:
        with suppress(RuntimeError):  # The loop is closed, so nobody is left to be told.
            self.loop.call_soon_threadsafe(self._settle, answers)

    def _settle(self, answers: list[tuple["_Request", Any]]) -> None:
        self.leave(len(answers))
        for request, answer in answers:
            future = request.future
            if future.done():
                continue
            if isinstance(answer, PalyraError):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class _Request(msgspec.Struct, gc=False):
    work: Commit | Act
    line: _Line
    future: asyncio.Future[Any]


class Writer:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._queue: SimpleQueue[_Request | None] = SimpleQueue()
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._group: list[_Request] = []
        self._is_closed = False
        self._put_lock = threading.Lock()  # Held while a request goes in, so that none does after the writer is closed.
        self._end: concurrent.futures.Future[None] = concurrent.futures.Future()
        threading.Thread(target=self._serve, name="journal-writer", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """False once the thread ended or was asked to: nothing can be recorded any more."""
        return not self._is_closed

    def commit(self, commit: Commit) -> Awaitable[tuple[Event, ...]]:
        return self._ask(commit)

    def perform(self, act: Callable[[Recorder], Answer]) -> Awaitable[Answer]:
        """Runs `act` in the writer thread, after everything asked before it."""
        return self._ask(act)

    async def stop(self, last: Act) -> None:
        """Refuses new requests, finishes those that came, does `last`, and closes the file."""
        line = self._line()
        if not line.has_entered():
            await line.enter()
        request = _Request(last, line, line.loop.create_future())
        with self._put_lock:
            if not self._is_closed:
                self._queue.put(request)
                self._queue.put(None)
                self._is_closed = True
            else:
                line.leave(1)
                request.future.set_result(None)
        try:
            await request.future
        finally:
            # The end is shielded: cancelling one who waits must not cancel the end itself.
            await asyncio.shield(asyncio.wrap_future(self._end))

    def _ask(self, work: Commit | Act) -> Awaitable[Any]:
        """Returns the answer itself as an awaitable.

        Only a caller that finds the queue full waits in a coroutine of its own.
        """
        line = self._line()
        return self._put(work, line) if line.has_entered() else self._wait(work, line)

    async def _wait(self, work: Commit | Act, line: _Line) -> Any:
        await line.enter()
        return await self._put(work, line)

    def _put(self, work: Commit | Act, line: _Line) -> "asyncio.Future[Any]":
        request = _Request(work, line, line.loop.create_future())
        with self._put_lock:
            if self._is_closed:
                line.leave(1)
                raise _closed()
            self._queue.put(request)
        return request.future

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line(loop)
        return line

    def _serve(self) -> None:
        try:
            while not self._recorder.is_lost and self._drain():
                self._serve_group()
                self._group = []
        finally:
            self._refuse_the_rest()
            self._close()

    def _serve_group(self) -> None:
        commits: list[_Request] = []
        for request in self._group:
            if isinstance(request.work, Commit):
                commits.append(request)
            else:
                self._serve_commits(commits)
                commits = []
                self._serve_act(request, request.work)
        self._serve_commits(commits)

    def _drain(self) -> bool:
        """Takes waiting requests, at least one and at most a group; False once there is nothing more to come."""
        request = self._queue.get()
        while request is not None:
            self._group.append(request)
            if len(self._group) == GROUP_MAX:
                return True
            try:
                request = self._queue.get_nowait()
            except Empty:
                return True
        if self._group:
            self._queue.put(None)  # The end mark is met again when these requests are served.
        return bool(self._group)

    def _serve_commits(self, requests: list[_Request]) -> None:
        if requests:
            outcomes = self._recorder.commit_group(
                [request.work for request in requests if isinstance(request.work, Commit)]
            )
            _tell(list(zip(requests, outcomes, strict=True)))

    def _serve_act(self, request: _Request, act: Act) -> None:
        _tell([(request, self._recorder.perform(act))])

    def _refuse_the_rest(self) -> None:
        with self._put_lock:
            self._is_closed = True
        left = self._group
        with suppress(Empty):
            while True:
                left += [request for request in [self._queue.get_nowait()] if request is not None]
        _tell([(request, _closed()) for request in left])

    def _close(self) -> None:
        try:
            self._recorder.close()
        except PalyraError as problem:
            self._end.set_exception(problem)
        else:
            self._end.set_result(None)


def _tell(answers: list[tuple[_Request, Any]]) -> None:
    """Makes one call into each event loop, however many of its requests are answered."""
    while answers:
        line = answers[0][0].line
        line.tell([answer for answer in answers if answer[0].line is line])
        answers = [answer for answer in answers if answer[0].line is not line]


def _closed() -> Unavailable:
    return Unavailable("journal_closed", "the journal is closed; the daemon is stopping or its writer has failed")
