"""Recalls memory for a turn: the preferences of the session's owner, and what the newest message is about.

Owns: asking for both within a time limit, and the facts and writes that follow.
Does not own: what is chosen (core.memory.recall), how it is shown (core.context.recalled), ranking (ports.memory).
Invariants: only the owner's items in the run's scopes are asked for (L11). A search that takes too long, or breaks,
never holds a run: the turn goes on without recall, and its reason is recorded. Each item has an event of its own with
the item's trust and sources, so that taint comes back with it (L8) and forgetting it erases nothing else.
"""

import asyncio
import secrets
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from palyra.core.agents import AgentSpec
from palyra.core.context.window import memory_ids_in
from palyra.core.events import Draft
from palyra.core.events.model import MemoryRecalled, RecallLayer
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.core.ids import MemoryId
from palyra.core.memory.model import MemoryHit, MemoryItem, MemoryKind, MemoryQuery
from palyra.core.memory.reach import channel_of, scopes_of_run
from palyra.core.memory.recall import (
    RECALLED_MAX,
    changed_preferences,
    choose_preferences,
    choose_recalled,
    recall_question,
    recalled_item,
)
from palyra.core.run.state import Run
from palyra.core.service_runs import find_service
from palyra.core.trust import Trust
from palyra.core.writes import MentionMemory, TouchMemory, Write
from palyra.engine.session.drafts import ENGINE
from palyra.engine.session.pending_commit import SessionState
from palyra.ports.clock import Clock
from palyra.ports.memory import MemoryPage, MemoryStores

LIMIT_S = 0.25  # People wait for the first word of an answer meanwhile.
HITS_ASKED = 3 * RECALLED_MAX  # Some of them are shown already, or too long.
PREFERENCES_ASKED = 500

log = structlog.get_logger()

Recalled = tuple[tuple[Draft, ...], tuple[Write, ...]]


class _Found(NamedTuple):
    preferences: tuple[MemoryItem, ...]
    hits: tuple[MemoryHit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecall:
    stores: MemoryStores
    clock: Clock
    is_on: bool = True
    limit_s: float = LIMIT_S

    async def changes(self, state: SessionState, run: Run, agent: AgentSpec, room_chars: int) -> Recalled:
        """Returns what the context is to hold besides, once for each message."""
        question = recall_question(state.window) if self.is_on and find_service(run.agent) is None else None
        if question is None:
            return (), ()
        found = await self._ask(question, state, run, agent)
        if isinstance(found, str):
            return (self._draft(MemoryRecalled(turn=run.turn, items=(), reason=found), run, Trust.SYSTEM),), ()
        window = state.window
        fresh, gone = changed_preferences(
            [each.item for each in window.preferences], choose_preferences(found.preferences, self.clock.now_ms())
        )
        shown = {*memory_ids_in(window), *(item.id for item in fresh)} - set(gone)
        chosen = choose_recalled(found.hits, shown, room_chars)
        drafts = [self._preference(item, run) for item in fresh]
        if gone:
            data = MemoryRecalled(turn=run.turn, items=(), layer=RecallLayer.PREFERENCES, gone=gone)
            drafts.append(self._draft(data, run, Trust.SYSTEM))
        drafts += [self._recalled(hit, run) for hit in chosen]
        return tuple(drafts), self._writes(state, fresh, chosen)

    async def _ask(self, question: str, state: SessionState, run: Run, agent: AgentSpec) -> _Found | str:
        """Returns what was found, or the reason why nothing was."""
        task = asyncio.create_task(self._find(question, state, run, agent), name="memory recall")
        try:
            await asyncio.wait({task}, timeout=self.limit_s)
        finally:
            task.cancel()
        if not task.done() or task.cancelled():
            log.warning("memory_recall_slow", limit_s=self.limit_s)
            return "timed_out"
        error = task.exception()
        if error is not None:
            log.error("memory_recall_broken", exc_info=error)
            return "failed"
        return task.result()

    async def _find(self, question: str, state: SessionState, run: Run, agent: AgentSpec) -> _Found:
        scopes = scopes_of_run(state.owner, state.session_id, agent.name, channel_of(run.origin))
        now_ms = self.clock.now_ms()
        page = MemoryPage(scopes=scopes, kinds=(MemoryKind.PREFERENCE,), limit=PREFERENCES_ASKED, at_ms=now_ms)
        preferences = await self.stores.views.memories(state.owner, page)
        query = MemoryQuery(text=question, owner=state.owner, scopes=scopes, limit=HITS_ASKED, at_ms=now_ms)
        return _Found(preferences, await self.stores.search.search_memory(query))

    def _preference(self, item: MemoryItem, run: Run) -> Draft:
        shown = recalled_item(item, 1.0, _fence_id())
        data = MemoryRecalled(turn=run.turn, items=(shown,), layer=RecallLayer.PREFERENCES)
        return self._draft(data, run, item.trust)

    def _recalled(self, hit: MemoryHit, run: Run) -> Draft:
        shown = recalled_item(hit.item, hit.score, _fence_id())
        return self._draft(MemoryRecalled(turn=run.turn, items=(shown,)), run, hit.item.trust)

    def _draft(self, data: MemoryRecalled, run: Run, trust: Trust) -> Draft:
        return Draft(data=data, actor=ENGINE, trust=trust, at_ms=self.clock.now_ms(), run_id=run.run_id)

    def _writes(
        self, state: SessionState, fresh: tuple[MemoryItem, ...], chosen: tuple[MemoryHit, ...]
    ) -> tuple[Write, ...]:
        used: tuple[MemoryId, ...] = tuple(hit.item.id for hit in chosen)
        mentioned = (*(item.id for item in fresh), *used)
        if not mentioned:
            return ()
        mention = MentionMemory(mentioned, state.session_id)
        return (mention, TouchMemory(memory_ids=used, at_ms=self.clock.now_ms())) if used else (mention,)


def _fence_id() -> str:
    """Draws the id after the content exists, so that no content can hold it."""
    return secrets.token_hex(FENCE_ID_LENGTH // 2)
