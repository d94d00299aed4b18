"""Reads a run that is over, with what it was given, for learning.

Does not own: what counts of it (core.learning.observed_run).
The amount read is bounded: the events of one run, up to a limit. The state of a session that is in memory is not read.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.context.layers import has_older_part
from palyra.core.events import Event
from palyra.core.events.run import ReplyAddress, RunAccepted
from palyra.core.ids import MemoryId, RunId, SessionId
from palyra.core.learning.observed_run import ObservedRun, observe
from palyra.core.projections.rows import RunRow
from palyra.core.run.states import is_terminal
from palyra.core.service_runs import is_service
from palyra.core.taint import labels
from palyra.engine.agents import AgentDirectory
from palyra.engine.session.pending_commit import SessionState
from palyra.engine.session.session_loader import SessionLoader
from palyra.ports.memory_writer import MemoryWriter

EVENTS_MAX = 4_000
PAGE_EVENTS = 500


class ReadRun(msgspec.Struct, frozen=True, kw_only=True):
    """`workspace` are the roots of the session's agent. `is_long` says that the session has an older part to compact."""

    run: ObservedRun
    workspace: tuple[str, ...]
    is_long: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReader:
    loader: SessionLoader
    agents: AgentDirectory
    memory: MemoryWriter
    known_state: Callable[[SessionId], SessionState | None]

    async def read(self, run_id: RunId) -> ReadRun | None:
        """Returns None if the run was erased, is not over, or is the daemon's own."""
        row = await self.loader.views.runs.run(run_id, None)
        if row is None or not is_terminal(row.state) or is_service(row.agent):
            return None
        state = self.known_state(row.session_id) or await self.loader.load(row.session_id)
        agent = self.agents.of_run(state.agent)
        documents = tuple(document.text for document in state.window.documents)
        named = ObservedRun(
            run_id=run_id,
            session_id=row.session_id,
            owner=state.owner,
            taint=labels(state.taint),
            known=(agent.instructions, *documents),
        )
        run = observe(named, await self._events(row))
        items = [await self.memory.item(state.owner, MemoryId(memory_id)) for memory_id in run.memories]
        known = (*run.known, *(item.content for item in items if item is not None))
        return ReadRun(run=replace(run, known=known), workspace=agent.workspace, is_long=has_older_part(state.window))

    async def reply_of(self, run_id: RunId) -> ReplyAddress | None:
        """Returns the conversation of a channel that heard the run's answer."""
        row = await self.loader.views.runs.run(run_id, None)
        page = () if row is None else await self.loader.journal.read(row.session_id, row.accepted_seq - 1, 1)
        accepted = next((event.data for event in page if isinstance(event.data, RunAccepted)), None)
        return None if accepted is None else accepted.reply

    async def _events(self, row: RunRow) -> tuple[Event, ...]:
        events: list[Event] = []
        cursor = row.accepted_seq - 1
        stop = row.ended_seq or cursor
        while cursor < stop and len(events) < EVENTS_MAX:
            page = await self.loader.journal.read(row.session_id, cursor, min(PAGE_EVENTS, stop - cursor))
            if not page:
                break
            events += page
            cursor = page[-1].seq
        return tuple(events)
