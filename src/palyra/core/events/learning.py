"""Events of learning, on a node's system tape.

Does not own: what a candidate says. Its words and a person's reason are in its row alone, where they can be erased.
"""

from typing import ClassVar

from palyra.core.events.base import Count, EventData, Identifier
from palyra.core.ids import CandidateId, Principal


class CandidateProposed(EventData, frozen=True, kw_only=True):
    """A candidate is new. `kind`, `origin` and `status` are words of core.learning.model."""

    TYPE: ClassVar[str] = "candidate.proposed"
    candidate_id: CandidateId
    principal: Principal
    kind: Identifier
    origin: Identifier
    status: Identifier
    confidence_bps: Count


class CandidateDecided(EventData, frozen=True, kw_only=True):
    """A candidate changed its state by this action. The event's actor is who decided."""

    TYPE: ClassVar[str] = "candidate.decided"
    candidate_id: CandidateId
    principal: Principal
    action: Identifier
    status: Identifier
    revision: Count


class CandidateApplied(EventData, frozen=True, kw_only=True):
    """What an accepted candidate made exists, or what an undone one had made is gone. `target` names it by kind and id."""

    TYPE: ClassVar[str] = "candidate.applied"
    candidate_id: CandidateId
    principal: Principal
    target: Identifier
    is_undone: bool = False
