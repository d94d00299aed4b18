"""The hub delivers recorded events and live frames to the followers of a tape (L4).

Does not own: storage (the journal).
Live frames go out before any append, independently of it, and carry no seq. Recorded events are published once they are
durable.
A follower that is too slow loses its buffer, never an event: it continues from the tape. Live text it was too slow for
is merged, so its buffer is bounded by the text of one turn.
Frames that wait together are taken together, so that a reader needs one task and wakes once. A reader that waits with
an empty buffer can receive a live frame directly. A token then needs no iteration of the event loop of its own.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import msgspec

from palyra.core.events import Event
from palyra.core.ids import RunId, SessionId, StreamId
from palyra.engine.wakeup import Wakeup
from palyra.ports.journal import Journal
from palyra.ports.telemetry import RunObserver

BUFFERED_FRAMES_MAX = 512  # A follower further behind than this reads from the tape instead.
TAKEN_FRAMES_MAX = 128  # In one take. A reader that keeps up never has more; the rest stays, to be merged.
PAGE_EVENTS = 200
FIRST_TEXT_TYPE = "model.delta"


class LiveFrame(msgspec.Struct, frozen=True):
    """A frame that no tape holds: model.delta, reasoning.delta, tool.delta or progress."""

    session_id: StreamId
    run_id: RunId
    type: str
    data: dict[str, object]


Frame = Event | LiveFrame
Tap = Callable[[LiveFrame], bool]


class Frames(ABC, AsyncIterator[Frame]):
    """Frames for one reader, who takes all that wait, or one after the other."""

    def __init__(self) -> None:
        self.is_over = False  # True once nothing comes after the last take.
        self._taken: deque[Frame] = deque()

    @abstractmethod
    async def take(self) -> Sequence[Frame]:
        """Waits for frames and returns all that wait. Returns nothing when woken, and at the end."""

    @abstractmethod
    def wake(self) -> None:
        """Lets a waiting reader look at something else. A reader that reads the tape at that moment finishes first."""

    def tap(self, tap: Tap) -> None:
        """Offers live frames to `tap` first, while the reader waits with an empty buffer. A refused frame is buffered.

        At most one frame is offered at each time of the loop's clock, so that later ones leave together. Not every kind
        of frames has taps.
        """

    @abstractmethod
    def close(self) -> None: ...

    async def aclose(self) -> None:
        self.close()

    async def __anext__(self) -> Frame:
        while not self._taken:
            if self.is_over:
                raise StopAsyncIteration
            self._taken.extend(await self.take())
        return self._taken.popleft()


class NoFrames(Frames):
    """For a reader that has seen everything."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = True

    async def take(self) -> Sequence[Frame]:
        return ()

    def wake(self) -> None:
        return

    def close(self) -> None:
        return


class Follower(Frames):
    """One reader of one tape, from a cursor on, without end. It gets every event exactly once, in order."""

    def __init__(self, hub: "Hub", stream: StreamId) -> None:
        super().__init__()
        self._hub = hub
        self._stream = stream
        self._frames: deque[Frame] = deque()
        self._is_behind = False
        self._is_reading = False  # True while it reads the tape page by page.
        self._cursor = 0
        self._wakeup = Wakeup()
        self._tap: Tap | None = None
        self._clock = asyncio.get_running_loop().time
        self._tapped_at_s = 0.0

    def offer(self, frame: Frame) -> None:
        """Never blocks and never fails: a slow follower costs the others nothing."""
        if len(self._frames) >= BUFFERED_FRAMES_MAX:
            self._frames.clear()
            self._is_behind = True
        if isinstance(frame, Event) or not self._merge(frame):
            self._frames.append(frame)
        self._wakeup.set()

    def follow(self, after_seq: int) -> "Follower":
        """Sets the cursor, once, before anything is taken."""
        self._cursor = after_seq
        self._is_behind = self._is_behind or not self._starts_at(after_seq + 1)
        return self

    async def take(self) -> Sequence[Frame]:
        self._wakeup.clear()
        if self._is_behind or self._is_reading:
            page = await self._read_on()
            if page:
                return page
        ready = self._ready()
        if ready or self._is_behind:
            return ready
        await self._wakeup.wait()
        return self._ready()

    def tap(self, tap: Tap) -> None:
        self._tap = tap

    def wake(self) -> None:
        self._wakeup.set()

    def is_handed(self, frame: LiveFrame) -> bool:
        """Tells whether the tap took the frame.

        The clock of uvloop does not advance during one iteration of the loop, so a second frame finds it unchanged.
        """
        tap = self._tap
        if tap is None or self._frames or self._is_behind or not self._wakeup.is_awaited:
            return False
        now_s = self._clock()
        if now_s == self._tapped_at_s or not tap(frame):
            return False
        self._tapped_at_s = now_s
        return True

    async def _read_on(self) -> Sequence[Event]:
        """Reads a page of the tape. Events published meanwhile are buffered; an empty page is the end of the tape."""
        self._is_behind, self._is_reading = False, True
        page = await self._hub.journal.read(self._stream, self._cursor, PAGE_EVENTS)
        if page:
            self._cursor = page[-1].seq
        else:
            self._is_reading = False
        return page

    def _ready(self) -> list[Frame]:
        """Takes the buffered frames that come next. A gap means that the tape must be read."""
        ready: list[Frame] = []
        while self._frames and not self._is_behind and len(ready) < TAKEN_FRAMES_MAX:
            frame = self._frames.popleft()
            if isinstance(frame, LiveFrame):
                ready.append(frame)
            elif frame.seq == self._cursor + 1:
                self._cursor = frame.seq
                ready.append(frame)
            elif frame.seq > self._cursor:
                self._is_behind = True
        return ready

    def first_seq(self) -> int:
        """Returns the seq of the first recorded event in the buffer, or 1 if there is none."""
        first = next((frame for frame in self._frames if isinstance(frame, Event)), None)
        return first.seq if first is not None else 1

    def close(self) -> None:
        self._tap = None  # It leads back to whoever reads these frames.
        self._hub.forget(self._stream, self)

    def _starts_at(self, seq: int) -> bool:
        first = next((frame for frame in self._frames if isinstance(frame, Event)), None)
        return first is not None and first.seq <= seq

    def _merge(self, frame: LiveFrame) -> bool:
        """Joins text that directly continues the last buffered frame."""
        last = self._frames[-1] if self._frames else None
        if not isinstance(last, LiveFrame) or last.type != frame.type or len(self._frames) < BUFFERED_FRAMES_MAX // 2:
            return False
        same = all(last.data.get(key) == frame.data.get(key) for key in ("turn", "call_id", "stream"))
        if not same or "text" not in frame.data:
            return False
        text = f"{last.data['text']}{frame.data['text']}"
        self._frames[-1] = LiveFrame(last.session_id, last.run_id, last.type, {**last.data, "text": text})
        return True


