"""The LearningViews port: reads candidates, uses and reflections that commits wrote.

Does not own: writing them (core.writes).
Every question about candidates takes the principal it is asked for (L11); None is the daemon itself.
"""

from typing import Protocol

import msgspec

from palyra.core.ids import CandidateId, Principal, RunId, SessionId
from palyra.core.learning.model import Candidate, CandidateKind, CandidateStatus, ItemUse, Reflection


class CandidateFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Without a status, suppressed candidates are left out."""

    status: CandidateStatus | None = None
    kind: CandidateKind | None = None
    after: str = ""
    limit: int = 100


class LearningViews(Protocol):
    async def candidate(self, candidate_id: CandidateId, owner: Principal | None) -> Candidate | None: ...

    async def list_candidates(self, owner: Principal | None, query: CandidateFilter) -> tuple[Candidate, ...]:
        """Returns candidates in the order of their ids; `after` is the last id of the page before."""
        ...

    async def same_content(self, owner: Principal, kind: CandidateKind, content_hash: str) -> tuple[Candidate, ...]:
        """Returns the principal's candidates that say the same, whatever their state."""
        ...

    async def count_candidates(self, owner: Principal) -> dict[CandidateStatus, int]: ...

    async def candidates_in(
        self, document: str, kind: CandidateKind, owner: Principal | None = None
    ) -> tuple[Candidate, ...]:
        """Returns the accepted candidates of one kind that name this document; None means those of all principals."""
        ...

    async def candidates_for_documents(self, limit: int) -> tuple[Candidate, ...]:
        """Returns accepted candidates that name a document, of all principals."""
        ...

    async def uses(self, owner: Principal, since_ms: int, limit: int) -> tuple[ItemUse, ...]:
        """Returns uses of items, the newest first."""
        ...

    async def reflections(self, owner: Principal, since_ms: int, limit: int) -> tuple[Reflection, ...]:
        """Returns reflections, the newest first."""
        ...

    async def last_reflection(self, session_id: SessionId, run_id: RunId) -> tuple[Reflection | None, int | None]:
        """Returns the run's own reflection, and when a model was last asked about the session."""
        ...
