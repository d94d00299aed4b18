"""Loads a session from the journal.

Owns: reading just enough to continue. Does not own: deciding anything.
Invariant: the amount read is bounded by the unfinished runs and the window, never by the length of the tape (L10).
"""

from dataclasses import dataclass

from msgspec.structs import replace

from palyra.core.context.documents import DOCUMENTS_MAX, WindowDocument, fold_document
from palyra.core.context.recalled import ShownPreference, fold_preferences
from palyra.core.context.window import EVENTS_READ_MAX, Window, WindowItem, extend
from palyra.core.errors import NotFound
from palyra.core.events import Event
from palyra.core.events.model import ContextAssembled, DocumentRead, MemoryRecalled
from palyra.core.events.session import Parent, SessionReset
from palyra.core.events.tool import ApprovalKind
from palyra.core.ids import SessionId
from palyra.core.memory.recall import PREFERENCES_MAX
from palyra.core.projections.rows import RunRow, SessionRow
from palyra.core.run.fold import accept, fact_of, fold
from palyra.core.run.state import Run
from palyra.core.run.states import RunState
from palyra.core.taint import Taint, decode_taint, fold_taint
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.pin_loader import Tape, find_pins, pins_in
from palyra.engine.setup import Views
from palyra.ports.journal import Journal

PAGE_EVENTS = 500
READ_AT_ONCE_MAX = 1_000
CONTEXT_EVENTS_MAX = 6_000  # A window has at most 400 messages, and a message comes with some five events.
ANCESTORS_MAX = 64


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
            window=await self._load_window(row, head.seq if head is not None else 0),
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
        """Returns the taint of a session's context at an earlier event: of a branch's beginning, or of a compaction."""
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
        tapes = await self._tapes(parent.session_id, parent.seq)
        return replace(await self._fold_window(tapes), base=tapes[0].base + parent.seq)

    async def items_between(self, state: SessionState, after_place: int, to_place: int) -> tuple[WindowItem, ...]:
        """Returns all messages after one place and up to another, from the tapes, also those no window holds any more.

        What was said before a reset is left out, as it is from the window.
        """
        items: list[WindowItem] = []
        for tape in reversed(await self._tapes(state.session_id, state.head_seq)):
            first, last = max(0, after_place - tape.base), min(tape.last_seq, to_place - tape.base)
            window = Window(base=tape.base)
            while first < last:
                page = await self.journal.read(tape.session_id, first, min(READ_AT_ONCE_MAX, last - first))
                if not page:
                    break
                for event in page:
                    items = [] if isinstance(event.data, SessionReset) else items
                    window = extend(replace(window, items=(), chars=0), event)
                    items += window.items
                first = page[-1].seq
        return tuple(items)

    async def pins(self, row: SessionRow) -> tuple[Event, ...]:
        """Returns the `pin.added` events of the pins that the session has now, inherited ones included."""
        head = await self.journal.head(row.id)
        tapes = await self._tapes(row.id, head.seq if head is not None else 0)
        return await find_pins(self.journal, self.views.marks, tapes)

    async def _load_window(self, row: SessionRow, head_seq: int) -> Window:
        """Reads the end of the tape, and of its parents' tapes as far as the last context reached back."""
        return await self._fold_window(await self._tapes(row.id, head_seq))

    async def _tapes(self, session_id: SessionId, last_seq: int) -> list[Tape]:
        """Returns the tape of a session and those of its ancestors, the youngest first."""
        found: list[tuple[SessionId, int]] = []
        parent_id: SessionId | None = session_id
        while parent_id is not None and len(found) < ANCESTORS_MAX:
            found.append((parent_id, last_seq))
            row = await self.views.sessions.session(parent_id, None)
            parent_id = row.parent_id if row is not None else None
            last_seq = row.parent_seq or 0 if row is not None else 0
        bases = [sum(seq for _, seq in found[index + 1 :]) for index in range(len(found))]
        return [Tape(name, base, seq) for (name, seq), base in zip(found, bases, strict=True)]

    async def _fold_window(self, tapes: list[Tape]) -> Window:
        """Folds the window from the first event that the last context was made of, so that it is the same again."""
        assembled = await self._last_context(tapes)
        from_place = assembled.from_place if assembled is not None else 0
        room = EVENTS_READ_MAX if assembled is None else CONTEXT_EVENTS_MAX
        parts: list[tuple[int, tuple[Event, ...]]] = []
        earlier: list[Tape] = []
        for index, tape in enumerate(tapes):
            after_seq = max(0, from_place - tape.base - 1, tape.last_seq - room)
            events = await self._read(tape, after_seq)
            parts.append((tape.base, events))
            room -= len(events)
            if after_seq > 0 or room <= 0:
                earlier = [tape._replace(last_seq=after_seq), *tapes[index + 1 :]]
                break
        window = Window(
            pins=pins_in(await find_pins(self.journal, self.views.marks, earlier)),
            documents=await self._documents(assembled, tapes),
            preferences=await self._preferences(assembled, tapes),
        )
        for base, events in reversed(parts):
            window = replace(window, base=base)
            for event in events:
                window = extend(window, event)
        return window

    async def _last_context(self, tapes: list[Tape]) -> ContextAssembled | None:
        """Finds the last context. A branch that has assembled none yet has that of its parent."""
        room = EVENTS_READ_MAX
        for tape in tapes:
            ending = await self._read(tape, max(0, tape.last_seq - room))
            found = next((one.data for one in reversed(ending) if isinstance(one.data, ContextAssembled)), None)
            room -= len(ending)
            if found is not None or room <= 0:
                return found
        return None

    async def _documents(self, assembled: ContextAssembled | None, tapes: list[Tape]) -> tuple[WindowDocument, ...]:
        """Returns the documents of the last context. They may be far older than the messages that are read."""
        documents: tuple[WindowDocument, ...] = ()
        for place in assembled.documents[:DOCUMENTS_MAX] if assembled is not None else ():
            for event in await self._at(place, tapes):
                if isinstance(event.data, DocumentRead):
                    documents = fold_document(documents, event.data, place)
        return documents

    async def _preferences(self, assembled: ContextAssembled | None, tapes: list[Tape]) -> tuple[ShownPreference, ...]:
        """Returns the preferences of the last context, without those that were forgotten since."""
        preferences: tuple[ShownPreference, ...] = ()
        for place in assembled.preferences[:PREFERENCES_MAX] if assembled is not None else ():
            for event in await self._at(place, tapes):
                if isinstance(event.data, MemoryRecalled):
                    preferences = fold_preferences(preferences, event.data, place)
        return preferences

    async def _at(self, place: int, tapes: list[Tape]) -> tuple[Event, ...]:
        """Returns the event at a place of the whole conversation."""
        tape = next((each for each in tapes if each.base < place <= each.base + each.last_seq), None)
        return await self.journal.read(tape.session_id, place - tape.base - 1, 1) if tape is not None else ()

    async def _read(self, tape: Tape, after_seq: int) -> tuple[Event, ...]:
        events: list[Event] = []
        while after_seq < tape.last_seq:
            page = await self.journal.read(tape.session_id, after_seq, min(READ_AT_ONCE_MAX, tape.last_seq - after_seq))
            if not page:
                break
            events += page
            after_seq = page[-1].seq
        return tuple(events)
