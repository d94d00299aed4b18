"""Streams under a test's control, for what no engine does on demand: an endless feed, a damaged one, a word at a time.

Owns: events and live frames made by hand, and a stream of them.
Does not own: how a real tape is followed (engine.hub).
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from palyra.core.events import Data, Event
from palyra.core.events.run import EndReason, MessageUser, RunDone
from palyra.core.ids import Principal, RunId, SessionId, StreamId
from palyra.core.trust import Trust
from palyra.engine.hub import Frame, Frames, LiveFrame

SESSION_ID = SessionId(StreamId("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
RUN_ID = RunId("01ARZ3NDEKTSV4RRFFQ69G5FAW")
TAKEN_MAX = 10  # Frames at once.


def event(seq: int, data: Data | None = None) -> Event:
    data = data if data is not None else MessageUser(text=f"line one\nline two of {seq} é")
    return Event(
        seq=seq,
        position=1000 + seq,
        stream=SESSION_ID,
        run_id=RUN_ID,
        type=data.TYPE,
        at_ms=1_700_000_000_000 + seq,
        actor=Principal("user:owner"),
        trust=Trust.OPERATOR,
        data=data,
        hash="ef" * 32,
        salt=None,
        digest="cd" * 32,
    )


def last_event(seq: int) -> Event:
    return event(seq, RunDone(reason=EndReason.FINAL_ANSWER, message=""))


def delta(text: str, offset: int = 0) -> LiveFrame:
    return LiveFrame(SESSION_ID, RUN_ID, "model.delta", {"turn": 1, "offset": offset, "text": text})


class GivenFrames(Frames):
    """Frames that a test gives one after the other; it can be seen how many were taken and whether it was closed."""

    def __init__(self, *frames: Frame, is_over: bool = False) -> None:
        super().__init__()
        self.closed = asyncio.Event()
        self.taken_count = 0
        self._items: deque[Frame | Exception | None] = deque(frames)
        self._given = asyncio.Event()
        if is_over:
            self.give(None)

    def give(self, item: Frame | Exception | None) -> None:
        """An exception is raised in its turn; None is the end."""
        self._items.append(item)
        self._given.set()

    async def take(self) -> Sequence[Frame]:
        if not self._items:
            self._given.clear()
            await self._given.wait()
        taken: list[Frame] = []
        while self._items and len(taken) < TAKEN_MAX and not self.is_over:
            item = self._items.popleft()
            if isinstance(item, Exception):
                raise item
            self.is_over = item is None
            taken += [item] if item is not None else []
        self.taken_count += len(taken)
        return taken

    def wake(self) -> None:
        self._given.set()

    def close(self) -> None:
        self.closed.set()
