"""The words of learning: candidates, uses of what was learned, and their limits.

Does not own: states and who may change them (states), thresholds, what applying one does (engine.learning).
A candidate's words are in its row alone, so that forgetting it, or erasing its session, removes them.
"""

from enum import Enum

import msgspec

from palyra.core.ids import CandidateId, Principal, RunId, SessionId
from palyra.core.trust import Trust

CONTENT_CHARS_MAX = 2_000  # A fact or a preference is a sentence; a procedure is a page.
REASON_CHARS_MAX = 500
EVIDENCE_SEQS_MAX = 64
CANDIDATES_PER_PRINCIPAL_MAX = 2_000  # Beyond it the oldest that are settled are dropped.
PENDING_PER_PRINCIPAL_MAX = 200  # More than that nobody reviews. What comes then is suppressed.
USES_PER_PRINCIPAL_MAX = 20_000
REFLECTIONS_PER_PRINCIPAL_MAX = 10_000


class CandidateKind(Enum):
    FACT = "fact"
    PREFERENCE = "preference"
    DECISION = "decision"
    PROCEDURE = "procedure"
    COMPACTION = "compaction"
    RETIREMENT = "retirement"  # An applied item that does not help is to go.


class CandidateOrigin(Enum):
    REFLECTION = "reflection"
    COMPACTION = "compaction"
    RETAIN = "retain"  # A tool call or a person's own item that has to be reviewed first.
    USE = "use"  # Counting of uses and outcomes.


class CandidateStatus(Enum):
    """PendingReview of the first description is `pending_review`. `accepted` ones are applied; `undone` ones were."""

    SUPPRESSED = "suppressed"
    PENDING_REVIEW = "pending_review"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    UNDONE = "undone"


class CandidateEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a tape that a candidate was drawn from."""

    session_id: SessionId
    seqs: tuple[int, ...]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that learning or compaction proposes.

    `applied_to` names what accepting it made, such as `memory:<id>`; an accepted one without it is being applied.
    `revision` grows with every decision, and a decision names the one it expects.
    """

    id: CandidateId
    owner: Principal
    kind: CandidateKind
    origin: CandidateOrigin
    content: str
    confidence_bps: int
    trust: Trust
    taint: tuple[str, ...] = ()
    evidence: tuple[CandidateEvidence, ...] = ()
    session_id: SessionId
    run_id: RunId | None = None
    agent: str = ""
    details: dict[str, str] = {}
    status: CandidateStatus
    reason: str = ""
    applied_to: str = ""
    created_at_ms: int
    updated_at_ms: int
    decided_by: Principal | None = None
    revision: int = 1


LEASE_PREFIX = "candidate:"


def candidate_lease(candidate_id: CandidateId) -> str:
    """Returns the name under which a commit's fence asks for a candidate's revision."""
    return LEASE_PREFIX + candidate_id


class UsedKind(Enum):
    """What was given to a run: a remembered item, or an opened skill."""

    MEMORY = "memory"
    SKILL = "skill"


class UseOutcome(Enum):
    """What came of the run that was given the item."""

    HELPED = "helped"  # The run was done, and nobody corrected it.
    CORRECTED = "corrected"  # The next thing the person said corrects the answer.
    FAILED = "failed"


class ItemUse(msgspec.Struct, frozen=True, kw_only=True):
    """One item in one run. The same run counts an item once."""

    owner: Principal
    kind: UsedKind
    item_id: str
    run_id: RunId
    session_id: SessionId
    outcome: UseOutcome
    at_ms: int


class Reflection(msgspec.Struct, frozen=True, kw_only=True):
    """That a run was reflected on. `by` is `model`, `rules` or `none`; `junk_count` counts finds that were dropped."""

    run_id: RunId
    session_id: SessionId
    owner: Principal
    by: str
    found_count: int
    junk_count: int
    at_ms: int
