"""Feeds of events.

Owns: following one session, or all sessions of a principal, from a cursor (L4, L11).
Does not own: the form on the wire (gateway).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from palyra.core.events import Event
from palyra.core.ids import Principal, SessionId, StreamId, is_system_stream
from palyra.engine.api.sessions import SessionService
from palyra.engine.hub import Frame, Frames, Hub
from palyra.ports.journal import Journal
from palyra.ports.state import State

PAGE_EVENTS = 500
KNOWN_SESSIONS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFeed:
    sessions: SessionService
    journal: Journal
    state: State
    hub: Hub

    async def session(self, principal: Principal, session_id: SessionId, after_seq: int | None) -> Frames:
        """Follows one session, from the first event if there is no cursor."""
        await self.sessions.get(principal, session_id)
        return self.hub.attach(session_id).follow(after_seq or 0)

    async def all(self, principal: Principal | None, after_position: int | None) -> Frames:
        """Follows every session of the principal, or of all principals for None.

        Recorded events come in the journal's order, live frames as they arrive. Without a cursor it starts now.
        """
        if after_position is None:
            after_position = await self.state.last_position()
        return AllFrames(self, principal, after_position)


class AllFrames(Frames):
    """Frames of every session that the principal may see, without end."""

    def __init__(self, feed: EventFeed, principal: Principal | None, cursor: int) -> None:
        super().__init__()
        self._feed = feed
        self._principal = principal
        self._cursor = cursor
        self._watcher = feed.hub.watch()
        self._visible: dict[StreamId, bool] = {}

    async def take(self) -> Sequence[Frame]:
        frames = await self._next()
        if not frames:
            await self._watcher.wait()
            frames = await self._next()
        return [frame for frame in frames if await self._may_see(frame)]

    def wake(self) -> None:
        self._watcher.wake()

    def close(self) -> None:
        self._watcher.close()

    async def _next(self) -> tuple[Frame, ...]:
        """Returns live frames first. They are never newer than the records read after they were taken."""
        live = self._watcher.take_live()
        page = await self._feed.journal.read_all(self._cursor, PAGE_EVENTS)
        self._cursor = page[-1].position if page else self._cursor
        return (*live, *page)

    async def _may_see(self, frame: Frame) -> bool:
        stream = frame.stream if isinstance(frame, Event) else frame.session_id
        visible = self._visible
        if stream not in visible:
            if len(visible) >= KNOWN_SESSIONS_MAX:
                visible.clear()
            is_system = is_system_stream(stream)
            row = None if is_system else await self._feed.sessions.views.session(SessionId(stream), self._principal)
            visible[stream] = row is not None
        return visible[stream]
