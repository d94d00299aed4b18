"""The hub. Owns: handing recorded events and live frames to whoever follows a tape (L4). Not: storing anything.

Live frames go out before and independently of any append and carry no seq. Recorded events are published once they
are durable. A follower that is too slow loses its place in memory, never an event: it reads on from the tape. Live
text it was too slow for is merged, so what it holds is bounded by the text of one turn.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from palyra.core.events import Event
from palyra.core.ids import RunId, SessionId, StreamId
from palyra.ports.journal import Journal

BUFFERED_FRAMES_MAX = 512  # A follower further behind than this reads from the tape instead.
PAGE_EVENTS = 200


class Live(msgspec.Struct, frozen=True):
    """A frame that no tape holds: model.delta, reasoning.delta, tool.delta or progress."""

    session_id: StreamId
    run_id: RunId
    type: str
    data: dict[str, object]


Frame = Event | Live


class Follower:
    """One reader of one tape, from a cursor on. Every event exactly once, in order."""

    def __init__(self, hub: "Hub", stream: StreamId) -> None:
        self._hub = hub
        self._stream = stream
        self._frames: deque[Frame] = deque()
        self._is_behind = False
        self._cursor = 0
        self._bell = asyncio.Event()

    def offer(self, frame: Frame) -> None:
        """Never blocks and never fails: a slow follower costs the others nothing."""
        if len(self._frames) >= BUFFERED_FRAMES_MAX:
            self._frames.clear()
            self._is_behind = True
        if isinstance(frame, Event) or not self._merge(frame):
            self._frames.append(frame)
        self._bell.set()

    async def follow(self, after_seq: int) -> AsyncIterator[Frame]:
        """Frames after the cursor, without end; the caller stops by closing."""
        self._cursor = after_seq
        self._is_behind = self._is_behind or not self._starts_at(after_seq + 1)
        while True:
            if self._is_behind:
                async for event in self._catch_up():
                    yield event
            for frame in self._ready():
                yield frame
            if not self._is_behind:
                await self._ring()

    async def _catch_up(self) -> AsyncIterator[Event]:
        self._is_behind = False
        while page := await self._hub.journal.read(self._stream, self._cursor, PAGE_EVENTS):
            for event in page:
                self._cursor = event.seq
                yield event

    def _ready(self) -> Iterator[Frame]:
        """What waits here and comes next. A gap means that the tape must be read."""
        while self._frames and not self._is_behind:
            frame = self._frames.popleft()
            if isinstance(frame, Live):
                yield frame
            elif frame.seq == self._cursor + 1:
                self._cursor = frame.seq
                yield frame
            elif frame.seq > self._cursor:
                self._is_behind = True

    def first_seq(self) -> int:
        """The seq of the first recorded event that waits here; 1 when none does."""
        first = next((frame for frame in self._frames if isinstance(frame, Event)), None)
        return first.seq if first is not None else 1

    def close(self) -> None:
        self._hub.forget(self._stream, self)

    async def _ring(self) -> None:
        if not self._frames:
            self._bell.clear()
            await self._bell.wait()

    def _starts_at(self, seq: int) -> bool:
        first = next((frame for frame in self._frames if isinstance(frame, Event)), None)
        return first is not None and first.seq <= seq

    def _merge(self, frame: Live) -> bool:
        """Text that directly continues the last waiting frame joins it."""
        last = self._frames[-1] if self._frames else None
        if not isinstance(last, Live) or last.type != frame.type or len(self._frames) < BUFFERED_FRAMES_MAX // 2:
            return False
        same = all(last.data.get(key) == frame.data.get(key) for key in ("turn", "call_id", "stream"))
        if not same or "text" not in frame.data:
            return False
        text = f"{last.data['text']}{frame.data['text']}"
        self._frames[-1] = Live(last.session_id, last.run_id, last.type, {**last.data, "text": text})
        return True


class Watcher:
    """One reader of the whole journal: a doorbell for what is recorded, and the live frames it still has room for."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._live: deque[Live] = deque(maxlen=BUFFERED_FRAMES_MAX)
        self._bell = asyncio.Event()

    def ring(self) -> None:
        self._bell.set()

    def offer(self, frame: Live) -> None:
        """A watcher that is too slow loses the oldest live frames; their offsets show the gap."""
        self._live.append(frame)
        self._bell.set()

    def take_live(self) -> tuple[Live, ...]:
        taken = tuple(self._live)
        self._live.clear()
        return taken

    async def wait(self) -> None:
        await self._bell.wait()
        self._bell.clear()

    def close(self) -> None:
        self._hub.unwatch(self)


class Hub:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._followers: dict[StreamId, set[Follower]] = {}
        self._watchers: set[Watcher] = set()
        self._so_far: dict[StreamId, dict[tuple[object, ...], tuple[Live, list[str]]]] = {}

    def attach(self, session_id: SessionId | StreamId) -> Follower:
        """A new follower first hears all text so far of what is running."""
        follower = Follower(self, session_id)
        for live in self._text_so_far(session_id):
            follower.offer(live)
        self._followers.setdefault(session_id, set()).add(follower)
        return follower

    def forget(self, stream: StreamId, follower: Follower) -> None:
        followers = self._followers.get(stream, set())
        followers.discard(follower)
        if not followers:
            self._followers.pop(stream, None)

    def publish(self, events: Iterable[Event]) -> None:
        """After the commit that made them durable."""
        for event in events:
            for follower in self._followers.get(event.stream, ()):
                follower.offer(event)
        for watcher in self._watchers:
            watcher.ring()

    def live(self, frame: Live) -> None:
        for follower in self._followers.get(frame.session_id, ()):
            follower.offer(frame)
        for watcher in self._watchers:
            watcher.offer(frame)
        self._keep(frame)

    def end_live(self, session_id: StreamId) -> None:
        """What was live is recorded now."""
        self._so_far.pop(session_id, None)

    def watch(self) -> Watcher:
        """For readers of the whole journal; the journal itself is what they read."""
        watcher = Watcher(self)
        for session_id in self._so_far:
            for live in self._text_so_far(session_id):
                watcher.offer(live)
        self._watchers.add(watcher)
        return watcher

    def _text_so_far(self, session_id: StreamId) -> Iterator[Live]:
        for live, texts in self._so_far.get(session_id, {}).values():
            yield Live(live.session_id, live.run_id, live.type, {**live.data, "offset": 0, "text": "".join(texts)})

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def _keep(self, frame: Live) -> None:
        text = frame.data.get("text")
        if not isinstance(text, str):
            return
        key = (frame.type, frame.data.get("turn"), frame.data.get("call_id"), frame.data.get("stream"))
        kept = self._so_far.setdefault(frame.session_id, {})
        if key in kept:
            kept[key][1].append(text)
        else:
            kept[key] = (frame, [text])
