"""Applies accepted candidates, and takes back undone ones.

Owns: where a candidate goes, and the order of the steps. Does not own: deciding (engine.api.candidates, intake).
What goes to memory is written in the commit of the decision. Everything else is made by a job that this commit queues:
the job may be repeated after a crash, so each step is idempotent, and the end of the job records the result.
Invariant: what an item says, and the state of its candidate, never disagree after the job is over.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Conflict, Invalid, PalyraError
from palyra.core.events import Data
from palyra.core.events.learning import CandidateApplied, CandidateDecided
from palyra.core.ids import ULID_RANDOM_BYTES, CandidateId, MemoryId, make_ulid
from palyra.core.learning.documents import DOCUMENT
from palyra.core.learning.model import Candidate, CandidateKind, CandidateStatus
from palyra.core.learning.procedures import ALLOWED_TOOLS, skill_of
from palyra.core.learning.reflection import TO_PLACE
from palyra.core.learning.schedule import settle_job
from palyra.core.learning.states import CandidateAction, next_status
from palyra.core.memory.model import MemoryItem, MemoryKind, MemoryScope, MemorySource
from palyra.core.memory.text import content_hash
from palyra.core.skills import SkillPlace, SkillStatus
from palyra.core.writes import DecideCandidate, EnqueueJob, Fence, Write
from palyra.engine.compaction.compactor import Compactor
from palyra.engine.learning.candidate_tape import LEARNING, CandidateTape
from palyra.engine.learning.notes import NotesWriter
from palyra.ports.learned_skills import LearnedSkills
from palyra.ports.learning import LearningViews
from palyra.ports.memory_writer import MemoryWriter
from palyra.ports.skills import Skills, SkillWish

TARGET = "target"  # The member of a retirement's details that names what is to go.
RETIRED = "retired"  # The member that holds a retired item, so that undoing brings it back.
ATTEMPTS_MAX = 8
CARRIED_MAX = 10_000  # Of one start. What is left follows with the next.
MEMORY_KINDS = {
    CandidateKind.FACT: MemoryKind.FACT,
    CandidateKind.PREFERENCE: MemoryKind.PREFERENCE,
    CandidateKind.DECISION: MemoryKind.DECISION,
}

_item = msgspec.json.Decoder(MemoryItem)


class Destination(Enum):
    MEMORY = "memory"
    FORGET = "forget"
    DOCUMENT = "document"
    SKILL = "skill"
    DISABLE = "disable"
    COMPACTION = "compaction"


class DecisionParts(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate as decided, with everything that is committed together with it."""

    candidate: Candidate
    facts: tuple[Data, ...] = ()
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateApplier:
    memory: MemoryWriter
    notes: NotesWriter
    skills: Skills
    learned_skills: LearnedSkills
    compactor: Compactor
    views: LearningViews
    tape: CandidateTape

    async def accept(self, candidate: Candidate) -> DecisionParts:
        """Returns what applies a candidate that is accepted with this commit. Conflict says why it cannot be."""
        match destination_of(candidate):
            case Destination.MEMORY:
                change = await self.memory.put(memory_item(candidate))
                if change.refusal:
                    raise Conflict("memory_refused", change.refusal, is_retryable=False)
                target = f"memory:{change.memory_id}"
                applied = replace(candidate, applied_to=target)
                return _parts(applied, (*change.facts, _applied(candidate, target)), change.writes)
            case Destination.FORGET:
                return await self._retire(candidate)
            case _:
                return _parts(candidate, (), (self._queued(candidate),))

    def queue(self, candidate: Candidate) -> DecisionParts:
        """Returns a candidate with the job that makes its state true outside the journal."""
        return _parts(candidate, (), (self._queued(candidate),))

    async def undo(self, candidate: Candidate) -> DecisionParts:
        """Returns what takes back a candidate that is undone with this commit."""
        match destination_of(candidate):
            case Destination.MEMORY:
                memory_id = MemoryId(candidate.applied_to.removeprefix("memory:"))
                forgotten = await self.memory.forget(candidate.owner, memory_id)
                fact = _applied(candidate, candidate.applied_to, is_undone=True)
                return _parts(replace(candidate, applied_to=""), (*forgotten.facts, fact), forgotten.writes)
            case Destination.FORGET:
                restored = await self.memory.put(_item.decode(candidate.details[RETIRED]))
                fact = _applied(candidate, candidate.applied_to, is_undone=True)
                return _parts(replace(candidate, applied_to=""), (*restored.facts, fact), restored.writes)
            case _:
                return _parts(candidate, (), (self._queued(candidate),))

    async def carry_over(self) -> None:
        """Queues what puts lines into the notes of their principals: those that others read, and those of lost notes."""
        accepted = await self.views.candidates_for_documents(CARRIED_MAX)
        queued = tuple([self._queued(each) for each in accepted if await self.notes.is_due(each)])
        if queued:
            await self.tape.commit(LEARNING, (), queued)

    async def settle(self, candidate_id: CandidateId, fence: Fence | None = None) -> str:
        """Makes what the candidate's state says true outside the journal, then records it. Returns what was done."""
        for _ in range(ATTEMPTS_MAX):
            candidate = await self.views.candidate(candidate_id, None)
            if candidate is None or destination_of(candidate) in (Destination.MEMORY, Destination.FORGET):
                return "there is nothing to do"
            try:
                return await self._settle(candidate, fence)
            except Conflict as conflict:
                if conflict.code != "lease_lost":
                    raise
                if await self.views.candidate(candidate_id, None) == candidate:
                    raise  # The job was lost, and not the candidate changed.
        raise Conflict("candidate_busy", f"candidate {candidate_id} changed again and again meanwhile; try later")

    async def _settle(self, candidate: Candidate, fence: Fence | None) -> str:
        match candidate.status:
            case CandidateStatus.ACCEPTED if not candidate.applied_to or await self.notes.is_due(candidate):
                return await self._settle_accepted(candidate, fence)
            case CandidateStatus.UNDONE:
                left = await self._take_back(candidate)
                if candidate.applied_to:
                    fact = _applied(candidate, candidate.applied_to, is_undone=True)
                    reason = left or candidate.reason
                    await self._record(replace(candidate, applied_to="", reason=reason), (fact,), fence)
                return left or "taken back"
            case _:
                return "there is nothing to do"

    async def _settle_accepted(self, candidate: Candidate, fence: Fence | None) -> str:
        try:
            target = await self._make(candidate)
        except PalyraError as error:
            if error.is_retryable:
                raise
            return await self._return(candidate, error.message, fence)
        if target.startswith("!"):
            return await self._return(candidate, target[1:], fence)
        await self._record(replace(candidate, applied_to=target), (_applied(candidate, target),), fence)
        return f"applied to {target}"

    async def _make(self, candidate: Candidate) -> str:
        """Returns what was made, or after a `!` why it could not be."""
        destination = destination_of(candidate)
        match destination:
            case Destination.DOCUMENT:
                return await self.notes.write(candidate)
            case Destination.SKILL:
                draft = skill_of(candidate.content, candidate.details.get(ALLOWED_TOOLS, ""))
                await asyncio.to_thread(self.learned_skills.install, draft)
                return f"skill:{draft.name}"
            case Destination.DISABLE:
                await self._mark_skill(candidate, SkillStatus.DISABLED)
                return candidate.details[TARGET]
            case Destination.COMPACTION:
                return await self._compact(candidate)
            case Destination.MEMORY | Destination.FORGET:
                raise Invalid("candidate_destination", "what goes to memory is applied with the decision")
            case _:
                assert_never(destination)

    async def _take_back(self, candidate: Candidate) -> str:
        """Returns what is left to do by hand, if anything is."""
        match destination_of(candidate):
            case Destination.DOCUMENT:
                written = await self.notes.write(candidate)
                return f"{written[1:]}; remove the line yourself" if written.startswith("!") else ""
            case Destination.SKILL:
                draft = skill_of(candidate.content, candidate.details.get(ALLOWED_TOOLS, ""))
                await asyncio.to_thread(self.learned_skills.remove, draft)
            case Destination.DISABLE:
                await self._mark_skill(candidate, SkillStatus.ACTIVE)
            case _:
                pass
        return ""

    async def _compact(self, candidate: Candidate) -> str:
        to_place = candidate.details.get(TO_PLACE)
        report = await self.compactor.compact_proposed(
            candidate.session_id, candidate.content, int(to_place) if to_place else None
        )
        return f"checkpoint:{report.checkpoint_id}" if report.is_committed else f"!{report.reason}"

    async def _mark_skill(self, candidate: Candidate, status: SkillStatus) -> None:
        name = candidate.details[TARGET].removeprefix("skill:")
        wish = SkillWish(name=name, place=SkillPlace.HOME)
        await asyncio.to_thread(self.skills.mark, wish, status)

    async def _retire(self, candidate: Candidate) -> DecisionParts:
        target = candidate.details[TARGET]
        memory_id = MemoryId(target.removeprefix("memory:"))
        item = await self.memory.item(candidate.owner, memory_id)
        if item is None:
            raise Conflict("memory_unknown", f"there is no item {memory_id} any more", is_retryable=False)
        change = await self.memory.forget(candidate.owner, memory_id)
        details = {**candidate.details, RETIRED: msgspec.json.encode(item).decode()}
        applied = replace(candidate, applied_to=target, details=details)
        return _parts(applied, (*change.facts, _applied(candidate, target)), change.writes)

    async def _return(self, candidate: Candidate, reason: str, fence: Fence | None) -> str:
        """Puts a candidate that cannot be applied so before a person. Accepted again, it goes to memory."""
        details = {name: value for name, value in candidate.details.items() if name != DOCUMENT}
        status = next_status(candidate.id, candidate.status, CandidateAction.RETURN)
        returned = replace(candidate, status=status, details=details, reason=reason, decided_by=None)
        fact = decided(replace(returned, revision=candidate.revision + 1), CandidateAction.RETURN)
        await self._record(returned, (fact,), fence)
        return f"back to review: {reason}"

    async def _record(self, candidate: Candidate, facts: tuple[Data, ...], fence: Fence | None) -> None:
        now_ms = self.tape.clock.now_ms()
        changed = replace(candidate, revision=candidate.revision + 1, updated_at_ms=now_ms)
        await self.tape.commit(LEARNING, facts, (DecideCandidate(changed),), fence)

    def _queued(self, candidate: Candidate) -> EnqueueJob:
        job = settle_job(candidate.id, candidate.owner, candidate.revision, self.tape.clock.now_ms())
        return EnqueueJob(job)


