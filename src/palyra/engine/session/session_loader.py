"""Loads a session from the journal.

Owns: reading just enough to continue. Does not own: deciding anything.
Invariant: the amount read is bounded by the unfinished runs and the window, never by the length of the tape (L10).
"""

from dataclasses import dataclass

from palyra.core.context.window import EVENTS_READ_MAX, Window, extend
from palyra.core.errors import NotFound
from palyra.core.events import Event
from palyra.core.events.session import Parent
from palyra.core.events.tool import ApprovalKind
from palyra.core.ids import SessionId
from palyra.core.projections.rows import RunRow, SessionRow
from palyra.core.run.fold import accept, fact_of, fold
from palyra.core.run.state import Run
from palyra.core.run.states import RunState
from palyra.core.taint import Taint, decode_taint, fold_taint
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.setup import Views
from palyra.ports.journal import Journal

PAGE_EVENTS = 500
ANCESTORS_MAX = 16


@dataclass(frozen=True, slots=True)
class SessionLoader:
    journal: Journal
    views: Views

    async def load(self, session_id: SessionId) -> SessionState:
        row = await self.views.sessions.session(session_id, None)
        if row is None or row.is_erased:
            raise NotFound("session_unknown", f"there is no session {session_id}")
        head = await self.journal.head(session_id)
        active: Run | None = None
        queued: list[Run] = []
        for run_row in await self.views.runs.unfinished(session_id):
            run = await self.fold_run(run_row)
            if run is not None and run.state is RunState.ACCEPTED:
                queued.append(run)
            elif run is not None:
                active = run
        tainted = await self.views.provenance.taint(session_id)
        pending = await self.views.approvals.pending_of(session_id)
        return SessionState(
            session_id=session_id,
            owner=row.owner,
            agent=row.agent,
            head_seq=head.seq if head is not None else 0,
            reset_seq=row.reset_seq,
            active=active,
            queued=tuple(queued),
            doubts=frozenset(question.digest for question in pending if question.kind is ApprovalKind.UNCERTAIN),
            window=await self._load_window(row),
            taint=decode_taint(tainted.sources) if tainted is not None else (),
        )

    async def fold_run(self, row: RunRow) -> Run | None:
        """Returns the run's state from its own events, which begin at `accepted_seq`."""
        run: Run | None = None
        cursor = row.accepted_seq - 1
        while page := await self.journal.read(row.session_id, cursor, PAGE_EVENTS):
            for event in page:
                cursor = event.seq
                if event.run_id == row.id:
                    run = accept(fact_of(event)) if run is None else fold(run, fact_of(event))
        return run

    async def taint_at(self, row: SessionRow, seq: int) -> Taint:
        """Returns the taint of a session's context at an earlier event. It is read once, when a branch begins there."""
        taint: Taint = ()
        cursor = row.reset_seq if row.reset_seq <= seq else 0
        while page := await self.journal.read(row.id, cursor, min(PAGE_EVENTS, seq - cursor)):
            for event in page:
                cursor = event.seq
                taint = fold_taint(taint, event, event.seq)
            if cursor >= seq:
                break
        return taint

    async def inherited_window(self, parent: Parent) -> Window:
        """Returns the window of a branch that has no event of its own yet."""
        return await self._fold_window([], parent.session_id, parent.seq)

    async def _load_window(self, row: SessionRow) -> Window:
        """Reads the end of the tape, and of its parents' tapes if it is too short to fill the window."""
        events = [*await self.journal.read_last(row.id, EVENTS_READ_MAX)]
        return await self._fold_window(events, row.parent_id, row.parent_seq)

    async def _fold_window(self, events: list[Event], parent_id: SessionId | None, parent_seq: int | None) -> Window:
        for _ in range(ANCESTORS_MAX):
            room = EVENTS_READ_MAX - len(events)
            if room <= 0 or parent_id is None or parent_seq is None:
                break
            first = max(0, parent_seq - room)
            inherited = await self.journal.read(parent_id, first, parent_seq - first)
            events = [*inherited, *events]
            parent = await self.views.sessions.session(parent_id, None)
            if parent is None:
                break
            parent_id, parent_seq = parent.parent_id, parent.parent_seq
        window = Window()
        for event in events:
            window = extend(window, event)
        return window
