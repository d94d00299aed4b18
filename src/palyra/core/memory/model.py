"""The words of memory: items, where they came from, a question and what it found. Also their limits.

Does not own: what is worth keeping (judge), how hits are ranked.
"""

from enum import Enum

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.ids import CandidateId, MemoryId, Principal, RunId, SessionId
from palyra.core.trust import Trust

CONTENT_LENGTH_MAX = 8_000  # About 2,000 tokens: a longer text is a document, not something to be reminded of.
METADATA_BYTES_MAX = 4_096  # As JSON. It is shown with every hit.
SOURCE_LENGTH_MAX = 256  # Of each text of a source.
SCOPE_ID_LENGTH_MAX = 256
BATCH_MAX = 1_000
ITEMS_PER_PRINCIPAL_MAX = 1_000_000  # Search stays quick up to here on one machine.
TTL_S_MAX = 100 * 365 * 86_400
HITS_MAX = 100
QUERY_LENGTH_MAX = 2_000


class MemoryKind(Enum):
    FACT = "fact"
    PREFERENCE = "preference"
    PROCEDURE = "procedure"
    DECISION = "decision"
    NOTE = "note"


class MemoryScope(Enum):
    """Who may be reminded of an item. `scope_id` of an item names the session, agent, principal or channel."""

    SESSION = "session"
    AGENT = "agent"
    PRINCIPAL = "principal"
    CHANNEL = "channel"


class MemoryStatus(Enum):
    """Only active items are found. A superseded one stays as the history of what replaced it."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"


class MemorySource(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item was said. Items of one conversation are each other's context, in the order of `position`.

    `at` is a time as the source gave it: ISO, or free words. `session_id` and `seq` name an event of a tape.
    """

    conversation: str = ""
    position: int | None = None
    speaker: str = ""
    at: str = ""
    session_id: SessionId | None = None
    run_id: RunId | None = None
    seq: int | None = None


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One remembered text. `owner` is the principal it belongs to; nobody else's question finds it (L11)."""

    id: MemoryId
    owner: Principal
    scope: MemoryScope
    scope_id: str
    kind: MemoryKind
    content: str
    content_hash: str
    trust: Trust
    taint: tuple[str, ...] = ()
    confidence_bps: int = 10_000
    source: MemorySource = MemorySource()
    metadata: JsonObject = {}
    created_at_ms: int
    updated_at_ms: int
    expires_at_ms: int | None = None
    status: MemoryStatus = MemoryStatus.ACTIVE
    superseded_by: MemoryId | None = None
    candidate_id: CandidateId | None = None


class MemoryCounters(msgspec.Struct, frozen=True, kw_only=True):
    """How often an item was shown to a model, and when last."""

    uses_count: int = 0
    used_at_ms: int | None = None


class ScopeFilter(msgspec.Struct, frozen=True):
    scope: MemoryScope
    scope_id: str


class MemoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A question. Items outside `scopes`, of another owner, below `trust_min` or expired at `at_ms` are never read.

    No scope means no item. No kind means every kind.
    """

    text: str
    owner: Principal
    scopes: tuple[ScopeFilter, ...]
    kinds: tuple[MemoryKind, ...] = ()
    trust_min: Trust = Trust.EXTERNAL
    limit: int = 10
    at_ms: int


class HitReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why an item was found: its share of each branch (None where the branch did not find it) and of the rules."""

    text: float | None = None
    vector: float | None = None
    rules: dict[str, float] = {}


class MemoryHit(msgspec.Struct, frozen=True, kw_only=True):
    """`score` is between 0 and 1; hits of one question can be compared, and so can hits of different ones."""

    item: MemoryItem
    score: float
    why: HitReason
