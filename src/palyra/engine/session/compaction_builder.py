"""Adds compactions to a session's commit.

Owns: the events of a compaction, and compacting at once when a context does not fit.
Does not own: what is kept (core.compaction), a model's summary (engine.compaction), the transaction (session_loop).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.compaction.exchanges import exchanges_of, plan_by_rules
from palyra.core.compaction.model import Compaction
from palyra.core.compaction.record import event_of, record_of
from palyra.core.context.layers import PROTECTED_STEPS, has_older_part, is_full, protected_place
from palyra.core.errors import Conflict
from palyra.core.events import Draft, has_any
from palyra.core.events.model import ContextAssembled
from palyra.core.events.session import SessionCheckpointed, SessionCompacted
from palyra.core.ids import Principal, SessionId
from palyra.core.run.decide import Record
from palyra.core.run.effects import Effect
from palyra.core.run.state import Run
from palyra.core.taint import UNNAMED
from palyra.core.trust import Trust, is_tainting
from palyra.core.writes import LinkArtifact, Write
from palyra.engine.session.commands import CompactSession
from palyra.engine.session.effect_runner import EffectParts
from palyra.engine.session.event_redactor import EventRedactor
from palyra.engine.session.follow_up_jobs import FollowUpJobs
from palyra.engine.session.pending_commit import PendingCommit, add_drafts
from palyra.ports.clock import Clock

ACTOR = Principal("system:compaction")
MEDIA_TYPE = "application/json"
_CONTEXT = frozenset({ContextAssembled})

PlannedCommit = tuple[PendingCommit, tuple[Draft, ...], tuple[Write, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionBuilder:
    clock: Clock
    redactor: EventRedactor
    follow_ups: FollowUpJobs
    effects: EffectParts

    async def compact(self, pending: PendingCommit, command: CompactSession) -> PendingCommit:
        """Records a compaction, if what it compacts is still what the session has before its protected part."""
        state, planned = pending.state, command.compaction
        if planned.from_place <= state.compacted_place or planned.to_place >= protected_place(state.window):
            raise Conflict("compaction_stale", "the session has changed since the compaction was planned; try again")
        return await self._record(pending, command)

    async def judge_and_plan(
        self, pending: PendingCommit, run: Run, effects: Sequence[Record | Effect]
    ) -> PlannedCommit:
        """Judges and plans. If a context does not fit, compacts by the rules alone: the run cannot wait for a model.

        The last six exchanges are kept whole if they fit, else fewer of them: no session ends because it grew long.
        The same happens before the window in memory would lose messages that were never compacted.
        """
        facts, sealed = await self.effects.judge_and_plan(pending, run, effects)
        has_context = has_any(facts, _CONTEXT)
        is_refused = run.wants_room and has_context
        for exchanges_count in PROTECTED_STEPS if has_context else ():
            if not (is_refused or is_full(pending.state.window) or any(map(_is_over, facts))):
                break
            if has_older_part(pending.state.window, exchanges_count):
                pending = await self._compact_at_once(pending, run, exchanges_count)
                facts, sealed = await self.effects.judge_and_plan(pending, run, effects)
                is_refused = False
        return pending, tuple(map(_too_long, facts)) if is_refused else facts, sealed

    async def _compact_at_once(self, pending: PendingCommit, run: Run, exchanges_count: int) -> PendingCommit:
        window = pending.state.window
        place = protected_place(window, exchanges_count)
        room_chars = self.effects.assembler.room_chars(run.agent, run.model)

        def plan() -> Compaction:
            exchanges = exchanges_of(item for item in window.items if item.place < place)
            return replace(plan_by_rules(window, exchanges, room_chars), to_place=place - 1)

        # Long messages with many claims take tenths of a second, in which other sessions go on.
        planned = await asyncio.to_thread(plan)
        return await self._record(pending, CompactSession(principal=ACTOR, compaction=planned, cause="over"))

    async def _record(self, pending: PendingCommit, command: CompactSession) -> PendingCommit:
        compaction = command.compaction
        compacted = event_of(compaction, pending.state.session_id, pending.state.window.base, command.cause)
        link = await self._store(compaction, compacted, pending.state.session_id)
        compacted = replace(compacted, artifact_id=link.artifact_id)
        before = SessionCheckpointed(
            checkpoint_id=compacted.checkpoint_id,
            at_seq=pending.state.head_seq + len(pending.drafts),
            reason="compaction",
        )
        for data, trust in ((before, Trust.SYSTEM), (compacted, compaction.trust)):
            draft = Draft(data=data, actor=command.principal, trust=trust, at_ms=self.clock.now_ms())
            cleaned, writes = await self.redactor.clean_off_loop(draft)
            pending = add_drafts(replace(pending, writes=(*pending.writes, *writes)), (cleaned,))
        found = self.follow_ups.after_compaction(pending.state, compacted.checkpoint_id)
        return replace(pending, writes=(*pending.writes, link, *found))

    async def _store(self, compaction: Compaction, event: SessionCompacted, session_id: SessionId) -> LinkArtifact:
        """Stores the whole record before the commit that refers to it. It is erased with the session."""
        record = msgspec.to_builtins(record_of(compaction, event))
        body = msgspec.json.encode(await asyncio.to_thread(self.redactor.clean_value, record))
        artifact_id = await self.effects.tools.artifacts.put(body)
        source = UNNAMED if is_tainting(compaction.trust) else None
        now_ms = self.clock.now_ms()
        return LinkArtifact(artifact_id, session_id, len(body), MEDIA_TYPE, now_ms, compaction.trust, source)


def _is_over(fact: Draft) -> bool:
    return isinstance(fact.data, ContextAssembled) and fact.data.is_over


def _too_long(fact: Draft) -> Draft:
    """Marks a context that the provider found too long and that cannot be compacted."""
    return replace(fact, data=replace(fact.data, is_over=True)) if isinstance(fact.data, ContextAssembled) else fact
