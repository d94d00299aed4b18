"""Erases the content of forgotten items from the tapes that were shown it.

Owns: the order of its steps. Does not own: forgetting an item (engine.api.memory), overwriting bytes (the store).
A tape with an unfinished run cannot be erased: the run's state is a fold over it. The job tries again until the run is
over. Each step is complete or did not happen, and a step that is repeated finds nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from palyra.core.errors import Conflict, NotFound
from palyra.core.ids import MemoryId, Principal
from palyra.core.jobs.model import Job, JobKind, NewJob
from palyra.core.writes import UnmentionMemory
from palyra.engine.hub import Hub
from palyra.engine.jobs.handler import JobDone, JobPostponed, JobResult, Report
from palyra.engine.new_ids import IdSource
from palyra.engine.session.session_loops import SessionLoops
from palyra.ports.clock import Clock
from palyra.ports.journal import Erasure, Journal
from palyra.ports.memory import MemoryMention, MemoryUpkeepViews
from palyra.ports.upkeep import JournalUpkeep

MEMORY_ERASURE = JobKind(
    name="memory_erasure",
    summary="erase what tapes were shown of forgotten memory items, once the runs on them are over",
    at_once_max=1,
    attempts_max=20,
    timeout_s=600.0,
)
ACTOR = Principal("system:memory")
REASON = "forgotten"
AGAIN_MS = 15_000
IDS_A_STEP = 500


def erasure_job(ids: IdSource, clock: Clock) -> NewJob:
    """Returns the job that erases what tapes hold of forgotten items. One that waits already is enough."""
    now_ms = clock.now_ms()
    return NewJob(
        id=ids.job_id(),
        kind=MEMORY_ERASURE.name,
        principal=ACTOR,
        dedupe_key=MEMORY_ERASURE.name,
        not_before_ms=now_ms,
        created_at_ms=now_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEraser:
    journal: Journal
    views: MemoryUpkeepViews
    upkeep: JournalUpkeep
    hub: Hub
    loops: SessionLoops
    clock: Clock

    async def erase(self, memory_ids: Sequence[MemoryId]) -> bool:
        """Returns whether nothing of these items is on any tape any more."""
        mentions = await self.views.mentions(memory_ids)
        done = [await self._erase_one(mention, memory_ids) for mention in mentions]
        self.loops.forget_memories(frozenset(memory_ids))
        await self.upkeep.empty_log()
        return all(done)

    async def perform(self, job: Job, report: Report) -> JobResult:
        """Erases everything that is left of forgotten items."""
        while memory_ids := await self.views.stray_mentions(IDS_A_STEP):
            report(f"erasing what tapes hold of {len(memory_ids)} forgotten items")
            if not await self.erase(memory_ids):
                return JobPostponed(until_ms=self.clock.now_ms() + AGAIN_MS)
        return JobDone()

    async def _erase_one(self, mention: MemoryMention, memory_ids: Sequence[MemoryId]) -> bool:
        if mention.seqs:
            erasure = Erasure(
                stream=mention.stream,
                seqs=mention.seqs,
                reason=REASON,
                actor=ACTOR,
                at_ms=self.clock.now_ms(),
                covers_branches=True,
            )
            try:
                self.hub.publish(await self.journal.erase((erasure,)))
            except Conflict:
                return False
            except NotFound:
                pass  # The tape is gone, and its content with it.
        await self.journal.commit((), (UnmentionMemory(tuple(memory_ids), mention.stream),))
        return True
