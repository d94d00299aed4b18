"""Turns an item that a person has to look at into a candidate.

Does not own: which items those are (core.memory.judge), candidates (engine.learning).
"""

from dataclasses import dataclass

from palyra.core.learning.model import CandidateKind, CandidateOrigin
from palyra.core.learning.rules import Find
from palyra.core.memory.model import MemoryItem, MemoryKind
from palyra.engine.learning.candidate_tape import LEARNING, CandidateTape
from palyra.engine.learning.intake import CandidateIntake, FindSource

CONFIDENCE_BPS = 8_000  # Enough to be shown, never enough to be stored without a person.
_KINDS = {
    MemoryKind.FACT: CandidateKind.FACT,
    MemoryKind.PREFERENCE: CandidateKind.PREFERENCE,
    MemoryKind.DECISION: CandidateKind.DECISION,
    MemoryKind.PROCEDURE: CandidateKind.FACT,  # Text, and no sequence of calls that could become a skill.
    MemoryKind.NOTE: CandidateKind.FACT,
}


@dataclass(frozen=True, slots=True)
class ReviewOfItems:
    """The MemoryReview that memory uses: what it does not store by itself waits as a candidate."""

    intake: CandidateIntake
    tape: CandidateTape

    async def propose(self, item: MemoryItem, reason: str) -> None:
        source = item.source
        if source.session_id is None:
            return  # Only calls of tools are reviewed, and each belongs to a session.
        find = Find(
            kind=_KINDS[item.kind],
            content=item.content,
            confidence_bps=CONFIDENCE_BPS,
            seqs=() if source.seq is None else (source.seq,),
            trust=item.trust,
            taint=item.taint or (f"memory:{reason}",),
        )
        asked = FindSource(
            owner=item.owner, session_id=source.session_id, origin=CandidateOrigin.RETAIN, run_id=source.run_id
        )
        plan = await self.intake.plan(asked, (find,))
        await self.tape.commit(LEARNING, plan.facts, plan.writes)
