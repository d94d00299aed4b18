"""The records of what the gateway asks of the engine, and of what it gets back.

Does not own: how requests arrive (gateway).
"""

from enum import Enum

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.run import CallerTool, GivenCall, GivenRole, ReplyAddress
from palyra.core.events.tool import ApprovalStatus, Constraint, Decision, GrantOption, MadeArtifact, Scope, Touches
from palyra.core.ids import ApprovalId, ArtifactId, GrantId, Principal, RunId, SessionId
from palyra.core.run.states import RunState
from palyra.core.trust import Trust
from palyra.core.writes import Write
from palyra.ports.views import UsageGroup

TEXT_LENGTH_MAX = 200_000  # Below an event's limit in UTF-8 for most scripts; longer input belongs in an attachment.
KEY_LENGTH_MAX = 256
LABEL_LENGTH_MAX = 256
NAME_LENGTH_MAX = 256  # For agents, models, tools and files.
ATTACHMENTS_MAX = 16


class WhenBusy(Enum):
    QUEUE = "queue"
    STEER = "steer"
    REJECT = "reject"


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Finds or creates a session: by id, else by key, else by label, else a new one."""

    session_id: SessionId | None = None
    key: str | None = None
    label: str | None = None
    agent: str | None = None
    reset: bool = False


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a session that can be restored: the session as it was after the event `seq`."""

    id: str
    seq: int
    label: str | None
    reason: str
    at_ms: int


class PinRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`session_id` is the session where it was pinned: a branch has its parent's pins."""

    id: str
    session_id: SessionId
    text: str
    trust: str
    source_seq: int | None
    at_ms: int


class GivenAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """Either an artifact that exists already, or the bytes themselves.

    `trust` and `source` say that somebody else than the sender wrote it: what a platform marks as forwarded, what an
    editor embeds. They lower the trust of the attachment, and nothing ever raises it. `paths` are the files that the
    bytes are from: if anything was ever written there under taint, they are from outside.
    """

    name: str
    media_type: str
    artifact_id: ArtifactId | None = None
    body: bytes | None = None
    trust: Trust | None = None
    source: str | None = None
    paths: tuple[str, ...] = ()


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """If `can_ask` is None, the origin and the configuration decide (core.origins).

    `trust` is that of the words: whoever authenticated the speaker knows it, and the engine raises it for nobody.
    `taint` are the sources that the text comes from, if nobody who is trusted wrote it (L8). `owner` is whose session
    it is, if that is not the speaker's own. `client` names the program that speaks, if no person does. `via` is the
    account of a channel that the speaker uses, and `reply` the conversation that hears the answer. `writes` are
    committed with the run or the message that steers one. `typed` are the words that the person typed, if others of the
    text were pasted (core.typed). `leaves_questions` says that the speaker may not answer questions of the session's
    owner.

    `objectives` are what the answer has to achieve (core.run.objectives). The last four are what a caller brings along:
    tools that it executes itself, instructions, a limit, and an earlier conversation, which only a new session takes.
    """

    text: str
    origin: str
    trust: Trust
    can_ask: bool | None = None
    session_id: SessionId | None = None
    session_key: str | None = None
    attachments: tuple[GivenAttachment, ...] = ()
    agent: str | None = None
    model: str | None = None
    idempotency_key: str | None = None
    answer_schema: JsonObject | None = None
    must_call: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ()
    when_busy: WhenBusy = WhenBusy.QUEUE
    taint: tuple[str, ...] = ()
    owner: Principal | None = None
    client: str | None = None
    via: Principal | None = None
    reply: ReplyAddress | None = None
    writes: tuple[Write, ...] = ()
    typed: str | None = None
    leaves_questions: bool = False
    caller_tools: tuple[CallerTool, ...] = ()
    instructions: str = ""
    output_tokens_max: int | None = None
    given: tuple["GivenMessage", ...] = ()


class GivenMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a conversation that the caller keeps. A tool's result names its call."""

    role: GivenRole
    text: str
    attachments: tuple[GivenAttachment, ...] = ()
    calls: tuple[GivenCall, ...] = ()
    call_id: str | None = None


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`option` is the index into the approval's offered options; a scope picks the first option of that scope.

    `principal` and `role` belong to kind `pairing`: whom the account is linked to, and what they may do from it.
    `role_max` is the highest role that whoever answers may give, which is their own. `client` names the program that
    answers, which may only say no; None for a person. `without` lists the paths of a
    draft that are not to be applied. `may_trust` says that the caller has the right to vouch for a source, which an
    option may do.
    """

    decision: Decision
    scope: Scope = Scope.ONCE
    option: int | None = None
    ttl_s: int | None = None
    reason: str = ""
    end_run: bool = False
    principal: str | None = None
    role: str | None = None
    role_max: str = "user"
    client: str | None = None
    without: tuple[str, ...] = ()
    may_trust: bool = False


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str


class ObjectiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An objective of a run, and what its last check found: `met`, `unmet`, `unchecked`, or `open` before any check.

    `note` says what is missing, or why nobody could check it.
    """

    objective: str
    state: str
    note: str = ""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as people see it: the row of the projection with its texts. `parent_run_id` is the run that delegated it.

    `task` is the beginning of what it was asked; empty where that is not looked up, as `objectives` are.
    """

    id: RunId
    session_id: SessionId
    state: str
    reason: str | None
    answer: str | None
    error: RunError | None
    usage: RunUsage
    agent: str
    origin: str
    principal: str
    accepted_seq: int
    ended_seq: int | None
    created_at_ms: int
    updated_at_ms: int
    parent_run_id: RunId | None = None
    task: str = ""
    objectives: tuple[ObjectiveRecord, ...] = ()


class RunsQuery(msgspec.Struct, frozen=True, kw_only=True):
    session_id: SessionId | None = None
    state: RunState | None = None
    has_services: bool = False
    has_delegated: bool = False
    after: str = ""
    limit: int = 100


class ApprovalsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`has_system` lists the questions of the daemon itself too, which are for operators."""

    status: ApprovalStatus | None = None
    after: str = ""
    limit: int = 100
    has_system: bool = False


class TaintRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A source below `local` in a session's context. For inherited sources `since_seq` is the seq of the branching."""

    source: str
    since_seq: int
    call_id: str | None
    tool: str | None
    is_trusted: bool


class TaintOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where one source of a question's taint came in; null if the session no longer remembers it."""

    source: str
    seq: int | None
    tool: str | None


class AskedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One of the calls that an approval is about, with the digest that its answer is bound to."""

    call_id: str
    digest: str
    arguments: JsonObject | str | None
    touches: Touches
    preview: str | None
    full: MadeArtifact | None = None


class OfferedOption(GrantOption, frozen=True, kw_only=True, omit_defaults=True):
    """An option with the answers that may name it."""

    decisions: tuple[Decision, ...]


class ApprovalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An approval as people see it: its row, and its request on the tape. Secrets are markers there.

    `is_cut` says that previews leave out something that a yes would allow, or may: read all of it first, or deny.
    `decided_reason` is the reason given with the answer, and `decided_rule` names what denied by the time of a yes.
    """

    id: ApprovalId
    kind: str
    run_id: RunId | None
    session_id: SessionId
    call_id: str | None
    tool: str | None
    arguments: JsonObject | str | None
    status: str
    rule: str
    policies: tuple[str, ...]
    risk: str
    taint: tuple[str, ...]
    digest: str
    preview: str | None
    options: tuple[OfferedOption, ...]
    created_at_ms: int
    expires_at_ms: int | None
    decided_by: str | None
    taint_origins: tuple[TaintOrigin, ...] = ()
    reason: str = ""
    count: int = 1
    calls: tuple[AskedCall, ...] = ()
    touches: Touches = Touches()
    covered_by: str | None = None
    decided_reason: str = ""
    decided_rule: str | None = None
    is_cut: bool = False


class FullPreview(msgspec.Struct, frozen=True, kw_only=True):
    """A page of all that an approval would allow. The next one begins at `next_offset`."""

    text: str
    total_chars: int
    next_offset: int | None


class GrantRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is `grant`, or `refusal` for a no that covers later calls too."""

    id: GrantId
    session_id: SessionId
    approval_id: ApprovalId
    tool: str
    scope: str
    constraints: tuple[Constraint, ...]
    principal: str
    agent: str
    is_revoked: bool
    created_at_ms: int
    expires_at_ms: int | None
    kind: str


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`since` and `until` are `7d`, `24h` or a date; days begin at midnight in `timezone`."""

    by: UsageGroup = UsageGroup.DAY
    since: str = "30d"
    until: str | None = None
    timezone: str = "UTC"
    is_everyone: bool = False
    after: str = ""
    limit: int = 100


class ArtifactRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: ArtifactId
    bytes: int
    media_type: str


class StartedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was just accepted: where to find it."""

    id: RunId
    session_id: SessionId
