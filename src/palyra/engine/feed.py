"""Feeds. Owns: following one session, or all of a principal's, from a cursor (L4, L11). Not: framing for the wire (gateway)."""

from collections.abc import AsyncIterator

from palyra.core.events import Event
from palyra.core.ids import Principal, SessionId, StreamId, is_system_stream
from palyra.engine.hub import Follower, Frame
from palyra.engine.office import Office
from palyra.engine.sessions import Sessions

PAGE_EVENTS = 500
KNOWN_SESSIONS_MAX = 10_000


class Feed:
    def __init__(self, office: Office, sessions: Sessions) -> None:
        self._office = office
        self._sessions = sessions

    async def session(self, principal: Principal, session_id: SessionId, after_seq: int | None) -> AsyncIterator[Frame]:
        """Without a cursor from the first event."""
        await self._sessions.get(principal, session_id)
        return _follow(self._office.hub.attach(session_id), after_seq or 0)

    async def all(self, principal: Principal | None, after_position: int | None) -> AsyncIterator[Frame]:
        """Every session of the principal, of all for None: recorded events in the journal's order, live frames as they come.

        Without a cursor from now on.
        """
        if after_position is None:
            after_position = await self._office.views.state.last_position()
        return self._follow_all(principal, after_position)

    async def _follow_all(self, principal: Principal | None, cursor: int) -> AsyncIterator[Frame]:
        watcher = self._office.hub.watch()
        visible: dict[StreamId, bool] = {}
        try:
            while True:
                # Live frames first: what they say is never newer than the record that is read after they were taken.
                live = watcher.take_live()
                page = await self._office.journal.read_all(cursor, PAGE_EVENTS)
                cursor = page[-1].position if page else cursor
                frames: tuple[Frame, ...] = (*live, *page)
                for frame in [frame for frame in frames if await self._may_see(principal, frame, visible)]:
                    yield frame
                if not frames:
                    await watcher.wait()
        finally:
            watcher.close()

    async def _may_see(self, principal: Principal | None, frame: Frame, visible: dict[StreamId, bool]) -> bool:
        stream = frame.stream if isinstance(frame, Event) else frame.session_id
        if stream not in visible:
            if len(visible) >= KNOWN_SESSIONS_MAX:
                visible.clear()
            is_system = is_system_stream(stream)
            row = None if is_system else await self._office.views.sessions.session(SessionId(stream), principal)
            visible[stream] = row is not None
        return visible[stream]


async def _follow(follower: Follower, after_seq: int) -> AsyncIterator[Frame]:
    try:
        async for frame in follower.follow(after_seq):
            yield frame
    finally:
        follower.close()
