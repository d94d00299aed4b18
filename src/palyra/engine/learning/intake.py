"""Takes in what was found: makes candidates of finds, and applies those that are certain enough.

Owns: which finds are new, how repeated ones grow, and the limits of a principal. Does not own: thresholds (core.learning).
Invariant: a find, its first state and what applies it are one commit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.errors import PalyraError
from palyra.core.events import Data
from palyra.core.events.learning import CandidateProposed
from palyra.core.ids import Principal, RunId, SessionId
from palyra.core.learning.compaction_finds import OPEN_TASK
from palyra.core.learning.documents import DOCUMENT, document_root
from palyra.core.learning.identity import candidate_id_of, content_hash
from palyra.core.learning.model import (
    CANDIDATES_PER_PRINCIPAL_MAX,
    CONTENT_CHARS_MAX,
    PENDING_PER_PRINCIPAL_MAX,
    Candidate,
    CandidateEvidence,
    CandidateKind,
    CandidateOrigin,
    CandidateStatus,
)
from palyra.core.learning.procedures import confidence_of
from palyra.core.learning.rules import Find
from palyra.core.learning.schedule import notice_job
from palyra.core.learning.settings import LearningRuntimeConfig
from palyra.core.learning.states import CandidateAction, next_status
from palyra.core.learning.thresholds import first_status, is_tainted, may_apply_unasked
from palyra.core.trust import lowest
from palyra.core.writes import DecideCandidate, DropCandidates, EnqueueJob, PutCandidate, Write
from palyra.engine.learning.applier import CandidateApplier, decided, destination_of
from palyra.ports.clock import Clock
from palyra.ports.learning import LearningViews

WAITING = (CandidateStatus.PENDING_REVIEW, CandidateStatus.SUPPRESSED)
FULL = "too many candidates wait for review already"


class FindSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where finds come from. `workspace` are the roots of the session's agent."""

    owner: Principal
    session_id: SessionId
    origin: CandidateOrigin
    run_id: RunId | None = None
    agent: str = ""
    workspace: tuple[str, ...] = ()


class IntakePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed, and how many candidates are new or grew."""

    facts: tuple[Data, ...] = ()
    writes: tuple[Write, ...] = ()
    found_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateIntake:
    """`clean` redacts a text before it is stored (L5)."""

    views: LearningViews
    applier: CandidateApplier
    clock: Clock
    clean: Callable[[str], str]
    settings: LearningRuntimeConfig

    async def plan(self, source: FindSource, finds: Sequence[Find]) -> IntakePlan:
        """Returns what stores these finds. Nothing is stored yet."""
        counts = await self.views.count_candidates(source.owner)
        pending_count = counts.get(CandidateStatus.PENDING_REVIEW, 0)
        plan = IntakePlan()
        planned: set[str] = set()
        for find in finds:
            candidate = self._candidate(source, find)
            if candidate.id in planned:
                continue
            planned.add(candidate.id)
            part = await self._part(candidate, pending_count >= PENDING_PER_PRINCIPAL_MAX)
            pending_count += part.found_count
            plan = IntakePlan(
                facts=(*plan.facts, *part.facts),
                writes=(*plan.writes, *part.writes),
                found_count=plan.found_count + part.found_count,
            )
        if plan.writes and sum(counts.values()) + len(planned) > CANDIDATES_PER_PRINCIPAL_MAX:
            plan = replace(plan, writes=(*plan.writes, DropCandidates(source.owner, CANDIDATES_PER_PRINCIPAL_MAX)))
        return plan

    async def close_tasks(self, owner: Principal, tasks: Sequence[str]) -> IntakePlan:
        """Returns what withdraws open tasks that wait for a person although they are done."""
        plan = IntakePlan()
        for task in tasks:
            same = await self.views.same_content(owner, CandidateKind.FACT, content_hash(self.clean(task)))
            for each in same:
                if OPEN_TASK in each.details and each.status in WAITING:
                    fact, write = self._superseded(each)
                    plan = replace(plan, facts=(*plan.facts, fact), writes=(*plan.writes, write))
        return plan

    def _candidate(self, source: FindSource, find: Find) -> Candidate:
        content = self.clean(find.content)[:CONTENT_CHARS_MAX]
        evidence = (CandidateEvidence(session_id=source.session_id, seqs=find.seqs),)
        now_ms = self.clock.now_ms()
        is_certain = may_apply_unasked(content, is_told=find.is_told)
        has_to_wait = not is_certain or is_tainted(find.trust, find.taint)
        candidate = Candidate(
            id=candidate_id_of(source.owner, find.kind, content, evidence, source.origin),
            owner=source.owner,
            kind=find.kind,
            origin=source.origin,
            content=content,
            confidence_bps=find.confidence_bps,
            trust=find.trust,
            taint=find.taint,
            evidence=evidence,
            session_id=source.session_id,
            run_id=source.run_id,
            agent=source.agent,
            details=find.details,
            status=self._first(find.kind, find.confidence_bps, has_to_wait),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        root = document_root(candidate, source.workspace)
        return replace(candidate, details={**candidate.details, DOCUMENT: root}) if root else candidate

    def _first(self, kind: CandidateKind, confidence_bps: int, has_to_wait: bool) -> CandidateStatus:
        return first_status(kind, confidence_bps, has_to_wait, self.settings)

    async def _part(self, candidate: Candidate, is_full: bool) -> IntakePlan:
        same = await self.views.same_content(candidate.owner, candidate.kind, content_hash(candidate.content))
        known = [each for each in same if _is_same(each, candidate)]
        if any(each.status is not CandidateStatus.SUPPRESSED for each in known):
            return IntakePlan()
        if known and candidate.kind is CandidateKind.PROCEDURE:
            return self._grown(known[0], candidate)
        if known and candidate.status is CandidateStatus.SUPPRESSED:
            return IntakePlan()
        if is_full and candidate.status is CandidateStatus.PENDING_REVIEW:
            candidate = replace(candidate, status=CandidateStatus.SUPPRESSED, reason=FULL)
        return await self._added(candidate, known)

    async def _added(self, candidate: Candidate, known: Sequence[Candidate]) -> IntakePlan:
        facts: tuple[Data, ...] = ()
        writes: tuple[Write, ...] = ()
        for each in known:
            fact, write = self._superseded(each)
            facts, writes = (*facts, fact), (*writes, write)
        if candidate.status is CandidateStatus.ACCEPTED:
            try:
                parts = await self.applier.accept(candidate)
            except PalyraError as error:
                candidate = replace(candidate, status=CandidateStatus.PENDING_REVIEW, reason=error.message)
            else:
                candidate = parts.candidate
                told = EnqueueJob(notice_job(candidate.id, candidate.owner, self.clock.now_ms()))
                facts, writes = (*facts, *parts.facts), (*writes, *parts.writes, told)
        proposed = CandidateProposed(
            candidate_id=candidate.id,
            principal=candidate.owner,
            kind=candidate.kind.value,
            origin=candidate.origin.value,
            status=candidate.status.value,
            confidence_bps=candidate.confidence_bps,
        )
        return IntakePlan(facts=(proposed, *facts), writes=(PutCandidate(candidate), *writes), found_count=1)

    def _grown(self, stored: Candidate, again: Candidate) -> IntakePlan:
        """A procedure that worked in another run: its evidence and its confidence grow, until it is proposed."""
        if again.evidence[0] in stored.evidence:
            return IntakePlan()
        evidence = (*stored.evidence, *again.evidence)
        confidence_bps = confidence_of(len(evidence))
        trust = lowest((stored.trust, again.trust))
        taint = tuple(sorted({*stored.taint, *again.taint}))
        first = self._first(stored.kind, confidence_bps, True)  # A procedure is calls, and not a person's words.
        is_proposed = first is not CandidateStatus.SUPPRESSED
        action = CandidateAction.PROMOTE
        grown = replace(
            stored,
            evidence=evidence,
            confidence_bps=confidence_bps,
            trust=trust,
            taint=taint,
            status=next_status(stored.id, stored.status, action) if is_proposed else stored.status,
            revision=stored.revision + 1,
            updated_at_ms=self.clock.now_ms(),
        )
        facts = (decided(grown, action),) if is_proposed else ()
        return IntakePlan(facts=facts, writes=(DecideCandidate(grown),), found_count=1)

    def _superseded(self, stored: Candidate) -> tuple[Data, Write]:
        status = next_status(stored.id, stored.status, CandidateAction.SUPERSEDE)
        changed = replace(stored, status=status, revision=stored.revision + 1, updated_at_ms=self.clock.now_ms())
        return decided(changed, CandidateAction.SUPERSEDE), DecideCandidate(changed)


def _is_same(stored: Candidate, new: Candidate) -> bool:
    """What a person rejected, or has to look at, is not proposed again, wherever it would go. Else the place counts."""
    if stored.status in (CandidateStatus.REJECTED, CandidateStatus.UNDONE, CandidateStatus.PENDING_REVIEW):
        return True
    return destination_of(stored) is destination_of(new)
