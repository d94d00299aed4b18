"""A load on a journal. Owns: trying a story's steps, recording what came of each. Not: what the disk kept (audit).

What a running process can see for itself is checked here: a doomed commit is refused, a sound one is not called a
conflict, and nothing of a refused commit shows.
"""

import asyncio
from collections.abc import Callable

from palyra.core.errors import Conflict, Unavailable
from palyra.core.events import Event
from palyra.ports.journal import Journal
from tests.crash.ledger import Attempt, Erasing, Ledger, Outcome, facts_of
from tests.crash.story import Checkpoint, Commit, Erase, Step, Story

STEP_TIMEOUT_S = 30  # Far beyond any commit here: a journal that neither answers nor fails is a problem of its own.


class Load:
    def __init__(self, story: Story, ledger: Ledger) -> None:
        self.problems: list[str] = []
        self._story = story
        self._ledger = ledger

    async def run(self, journal: Journal, waves_count: int, is_over: Callable[[], bool] = lambda: False) -> None:
        for _ in range(waves_count):
            failed = await self._try_wave(journal)
            if is_over():
                return
            if failed:
                await self._require_heads(journal)
        await self._require_heads(journal)

    async def go_on(self, journal: Journal) -> None:
        """The disk works again: whatever happened before, the next wave meets no error."""
        if await self._try_wave(journal):
            self.problems.append("the disk works again, and commits are still refused")
        await self._require_heads(journal)

    async def _try_wave(self, journal: Journal) -> bool:
        """Whether any step of the wave met an error of the disk."""
        wave = self._story.next_wave()
        outcomes = await asyncio.gather(*(self._try(journal, step) for step in wave))
        return Outcome.FAILED in outcomes

    async def _try(self, journal: Journal, step: Step) -> Outcome:
        self._ledger.enter(attempt_of(step))
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                events = await _perform(journal, step)
        except Conflict as refusal:
            return self._refused(step, refusal)
        except Unavailable:
            self._ledger.settle(step.number, Outcome.FAILED)
            return Outcome.FAILED
        self._ledger.settle(step.number, Outcome.ACKNOWLEDGED, facts_of(events))
        self._story.move_on(step)
        if isinstance(step, Commit) and step.is_doomed:
            self.problems.append(f"commit {step.number} was stale and yet acknowledged")
        return Outcome.ACKNOWLEDGED

    def _refused(self, step: Step, refusal: Conflict) -> Outcome:
        self._ledger.settle(step.number, Outcome.REFUSED)
        if not isinstance(step, Commit) or not (step.is_doomed or step.is_contested):
            self.problems.append(f"step {step.number} was sound and yet refused: {refusal}")
        return Outcome.REFUSED

    async def _require_heads(self, journal: Journal) -> None:
        """No tape shows more or less than what was acknowledged."""
        for tape in self._story.tapes.values():
            try:
                head = await journal.head(tape.stream)
            except Unavailable:
                continue  # The outage goes on; the audit will look at the same tapes.
            seq = head.seq if head is not None else 0
            if seq != tape.seq:
                self.problems.append(f"tape {tape.stream} shows seq {seq}, acknowledged was {tape.seq}")


def attempt_of(step: Step) -> Attempt:
    match step:
        case Commit(number=number, appends=appends, writes=writes):
            counts = {append.stream: len(append.drafts) for append in appends}
            return Attempt(number=number, event_counts=counts, writes=writes)
        case Erase(number=number, erasure=erasure, seqs=seqs):
            return Attempt(number=number, event_counts={}, erasing=Erasing(erasure.stream, seqs, erasure.seqs is None))
        case Checkpoint(number=number):
            return Attempt(number=number, event_counts={})


async def _perform(journal: Journal, step: Step) -> tuple[Event, ...]:
    match step:
        case Commit(appends=appends, writes=writes, fence=fence):
            return await journal.commit(appends, writes, fence)
        case Erase(erasure=erasure):
            return await journal.erase((erasure,))
        case Checkpoint():
            return await journal.checkpoint()
