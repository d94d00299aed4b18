"""Candidates of one principal (L11): listing, showing and deciding them, and how learning does.

Owns: what a person may do to a candidate, and the commit of a decision.
Does not own: the states (core.learning.states), applying one (engine.learning.applier).
Invariant: a decision, and what applies or takes it back, are one commit; or that commit queues the job which does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from palyra.core.caller_trust import trust_of_caller
from palyra.core.errors import Conflict, Invalid, NotFound
from palyra.core.events.learning import CandidateApplied
from palyra.core.ids import CandidateId, Principal, SessionId
from palyra.core.learning.documents import DOCUMENT, SHARED
from palyra.core.learning.edits import keeps_words
from palyra.core.learning.lift import WEEK_MS, WEEKS_COUNT, LearningReport, report_of
from palyra.core.learning.model import (
    CANDIDATES_PER_PRINCIPAL_MAX,
    CONTENT_CHARS_MAX,
    REASON_CHARS_MAX,
    REFLECTIONS_PER_PRINCIPAL_MAX,
    USES_PER_PRINCIPAL_MAX,
    Candidate,
    CandidateKind,
    CandidateStatus,
)
from palyra.core.learning.states import PEOPLES_ACTIONS, CandidateAction, next_status
from palyra.core.projections.rows import SessionRow
from palyra.core.trust import Trust, is_tainting, lowest
from palyra.core.writes import DecideCandidate
from palyra.engine.api.candidate_records import CandidateRecord, CandidateShower
from palyra.engine.learning.applier import CandidateApplier, DecisionParts, Destination, decided, destination_of
from palyra.engine.learning.candidate_tape import CandidateTape
from palyra.ports.learning import CandidateFilter, LearningViews

PAGE_MAX = 500
SETTLE_POLL_S = 0.02
SETTLE_POLLS_MAX = 250  # An answer waits five seconds for the job that applies the candidate. The job goes on anyway.


Restore = Callable[[Principal, SessionId, str, str | None], Awaitable[SessionRow]]


class CandidateDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`content` is what an edited candidate says instead. `reason` is a person's note, kept with the candidate.

    `readers` belong to sharing: those that the person was told of, who will be given the line.
    """

    action: CandidateAction
    content: str | None = None
    reason: str = ""
    readers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateService:
    """`clean` redacts a text before it is stored. `wake` tells the worker that a job is queued.

    `restore` makes a session that goes on from a checkpoint: that is how a compaction is undone.
    """

    views: LearningViews
    applier: CandidateApplier
    shower: CandidateShower
    tape: CandidateTape
    clean: Callable[[str], str]
    wake: Callable[[], None]
    restore: Restore

    async def list(self, principal: Principal | None, query: CandidateFilter) -> tuple[Candidate, ...]:
        """Lists candidates; None lists everyone's. The caller checks that this is allowed."""
        return await self.views.list_candidates(principal, replace(query, limit=min(query.limit, PAGE_MAX)))

    async def get(self, principal: Principal, candidate_id: CandidateId) -> Candidate:
        candidate = await self.views.candidate(candidate_id, principal)
        if candidate is None:
            raise NotFound(
                "candidate_unknown", f"there is no candidate {candidate_id}; palyra learning list shows them"
            )
        return candidate

    async def show(self, principal: Principal, candidate_id: CandidateId) -> CandidateRecord:
        """Returns a candidate with excerpts of its evidence, and what accepting it would change."""
        return await self.shower.show(await self.get(principal, candidate_id))

    async def decide(
        self, principal: Principal, candidate_id: CandidateId, decision: CandidateDecision, by: Principal
    ) -> CandidateRecord:
        """Decides a candidate; it is durable when this returns. Conflict says why it cannot be decided so."""
        candidate = await self.get(principal, candidate_id)
        parts = await self._parts(candidate, self._checked(candidate, decision), by)
        facts = (decided(parts.candidate, decision.action), *parts.facts)
        try:
            await self.tape.commit(by, facts, (DecideCandidate(parts.candidate), *parts.writes))
        except Conflict as conflict:
            if conflict.code == "lease_lost":
                message = f"candidate {candidate_id} was decided by somebody else meanwhile; look at it again"
                raise Conflict("candidate_changed", message, is_retryable=False) from conflict
            raise
        self.wake()
        return await self.shower.show(await self._settled(principal, parts.candidate))

    def changes_skills(self, candidate: Candidate) -> bool:
        """Tells whether accepting or undoing it changes skills of the home, which are not the principal's alone."""
        return destination_of(candidate) in (Destination.SKILL, Destination.DISABLE)

    async def report(self, principal: Principal) -> LearningReport:
        """Tells how learning does: junk, uses, and the trend over the last weeks."""
        now_ms = self.tape.clock.now_ms()
        since_ms = now_ms - WEEKS_COUNT * WEEK_MS
        candidates: tuple[Candidate, ...] = ()
        for status in CandidateStatus:
            candidates += await self._all(principal, status)
        uses = await self.views.uses(principal, since_ms, USES_PER_PRINCIPAL_MAX)
        reflections = await self.views.reflections(principal, since_ms, REFLECTIONS_PER_PRINCIPAL_MAX)
        return report_of(candidates, uses, reflections, now_ms)

    async def _all(self, principal: Principal, status: CandidateStatus) -> tuple[Candidate, ...]:
        found: tuple[Candidate, ...] = ()
        after = ""
        while len(found) < 2 * CANDIDATES_PER_PRINCIPAL_MAX:
            query = CandidateFilter(status=status, after=after, limit=PAGE_MAX)
            page = await self.views.list_candidates(principal, query)
            found += page
            if len(page) < PAGE_MAX:
                break
            after = page[-1].id
        return found

    def _checked(self, candidate: Candidate, decision: CandidateDecision) -> CandidateDecision:
        if decision.action not in PEOPLES_ACTIONS:
            raise Invalid("action_invalid", f"{decision.action.value} is not for people to do")
        is_edit = decision.action is CandidateAction.EDIT
        content = (decision.content or "").strip()
        if is_edit and not content:
            raise Invalid("content_missing", "an edit needs the new content")
        if not is_edit and decision.content is not None:
            raise Invalid("content_unexpected", "only an edit has a content; use the action edit")
        if len(content) > CONTENT_CHARS_MAX:
            raise Invalid("content_too_long", f"a candidate has at most {CONTENT_CHARS_MAX} characters")
        if is_edit and candidate.kind is CandidateKind.RETIREMENT:
            raise Invalid("edit_impossible", "a retirement cannot be edited; accept or reject it")
        reason = self.clean(decision.reason)[:REASON_CHARS_MAX]
        return replace(decision, content=self.clean(content) if is_edit else None, reason=reason)

    async def _parts(self, candidate: Candidate, decision: CandidateDecision, by: Principal) -> DecisionParts:
        changed = replace(
            candidate,
            status=next_status(candidate.id, candidate.status, decision.action),
            reason=decision.reason,
            decided_by=by,
            revision=candidate.revision + 1,
            updated_at_ms=self.tape.clock.now_ms(),
        )
        if decision.content is not None:
            changed = _edited(candidate, changed, decision.content, trust_of_caller(by))
        elif decision.action is CandidateAction.ACCEPT and not is_tainting(candidate.trust):
            # A person said these words in a tainted session, and a person says now that they hold.
            changed = replace(changed, taint=())
        match decision.action:
            case CandidateAction.ACCEPT | CandidateAction.EDIT:
                return await self.applier.accept(changed)
            case CandidateAction.UNDO if candidate.kind is CandidateKind.COMPACTION:
                return await self._restored(changed)
            case CandidateAction.UNDO:
                return await self.applier.undo(changed)
            case CandidateAction.SHARE:
                return self._shared(changed, decision.readers)
            case _:
                return DecisionParts(candidate=changed)

    async def _restored(self, candidate: Candidate) -> DecisionParts:
        checkpoint_id = candidate.applied_to.removeprefix("checkpoint:")
        session = await self.restore(candidate.owner, candidate.session_id, checkpoint_id, None)
        reason = f"the state before it goes on in session {session.id}"
        fact = CandidateApplied(
            candidate_id=candidate.id, principal=candidate.owner, target=candidate.applied_to, is_undone=True
        )
        return DecisionParts(candidate=replace(candidate, applied_to="", reason=reason), facts=(fact,))

    def _shared(self, candidate: Candidate, readers: tuple[str, ...]) -> DecisionParts:
        """Shares a line with the readers of its workspace, if they are those that the person was told of."""
        root = candidate.details.get(DOCUMENT, "")
        found = self.shower.readers_of(candidate)
        if not root or not found:
            raise Conflict(
                "share_impossible", "only a line of the notes about a workspace can be shared", is_retryable=False
            )
        if readers != found:
            told = "; ".join(found)
            raise Conflict(
                "readers_unconfirmed", f"it would be read by: {told}; confirm these readers", is_retryable=False
            )
        details = {**candidate.details, SHARED: "\n".join(found)}
        return self.applier.queue(replace(candidate, applied_to="", details=details))

    async def _settled(self, principal: Principal, before: Candidate) -> Candidate:
        """Waits a moment until the job of the decision is over, so that the answer tells what came of it."""
        for _ in range(SETTLE_POLLS_MAX):
            current = await self.get(principal, before.id)
            if not _is_under_way(current):
                return current
            await asyncio.sleep(SETTLE_POLL_S)
        return await self.get(principal, before.id)


def _edited(before: Candidate, changed: Candidate, content: str, trust: Trust) -> Candidate:
    """Gives it a person's words. What is left of text from outside keeps the trust and the sources of that text."""
    is_mixed = is_tainting(before.trust) and keeps_words(before.content, content)
    trust, taint = (lowest((before.trust, trust)), before.taint) if is_mixed else (trust, ())
    return replace(changed, content=content, trust=trust, taint=taint, confidence_bps=10_000)


def _is_under_way(candidate: Candidate) -> bool:
    is_accepted = candidate.status is CandidateStatus.ACCEPTED
    is_undone = candidate.status is CandidateStatus.UNDONE
    return (is_accepted and not candidate.applied_to) or (is_undone and bool(candidate.applied_to))