def destination_of(candidate: Candidate) -> Destination:
    match candidate.kind:
        case CandidateKind.FACT | CandidateKind.DECISION if candidate.details.get(DOCUMENT):
            return Destination.DOCUMENT
        case CandidateKind.FACT | CandidateKind.DECISION | CandidateKind.PREFERENCE:
            return Destination.MEMORY
        case CandidateKind.PROCEDURE:
            return Destination.SKILL
        case CandidateKind.COMPACTION:
            return Destination.COMPACTION
        case CandidateKind.RETIREMENT:
            is_skill = candidate.details.get(TARGET, "").startswith("skill:")
            return Destination.DISABLE if is_skill else Destination.FORGET
        case _:
            assert_never(candidate.kind)


def decided(candidate: Candidate, action: CandidateAction) -> CandidateDecided:
    return CandidateDecided(
        candidate_id=candidate.id,
        principal=candidate.owner,
        action=action.value,
        status=candidate.status.value,
        revision=candidate.revision,
    )


def memory_item(candidate: Candidate) -> MemoryItem:
    """Returns the item of a candidate. Its id comes from the candidate, so that applying it again is the same item."""
    mark = hashlib.sha256(f"{candidate.id}:{candidate.content}".encode()).digest()
    seqs = [seq for evidence in candidate.evidence for seq in evidence.seqs]
    source = MemorySource(session_id=candidate.session_id, run_id=candidate.run_id, seq=seqs[0] if seqs else None)
    return MemoryItem(
        id=MemoryId(make_ulid(candidate.created_at_ms, mark[:ULID_RANDOM_BYTES])),
        owner=candidate.owner,
        scope=MemoryScope.PRINCIPAL,
        scope_id=candidate.owner,
        kind=MEMORY_KINDS[candidate.kind],
        content=candidate.content,
        content_hash=content_hash(candidate.content, source),
        trust=candidate.trust,
        taint=candidate.taint,
        confidence_bps=candidate.confidence_bps,
        source=source,
        created_at_ms=candidate.created_at_ms,
        updated_at_ms=candidate.updated_at_ms,
        candidate_id=candidate.id,
    )


def _applied(candidate: Candidate, target: str, *, is_undone: bool = False) -> CandidateApplied:
    return CandidateApplied(candidate_id=candidate.id, principal=candidate.owner, target=target, is_undone=is_undone)


def _parts(candidate: Candidate, facts: tuple[Data, ...], writes: tuple[Write, ...]) -> DecisionParts:
    return DecisionParts(candidate=candidate, facts=facts, writes=writes)
