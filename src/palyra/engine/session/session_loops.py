"""The loops of all sessions.

Owns: finding a session's loop, dropping idle loops, slots and deadlines after each commit, resuming work at the start.
Does not own: what a loop does (session_loop).
Invariant: at most one loop a session in this process, so a tape has one writer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from functools import partial

import structlog

from palyra.core.context.window import memory_ids_in
from palyra.core.events.tool import ApprovalStatus
from palyra.core.ids import GrantId, RunId, SessionId, is_system_stream
from palyra.core.run.states import RunState
from palyra.engine.session.commands import CancelRun, CheckDue, Command, ResumeSession
from palyra.engine.session.deadlines import SessionDeadlines
from palyra.engine.session.grant_fanout import GrantFanout
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.session_loop import LoopParts, SessionLoop
from palyra.engine.session.slots import RunSlots
from palyra.engine.setup import Views

IDLE_LOOPS_MAX = 256  # Kept in memory, so that the next message of a busy session reads nothing.
PAGE_RUNS = 500

log = structlog.get_logger()


class SessionLoops:
    def __init__(self, parts: LoopParts, views: Views, slots: RunSlots, deadlines: SessionDeadlines) -> None:
        self._parts = parts
        self._views = views
        self._slots = slots
        self._deadlines = deadlines
        self._fanout = GrantFanout(views.approvals, parts.builder.clock, parts.tasks, self.post)
        self._loops: dict[SessionId, SessionLoop] = {}
        self._idle: OrderedDict[SessionId, None] = OrderedDict()
        self._outdated: set[SessionId] = set()

    def post(self, session_id: SessionId, command: Command) -> "asyncio.Future[RunId | None]":
        """The reply comes once the command is durable; a refused command gives its error."""
        self._idle.pop(session_id, None)
        loop = self._loops.get(session_id)
        if loop is None:
            loop = self._loops[session_id] = SessionLoop(self._parts, session_id, self)
        return loop.post(command)

    def wake(self, session_id: SessionId) -> None:
        """Tells a session that what it waited for may be available."""
        self.post(session_id, CheckDue())

    def known_state(self, session_id: SessionId) -> SessionState | None:
        loop = self._loops.get(session_id)
        return loop.state if loop is not None else None

    def running_states(self) -> list[SessionState]:
        """The states of all sessions with a run in progress."""
        return [loop.state for loop in self._loops.values() if loop.is_running and loop.state is not None]

    async def redrive(self, session_id: SessionId) -> str:
        """Moves a stuck run on: what it waits for is given up, or else it is resumed as after a restart."""
        loop = self._loops.get(session_id)
        count = loop.give_up_effects() if loop is not None else 0
        if count:
            return f"{count} effects were given up"
        await self.post(session_id, ResumeSession())
        return "the run was resumed"

    async def end_run(self, session_id: SessionId, cancel: CancelRun) -> str:
        """Cancels a run, and gives up what does not end by itself."""
        await self.post(session_id, cancel)
        loop = self._loops.get(session_id)
        count = loop.give_up_effects() if loop is not None else 0
        return f"the run was cancelled; {count} effects were given up" if count else "the run was cancelled"

    def changed(self, loop: SessionLoop) -> None:
        """Updates slots and deadlines after every commit, and after a command that changed nothing."""
        if loop.is_running:
            self._slots.take(loop.session_id, loop.depth, loop.origin)
        else:
            self._slots.leave(loop.session_id)
            waiting = self._slots.next_waiting()
            if waiting is not None:
                self.wake(waiting)
        loop.tell_ledger()
        self._deadlines.set(loop.session_id, loop.deadline_ms)

    def idle(self, loop: SessionLoop) -> None:
        """Keeps an idle loop for a while. The one that has been idle longest is dropped first."""
        if not loop.is_idle or self._loops.get(loop.session_id) is not loop:
            return
        if loop.session_id in self._outdated:
            self._outdated.discard(loop.session_id)
            self.drop(loop.session_id)
            return
        self._idle[loop.session_id] = None
        while len(self._idle) > IDLE_LOOPS_MAX:
            session_id, _ = self._idle.popitem(last=False)
            oldest = self._loops.get(session_id)
            if oldest is not None and oldest.is_idle:
                del self._loops[session_id]

    def granted(self, grant_id: GrantId) -> None:
        self._fanout.spread(grant_id)

    def drop(self, session_id: SessionId) -> None:
        """Drops the loop of an erased session."""
        self._idle.pop(session_id, None)
        self._loops.pop(session_id, None)

    def forget_memories(self, memory_ids: Collection[str]) -> None:
        """Drops loops whose context holds one of these items, so that they are read from their tapes again.

        A loop that is busy is dropped when it is idle.
        """
        for session_id, loop in list(self._loops.items()):
            if loop.state is None or memory_ids_in(loop.state.window).isdisjoint(memory_ids):
                continue
            if loop.is_idle:
                self.drop(session_id)
            else:
                self._outdated.add(session_id)

    async def resume_all(self) -> int:
        """Resumes every unfinished run; a waiting one only gets its deadline back. Returns the number of sessions.

        Resuming is the first command of each loop, so every later command finds the session resumed.
        """
        resumed: set[SessionId] = set()
        replies: list[asyncio.Future[RunId | None]] = []
        after = ""
        unfinished = frozenset({RunState.ACCEPTED, RunState.IN_PROGRESS})
        while rows := await self._views.runs.runs_in(unfinished, after, PAGE_RUNS):
            after = rows[-1].id
            for session_id in dict.fromkeys(row.session_id for row in rows if row.session_id not in resumed):
                resumed.add(session_id)
                reply = self.post(session_id, ResumeSession())
                reply.add_done_callback(partial(_log_failure, session_id))
                replies.append(reply)
        await self._remember_deadlines()
        await self._fanout.reconsider(None)
        self._parts.tasks.spawn(self._open_ledger(replies), "ledger")
        return len(resumed)

    async def _open_ledger(self, replies: "list[asyncio.Future[RunId | None]]") -> None:
        """Opens the ledger once every interrupted call is counted as spent."""
        await asyncio.gather(*replies, return_exceptions=True)
        self._parts.ledger.open()

    async def _remember_deadlines(self) -> None:
        """Sets the earliest deadline of each session with waiting runs."""
        after, known = "", set[SessionId]()
        while rows := await self._views.approvals.list_approvals(None, ApprovalStatus.PENDING, after, PAGE_RUNS):
            after = rows[-1].id
            for row in rows:
                known.add(row.session_id)
                if row.expires_at_ms is not None and not is_system_stream(row.session_id):
                    self._deadlines.set_earlier(row.session_id, row.expires_at_ms)
        await self._wake_waiting(known)

    async def _wake_waiting(self, known: set[SessionId]) -> None:
        """Lets sessions that wait for a caller and not for a person set their own deadline: no row has it."""
        after = ""
        while rows := await self._views.runs.runs_in(frozenset({RunState.WAITING}), after, PAGE_RUNS):
            after = rows[-1].id
            for row in rows:
                if row.session_id not in known:
                    self.wake(row.session_id)


def _log_failure(session_id: SessionId, reply: "asyncio.Future[RunId | None]") -> None:
    error = reply.exception() if not reply.cancelled() else None
    if error is not None:
        log.error("resume_failed", session_id=session_id, error=str(error))
