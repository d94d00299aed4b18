"""Kills while a candidate is applied or undone: afterwards its state and what it made agree, whatever the moment was."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palyra.core.events import Event
from palyra.core.ids import MemoryId, SessionId
from palyra.core.learning.model import Candidate, CandidateKind, CandidateOrigin, CandidateStatus
from palyra.core.learning.states import CandidateAction
from palyra.core.writes import PutCandidate
from palyra.engine.api.candidates import CandidateDecision
from palyra.engine.engine import Engine
from palyra.ports.journal import Append, Journal
from tests.support.engines import OWNER, Workshop
from tests.support.learning import candidate_of
from tests.support.lessons import notes_of, rested, say, school_at

pytestmark = pytest.mark.anyio

LINE = "We decided to use PostgreSQL 17 for the ledger."
POINTS = 10  # More commits than one decision takes until it is settled.


class StoppedJournal:
    """Once armed, stops for ever before or after its nth commit, as a killed daemon does."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.stops_at, self.is_after = 0, False
        self.count = 0
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, appends: Sequence[Append], *rest: Any) -> tuple[Event, ...]:
        if not self.stops_at:
            return await self._journal.commit(appends, *rest)
        self.count += 1
        if self.count < self.stops_at:
            return await self._journal.commit(appends, *rest)
        if self.count == self.stops_at and self.is_after:
            await self._journal.commit(appends, *rest)
        self.reached.set()
        await asyncio.Event().wait()
        raise AssertionError("it stops for ever")


def workshop_at(folder: Path) -> tuple[Workshop, list[StoppedJournal]]:
    workshop = school_at(folder, sample=0.0)
    journals: list[StoppedJournal] = []

    def wrap(journal: Journal) -> Journal:
        journals.append(StoppedJournal(journal))
        return journals[-1]

    workshop.wrap_journal = wrap
    return workshop, journals


def candidate_in(workshop: Workshop, session_id: SessionId, is_document: bool) -> Candidate:
    details = {"document": str(workshop.workspace)} if is_document else {}

    return candidate_of(
        LINE,
        OWNER,
        kind=CandidateKind.DECISION,
        origin=CandidateOrigin.COMPACTION,
        details=details,
        session_id=session_id,
    )


async def decide(engine: Engine, candidate: Candidate, action: CandidateAction) -> None:
    await engine.candidates.decide(OWNER, candidate.id, CandidateDecision(action=action), OWNER)


async def is_made(workshop: Workshop, engine: Engine, candidate: Candidate) -> bool:
    file = notes_of(workshop)
    if candidate.details:
        return file.exists() and LINE in file.read_text()
    item_id = MemoryId(candidate.applied_to.removeprefix("memory:"))
    return bool(candidate.applied_to) and await engine.memory.stores.views.memory(item_id, OWNER) is not None


async def kill_while(workshop: Workshop, journal: StoppedJournal, engine: Engine, work: asyncio.Task[None]) -> None:
    stopped = asyncio.ensure_future(journal.reached.wait())
    await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
    work.cancel()
    stopped.cancel()
    await asyncio.gather(work, stopped, return_exceptions=True)


@pytest.mark.parametrize("is_document", [False, True])
@pytest.mark.parametrize("action", [CandidateAction.ACCEPT, CandidateAction.UNDO])
@pytest.mark.parametrize("is_after", [False, True])
async def test_killed_anywhere_state_and_effect_agree(
    tmp_path: Path, is_after: bool, action: CandidateAction, is_document: bool
) -> None:
    for point in range(1, POINTS if is_document else 3):
        workshop, journals = workshop_at(tmp_path / str(point))
        async with workshop.open() as engine:
            session_id, _ = await say(engine, "Hello there.")
            await rested(engine)
            one = candidate_in(workshop, session_id, is_document)
            await engine._setup.journal.commit([], [PutCandidate(one)])
            if action is CandidateAction.UNDO:
                await decide(engine, one, CandidateAction.ACCEPT)
                await rested(engine)
            journal = journals[-1]
            journal.is_after, journal.stops_at = is_after, point
            await kill_while(workshop, journal, engine, asyncio.ensure_future(decide(engine, one, action)))
        async with workshop.open() as engine:
            await rested(engine)
            now = await engine.candidates.get(OWNER, one.id)
            assert await is_made(workshop, engine, now) is (now.status is CandidateStatus.ACCEPTED), (point, now.status)
            assert bool(now.applied_to) is (now.status is CandidateStatus.ACCEPTED)
            wanted = {CandidateAction.ACCEPT: CandidateStatus.ACCEPTED, CandidateAction.UNDO: CandidateStatus.UNDONE}
            if now.status is not wanted[action]:
                assert (point, is_after) == (1, False)
                await decide(engine, now, action)
                now = await engine.candidates.get(OWNER, one.id)
            assert now.status is wanted[action]


@pytest.mark.parametrize("is_after", [False, True])
async def test_killed_while_a_compaction_is_taken_in_every_find_is_there_once(tmp_path: Path, is_after: bool) -> None:
    for point in range(1, POINTS, 2):
        workshop, journals = workshop_at(tmp_path / str(point))
        async with workshop.open() as engine:
            texts = (LINE, *(f"Tell me of the sea, part {number}." for number in range(8)))
            session_id, *_ = [(await say(engine, text))[0] for text in texts]
            await rested(engine)
            journal = journals[-1]
            journal.is_after, journal.stops_at = is_after, point

            async def work(engine: Engine = engine, session_id: SessionId = session_id) -> None:
                await engine.compaction.compact(OWNER, session_id)
                await rested(engine)

            await kill_while(workshop, journal, engine, asyncio.ensure_future(work()))
        async with workshop.open() as engine:
            await rested(engine)
            await engine.compaction.compact(OWNER, session_id)
            await rested(engine)
            root = str(workshop.workspace)
            found = await engine.candidates.views.candidates_in(root, CandidateKind.DECISION)
        assert [each.content for each in found] == [LINE], point
        assert notes_of(workshop).read_text().count(LINE) == 1
