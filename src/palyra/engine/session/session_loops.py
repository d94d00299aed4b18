"""All desks. Owns: finding a session's desk, dropping idle ones, deadlines, and taking up work at the start.

Invariant: at most one desk a session in this process, so a tape has one pen.
"""

import asyncio
import heapq
from collections import OrderedDict
from functools import partial

import structlog

from palyra.core.ids import RunId, SessionId
from palyra.core.run.states import RunState
from palyra.engine.context import EngineContext
from palyra.engine.session.commands import CheckDue, ResumeSession
from palyra.engine.session.grant_fanout import reconsider
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.session_loop import SessionLoop

IDLE_DESKS_MAX = 256  # Kept warm, so that the next message of a lively session reads nothing.
PAGE_RUNS = 500
STALE_DEADLINES_MAX = 1_000
CLOCK_TRUSTED_S = 30.0

log = structlog.get_logger()


class SessionLoops:
    def __init__(self) -> None:
        self._office: EngineContext | None = None
        self._desks: dict[SessionId, SessionLoop] = {}
        self._idle: OrderedDict[SessionId, None] = OrderedDict()
        self._deadlines: list[tuple[int, SessionId]] = []
        self._due: dict[SessionId, int] = {}
        self._bell = asyncio.Event()

    def bind(self, office: EngineContext) -> None:
        self._office = office

    @property
    def office(self) -> EngineContext:
        assert self._office is not None, "bound when the office is set up"
        return self._office

    def at(self, session_id: SessionId) -> SessionLoop:
        self._idle.pop(session_id, None)
        desk = self._desks.get(session_id)
        if desk is None:
            desk = self._desks[session_id] = SessionLoop(self.office, session_id)
        return desk

    def known_state(self, session_id: SessionId) -> SessionState | None:
        desk = self._desks.get(session_id)
        return desk.state if desk is not None else None

    def changed(self, desk: SessionLoop) -> None:
        """After every commit, and after an order that changed nothing: places and deadlines follow the run's state."""
        slots = self.office.slots
        if desk.is_running:
            slots.take(desk.session_id)
        else:
            slots.leave(desk.session_id)
            waiting = slots.next_waiting()
            if waiting is not None:
                self.wake(waiting)
        desk.tell_ledger()
        self.remind(desk.session_id, desk.deadline_ms)

    def wake(self, session_id: SessionId) -> None:
        """Something it waited for may be there."""
        self.at(session_id).post(CheckDue())

    def rest(self, desk: SessionLoop) -> None:
        """An idle desk is kept for a while; the one idle longest goes first."""
        if not desk.is_idle or self._desks.get(desk.session_id) is not desk:
            return
        self._idle[desk.session_id] = None
        while len(self._idle) > IDLE_DESKS_MAX:
            session_id, _ = self._idle.popitem(last=False)
            oldest = self._desks.get(session_id)
            if oldest is not None and oldest.is_idle:
                del self._desks[session_id]

    def drop(self, session_id: SessionId) -> None:
        self._idle.pop(session_id, None)
        self._desks.pop(session_id, None)

    def remind(self, session_id: SessionId, at_ms: int | None) -> None:
        """One deadline a session: the next. Entries of the heap that it no longer matches are passed over."""
        if at_ms is None:
            self._due.pop(session_id, None)
            return
        if self._due.get(session_id) == at_ms:
            return
        self._due[session_id] = at_ms
        heapq.heappush(self._deadlines, (at_ms, session_id))
        if len(self._deadlines) > 2 * len(self._due) + STALE_DEADLINES_MAX:
            self._deadlines = [(due_ms, session) for session, due_ms in self._due.items()]
            heapq.heapify(self._deadlines)
        if self._deadlines[0] == (at_ms, session_id):
            self._bell.set()

    def look_at_clock(self) -> None:
        """Time may have passed otherwise than by waiting."""
        self._bell.set()

    async def keep_time(self) -> None:
        """Tells each desk when its deadline has come."""
        while True:
            self._bell.clear()
            now_ms = self.office.clock.now_ms()
            while self._deadlines and self._deadlines[0][0] <= now_ms:
                at_ms, session_id = heapq.heappop(self._deadlines)
                if self._due.get(session_id) == at_ms:
                    del self._due[session_id]
                    self.at(session_id).post(CheckDue())
            # Clocks jump (a laptop sleeps, an operator sets the time), so no wait is trusted for long.
            left_s = (self._deadlines[0][0] - now_ms) / 1000 if self._deadlines else CLOCK_TRUSTED_S
            wait_s = min(left_s, CLOCK_TRUSTED_S)
            try:
                async with asyncio.timeout(wait_s):
                    await self._bell.wait()
            except TimeoutError:
                continue

    async def resume_all(self) -> int:
        """Every unfinished run goes on; a waiting one only gets its deadline back. Gives the number of sessions.

        The order to resume is the first letter at each desk, so whatever is asked of it afterwards finds it in order.
        """
        resumed: set[SessionId] = set()
        replies: list[asyncio.Future[RunId | None]] = []
        after = ""
        unfinished = frozenset({RunState.ACCEPTED, RunState.IN_PROGRESS})
        while rows := await self.office.views.runs.runs_in(unfinished, after, PAGE_RUNS):
            after = rows[-1].id
            for session_id in dict.fromkeys(row.session_id for row in rows if row.session_id not in resumed):
                resumed.add(session_id)
                reply = self.at(session_id).post(ResumeSession())
                reply.add_done_callback(partial(_tell_failure, session_id))
                replies.append(reply)
        await self._remember_deadlines()
        await reconsider(self.office, None)
        self.office.tasks.spawn(self._open_ledger(replies), "ledger")
        return len(resumed)

    async def _open_ledger(self, replies: "list[asyncio.Future[RunId | None]]") -> None:
        """Once every call that was cut off is counted as spent."""
        await asyncio.gather(*replies, return_exceptions=True)
        self.office.ledger.open()

    async def _remember_deadlines(self) -> None:
        """Of runs that wait: the earliest of each session."""
        after = ""
        while rows := await self.office.views.approvals.pending_approvals(None, after, PAGE_RUNS):
            after = rows[-1].id
            for row in rows:
                known_ms = self._due.get(row.session_id)
                if row.expires_at_ms is not None and (known_ms is None or row.expires_at_ms < known_ms):
                    self.remind(row.session_id, row.expires_at_ms)


def _tell_failure(session_id: SessionId, reply: "asyncio.Future[RunId | None]") -> None:
    error = reply.exception() if not reply.cancelled() else None
    if error is not None:
        log.error("resume_failed", session_id=session_id, error=str(error))
