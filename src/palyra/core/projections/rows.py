"""The rows of the projections: what lists and look-ups can ask for.

Does not own: content.
Invariants: a row belongs to exactly one tape and is a fold over that tape alone, so it can be rebuilt with it. A row
holds ids, states, counts and seqs, never the text of a person or a model. Text is read from the event that a seq names,
so erasing an event leaves no copy behind. Exceptions are the session's key and label, and the names of files, hosts
and tools that taint comes from. `seq` is the last event that changed the row.
"""

from enum import Enum

import msgspec

from palyra.core.events.run import EndReason
from palyra.core.events.tool import ApprovalKind, ApprovalStatus, Scope
from palyra.core.healing.model import HealingDomain, IncidentStatus, Resolution, Severity
from palyra.core.ids import ApprovalId, CallId, GrantId, IncidentId, Principal, RunId, SessionId, StreamId
from palyra.core.run.states import RunState


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """`purpose` is set on sessions of service runs and of delegated runs; `serves` names the session they are for."""

    id: SessionId
    owner: Principal
    agent: str
    key: str | None
    label: str | None
    parent_id: SessionId | None
    parent_seq: int | None
    reset_seq: int
    compacted_seq: int
    active_run_id: RunId | None
    is_erased: bool
    created_at_ms: int
    updated_at_ms: int
    seq: int
    purpose: str | None = None
    serves: SessionId | None = None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """`cost_nano_usd` sums the priced calls; `unpriced_count` counts those without a known price.

    `parent_run_id` is the run that delegated this one.
    """

    id: RunId
    session_id: SessionId
    principal: Principal
    agent: str
    origin: str
    state: RunState
    reason: EndReason | None
    idempotency_key: str | None
    accepted_seq: int
    answer_seq: int | None
    ended_seq: int | None
    input_tokens: int
    output_tokens: int
    cost_nano_usd: int
    unpriced_count: int
    created_at_ms: int
    updated_at_ms: int
    seq: int
    parent_run_id: RunId | None = None


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    id: ApprovalId
    session_id: SessionId
    run_id: RunId | None
    kind: ApprovalKind
    status: ApprovalStatus
    digest: str
    call_id: CallId | None
    tool: str | None
    requested_seq: int
    resolved_seq: int | None
    decided_by: Principal | None
    created_at_ms: int
    expires_at_ms: int | None
    seq: int


class GrantKind(Enum):
    GRANT = "grant"
    REFUSAL = "refusal"


class GrantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A grant, or a refusal: an answer that covers later calls too.

    Its constraints are in the event at `granted_seq`. One of scope session given before the session's reset is void.
    """

    id: GrantId
    session_id: SessionId
    approval_id: ApprovalId
    principal: Principal
    agent: str
    tool: str
    scope: Scope
    granted_seq: int
    revoked_seq: int | None
    created_at_ms: int
    expires_at_ms: int | None
    seq: int
    kind: GrantKind = GrantKind.GRANT


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """Settled spend of one run on one model in one quarter of an hour: a day in any time zone is a sum of quarters."""

    id: str
    session_id: SessionId
    run_id: RunId
    model: str
    quarter: int
    calls_count: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost_nano_usd: int
    unpriced_count: int
    seq: int


class TaintRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sources below `local` in a session's context.

    `sources` is the encoded fold of core.taint, which bounds it.
    """

    id: SessionId
    session_id: SessionId
    sources: str
    seq: int


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a call of this session wrote, or was about to write, while tainted by `sources` (a JSON list).

    `path` is absolute and lies below `root`. Bytes written without taint have no row. A path that ends with a slash
    stands for many files below that folder: `members` says which (core.file_sets), and `sha256` is its hash.
    """

    id: str
    session_id: SessionId
    root: str
    path: str
    sha256: str
    sources: str
    seq: int
    members: str = ""


class IncidentRow(msgspec.Struct, frozen=True, kw_only=True):
    """What the watchdog found, and what came of it. `stream` is the system tape of the node that found it.

    `remedies` are the actions on offer, separated by spaces. The words of it are in the event at `opened_seq`.
    `told_count` counts the actions whose outcome is on the tape.
    """

    id: IncidentId
    stream: StreamId
    domain: HealingDomain
    subject: str
    severity: Severity
    status: IncidentStatus
    resolution: Resolution | None
    remedies: str
    first_seen_ms: int
    opened_at_ms: int
    opened_count: int
    acted_count: int
    told_count: int
    acted_at_ms: int | None
    resolved_at_ms: int | None
    opened_seq: int
    seq: int


class MarkKind(Enum):
    CHECKPOINT = "checkpoint"
    PIN = "pin"


class MarkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint or a pin of a session. Its label or words are in the event at `made_seq`.

    `at_seq` is the state that a checkpoint names, or the event that a pin's words are from. The id is made by
    `core.projections.marks.mark_row_id`. `made_seq` is 0 if the mark is not of this tape: a branch removed a pin that
    it inherited.
    """

    id: str
    session_id: SessionId
    kind: MarkKind
    made_seq: int
    at_seq: int
    removed_seq: int | None
    created_at_ms: int
    seq: int


Row = SessionRow | RunRow | ApprovalRow | GrantRow | UsageRow | TaintRow | FileRow | IncidentRow | MarkRow

_TAPE_FIELDS: dict[type[Row], str] = {SessionRow: "id", IncidentRow: "stream"}


def tape_field(row_type: type[Row]) -> str:
    """Names the field that says to which tape a row belongs."""
    return _TAPE_FIELDS.get(row_type, "session_id")
