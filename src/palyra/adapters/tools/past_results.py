"""Finds the result of an earlier tool call on a session's tape.

Owns: going from a call's id to its run and to the event that holds the result.
Does not own: who may ask (a session reads its own calls and those it inherited).
"""

from dataclasses import dataclass

from palyra.core.events.tool import ToolFinished
from palyra.core.ids import SessionId
from palyra.core.projections.rows import RunRow
from palyra.ports.journal import Journal
from palyra.ports.results import PastResult
from palyra.ports.views import RunViews, SessionViews

ANCESTORS_MAX = 64
PAGE_RUNS = 500
PAGE_EVENTS = 500


@dataclass(frozen=True, slots=True)
class JournalResults:
    journal: Journal
    sessions: SessionViews
    runs: RunViews

    async def find(self, session_id: SessionId, call_id: str) -> PastResult | None:
        """Looks in the session, then in its parents up to the events where it branched off."""
        suffix = call_id.partition("_")[2]
        place: SessionId | None = session_id
        until_seq: int | None = None
        for _ in range(ANCESTORS_MAX):
            if place is None or not suffix:
                return None
            run = await self._run(place, suffix)
            if run is not None and (until_seq is None or run.accepted_seq <= until_seq):
                return await self._result(run, call_id, until_seq)
            row = await self.sessions.session(place, None)
            place, until_seq = (row.parent_id, row.parent_seq) if row is not None else (None, None)
        return None

    async def _run(self, session_id: SessionId, suffix: str) -> RunRow | None:
        after = ""
        while rows := await self.runs.runs(session_id, after, PAGE_RUNS):
            for row in rows:
                if row.id.endswith(suffix):
                    return row
            after = rows[-1].id
        return None

    async def _result(self, run: RunRow, call_id: str, until_seq: int | None) -> PastResult | None:
        cursor, last = run.accepted_seq, until_seq if until_seq is not None else run.seq
        found: PastResult | None = None
        while cursor < last and (page := await self.journal.read(run.session_id, cursor, PAGE_EVENTS)):
            for event in page:
                data = event.data
                is_wanted = event.seq <= last and isinstance(data, ToolFinished) and data.call_id == call_id
                if is_wanted and isinstance(data, ToolFinished):
                    found = PastResult(
                        text=data.output or "",
                        trust=event.trust,
                        source=data.source,
                        changes_artifact_id=data.changes_artifact_id,
                        undo_artifact_id=data.undo_artifact_id,
                    )
            cursor = page[-1].seq
        return found
