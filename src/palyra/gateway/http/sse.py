"""Server-sent events: one stream for each client that follows.

Owns: the outbox of a stream, its heartbeats, its end, and how many streams there may be.
Does not own: the bytes of a frame (frames), following a tape (engine.hub).
Invariants: a slow client delays nobody else. Frames are taken only when the outbox is empty, so what a client does not
read stays with the hub and the tape. A client that reads nothing for two heartbeats is cut. However a stream ends, its
frames are closed and its slot is free again. One task takes frames and writes them, because a second one would cost
every token a turn of the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
from starlette.types import Receive, Scope, Send

from palyra.core.errors import Unavailable
from palyra.engine.hub import Frame, Frames, LiveFrame
from palyra.gateway.http.settings import OUTBOX_BYTES_MAX, RETRY_HINT_MS, STREAMS_MAX, STREAMS_PER_TOKEN_MAX

ABORT_EXTENSION = "palyra.abort"  # In the scope; its `call` cuts the connection, whatever waits in it.
WRITE_EXTENSION = "palyra.write"  # Its `call` writes a piece of the body at once, or is False where that cannot be.
HEARTBEAT = b":\n\n"
EVENT_STREAM_TYPE = "text/event-stream"
STALLED_BEATS_MAX = 1

_RETRY_HINT = b"retry: %d\n\n" % RETRY_HINT_MS
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
)
_log = logging.getLogger("palyra.gateway")


class StreamSlot:
    """Room for one stream, given back when the stream ends."""

    def __init__(self, token_id: str) -> None:
        self.token_id = token_id
        self.is_ended = False
        self._wake: Callable[[], None] | None = None

    def taken_by(self, wake: Callable[[], None]) -> None:
        """`wake` is called when the stream is to end; it then finds `is_ended`."""
        self._wake = wake

    def end(self) -> None:
        """Frames that wait are still written, then the answer is complete."""
        self.is_ended = True
        if self._wake is not None:
            self._wake()


class StreamSlots:
    """All open streams: how many there may be, and ending them when the daemon stops."""

    def __init__(self, all_max: int = STREAMS_MAX, per_token_max: int = STREAMS_PER_TOKEN_MAX) -> None:
        self._all_max = all_max
        self._per_token_max = per_token_max
        self._taken: set[StreamSlot] = set()
        self._counts: dict[str, int] = {}

    @contextmanager
    def reserved(self, token_id: str) -> Iterator[StreamSlot]:
        """A slot that stays taken if the block ends well, and is free again if it raises."""
        count = self._counts.get(token_id, 0)
        self._require_room(count)
        slot = StreamSlot(token_id)
        self._taken.add(slot)
        self._counts[token_id] = count + 1
        is_kept = False
        try:
            yield slot
            is_kept = True
        finally:
            if not is_kept:
                self.leave(slot)

    def _require_room(self, count: int) -> None:
        if count >= self._per_token_max:
            what = f"{count} streams are open with this token; close some, or raise limits.streams_per_token_max"
            raise Unavailable("too_many_streams", what)
        if len(self._taken) >= self._all_max:
            what = f"{len(self._taken)} streams are open; try again later, or raise limits.streams_max"
            raise Unavailable("too_many_streams", what)

    def leave(self, slot: StreamSlot) -> None:
        if slot not in self._taken:
            return
        self._taken.remove(slot)
        self._counts[slot.token_id] -= 1
        if not self._counts[slot.token_id]:
            del self._counts[slot.token_id]

    def end_of(self, token_id: str) -> None:
        for slot in self._taken:
            if slot.token_id == token_id:
                slot.end()

    def end_all(self) -> None:
        for slot in self._taken:
            slot.end()

    @property
    def taken_count(self) -> int:
        return len(self._taken)


class EventStream:
    """One SSE answer. `encode` says which number of an event is its id."""

    def __init__(
        self, slots: StreamSlots, slot: StreamSlot, frames: Frames, encode: Callable[[Frame], bytes], heartbeat_s: float
    ) -> None:
        self._slots = slots
        self._slot = slot
        self._frames = frames
        self._taken: Sequence[Frame] = ()  # Taken, and no room for them in the outbox yet.
        self._outbox = bytearray(_RETRY_HINT)
        self._encode = encode
        self._heartbeat_s = heartbeat_s
        self._headers: tuple[tuple[bytes, bytes], ...] = _HEADERS
        self._stalled_beats: int | None = None  # While a write is under way: how many beats have come since it began.
        self._beating: asyncio.TimerHandle | None = None
        self._write_now: Callable[[bytes], bool] | None = None

    def with_location(self, path: str) -> "EventStream":
        self._headers = (*_HEADERS, (b"location", path.encode("ascii")))
        return self

    def with_opening(self, opening: bytes, headers: Mapping[str, str]) -> "EventStream":
        """For streams of another API: it begins with these bytes, without a hint for browsers."""
        self._outbox = bytearray(opening)
        extra = ((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items())
        self._headers = (*_HEADERS, *extra)
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self._beating = loop.call_later(self._heartbeat_s, self._beat, loop, scope)
        self._slot.taken_by(self._frames.wake)
        direct = (scope.get("extensions") or {}).get(WRITE_EXTENSION)
        if direct is not None:
            self._write_now = direct["call"]
            self._frames.tap(self._hand_over)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch(receive))
                await self._write(send)
                watching.cancel()
        finally:
            self._beating.cancel()
            self._slots.leave(self._slot)
            self._frames.close()

    async def _watch(self, receive: Receive) -> None:
        """A client that is gone is noticed at once and not with the next heartbeat."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._slot.end()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        is_more = True
        while is_more:
            await self._fill()
            chunk = bytes(self._outbox)
            self._outbox.clear()
            is_more = not self._slot.is_ended
            self._stalled_beats = 0
            await send({"type": "http.response.body", "body": chunk, "more_body": is_more})
            self._stalled_beats = None

    def _hand_over(self, frame: LiveFrame) -> bool:
        """Writes a live frame in the moment it comes. Whatever stands in its way makes it wait for the task."""
        if self._write_now is None or self._outbox or self._taken or self._slot.is_ended:
            return False
        try:
            return self._write_now(self._encode(frame))
        except (UnicodeError, TypeError, msgspec.MsgspecError):
            return False  # This stream's own trouble: whoever said it must not hear of it.

    async def _fill(self) -> None:
        """Until there is something to write, or an end."""
        frames, outbox, encode = self._frames, self._outbox, self._encode
        while not outbox and not self._slot.is_ended:
            taken = self._taken or await frames.take()
            count = 0
            for frame in taken:
                outbox += encode(frame)
                count += 1
                if len(outbox) >= OUTBOX_BYTES_MAX:
                    break
            self._taken = taken[count:]
            if frames.is_over and not self._taken:
                self._slot.end()

    def _beat(self, loop: asyncio.AbstractEventLoop, scope: Scope) -> None:
        """One timer for a stream's whole life: timeouts around each write would cost more than the writing."""
        self._beating = loop.call_later(self._heartbeat_s, self._beat, loop, scope)
        if self._stalled_beats is None:
            self._outbox += HEARTBEAT
            self._frames.wake()
        elif self._stalled_beats < STALLED_BEATS_MAX:
            self._stalled_beats += 1
        else:
            self._cut(scope)

    def _cut(self, scope: Scope) -> None:
        """The connection goes with what waits in it; the server then tells `_watch`, and the write under way returns."""
        _log.info("cut a stream whose client took nothing for %s s", STALLED_BEATS_MAX * self._heartbeat_s)
        scope["extensions"][ABORT_EXTENSION]["call"]()