class Watcher:
    """One reader of the whole journal: a wakeup for what is recorded, and the live frames it still has room for."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._live: deque[LiveFrame] = deque(maxlen=BUFFERED_FRAMES_MAX)
        self._wakeup = Wakeup()

    def wake(self) -> None:
        self._wakeup.set()

    def offer(self, frame: LiveFrame) -> None:
        """Buffers a frame. A watcher that is too slow loses the oldest live frames; their offsets show the gap."""
        self._live.append(frame)
        self._wakeup.set()

    def take_live(self) -> tuple[LiveFrame, ...]:
        taken = tuple(self._live)
        self._live.clear()
        return taken

    async def wait(self) -> None:
        await self._wakeup.wait()
        self._wakeup.clear()

    def close(self) -> None:
        self._hub.unwatch(self)


class Hub:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._followers: dict[StreamId, set[Follower]] = {}
        self._watchers: set[Watcher] = set()
        self._observers: tuple[RunObserver, ...] = ()
        self._so_far: dict[StreamId, dict[tuple[object, ...], tuple[LiveFrame, list[str]]]] = {}

    def attach(self, session_id: SessionId | StreamId) -> Follower:
        """Adds a follower, which first gets all text so far of what is running."""
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

    def observe(self, observer: RunObserver) -> None:
        """Tells telemetry of everything from now on. It hears in a later turn of the loop, and its faults stay there."""
        self._observers = (*self._observers, observer)

    def publish(self, events: Sequence[Event]) -> None:
        """Call it after the commit that made the events durable."""
        loop = asyncio.get_running_loop()
        for observer in self._observers:
            loop.call_soon(observer.recorded, events)
        for event in events:
            for follower in self._followers.get(event.stream, ()):
                follower.offer(event)
        for watcher in self._watchers:
            watcher.wake()

    def live(self, frame: LiveFrame) -> None:
        for follower in self._followers.get(frame.session_id, ()):
            if not follower.is_handed(frame):
                follower.offer(frame)
        for watcher in self._watchers:
            watcher.offer(frame)
        self._keep(frame)

    def end_live(self, session_id: StreamId) -> None:
        """Forgets live text that is recorded now."""
        self._so_far.pop(session_id, None)

    def live_count(self, session_id: StreamId) -> int:
        """How many pieces of live text there are of what is running: it grows while a model or a tool speaks."""
        return sum(len(texts) for _, texts in self._so_far.get(session_id, {}).values())

    def live_text(self, session_id: StreamId, run_id: RunId) -> str:
        """Returns what the model has said so far in the running turn of a run."""
        said = [texts for live, texts in self._so_far.get(session_id, {}).values()
                if live.type == FIRST_TEXT_TYPE and live.run_id == run_id]  # fmt: skip
        return "".join(said[-1]) if said else ""

    def watch(self) -> Watcher:
        """For readers of the whole journal, who read the journal itself."""
        watcher = Watcher(self)
        for session_id in self._so_far:
            for live in self._text_so_far(session_id):
                watcher.offer(live)
        self._watchers.add(watcher)
        return watcher

    def _text_so_far(self, session_id: StreamId) -> Iterator[LiveFrame]:
        for live, texts in self._so_far.get(session_id, {}).values():
            yield LiveFrame(live.session_id, live.run_id, live.type, {**live.data, "offset": 0, "text": "".join(texts)})

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def _keep(self, frame: LiveFrame) -> None:
        data = frame.data
        text = data.get("text")
        if not isinstance(text, str):
            return
        key = (frame.type, data.get("turn"), data.get("call_id"), data.get("stream"))
        kept = self._so_far.get(frame.session_id)
        if kept is None:
            kept = self._so_far[frame.session_id] = {}
        said = kept.get(key)
        if said is not None:
            said[1].append(text)
        else:
            kept[key] = (frame, [text])
            self._tell_first(frame)

    def _tell_first(self, frame: LiveFrame) -> None:
        turn = frame.data.get("turn")
        if frame.type == FIRST_TEXT_TYPE and isinstance(turn, int):
            for observer in self._observers:
                asyncio.get_running_loop().call_soon(observer.first_text, frame.run_id, turn)
