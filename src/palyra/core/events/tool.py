"""Events of one tool call: proposal, verdict, intent, outcome, and the person's answer in between."""

from enum import Enum
from typing import ClassVar

import msgspec

from palyra.core.events.base import Count, EventData, Identifier, Text, TextObject
from palyra.core.ids import ApprovalId, CallId, EffectId, GrantId, Principal


class Verdict(Enum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class EffectClass(Enum):
    """Whether a call may be executed again after a crash hid its outcome (L2)."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    DRAFTED = (
        "drafted"  # Runs in a draft: until its changes are applied nothing has happened, and applying is by hashes.
    )
    ONCE = "once"


class ParallelClass(Enum):
    READ_ONLY_SAFE = "ReadOnlySafe"
    PATH_SCOPED = "PathScoped"
    IDEMPOTENT_NETWORK = "IdempotentNetwork"
    NEVER = "Never"


class Risk(Enum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


class ApprovalKind(Enum):
    TOOL = "tool"
    DRAFT = "draft"
    BUDGET = "budget"
    UNCERTAIN = "uncertain"
    PAIRING = "pairing"


class ApprovalStatus(Enum):
    PENDING = "pending"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Decision(Enum):
    """A person's answer. The last three belong to kind `uncertain`."""

    ALLOW = "allow"
    DENY = "deny"
    RETRY = "retry"
    DONE = "done"
    GIVE_UP = "give_up"


class Scope(Enum):
    ONCE = "once"
    SESSION = "session"
    TIMEBOXED = "timeboxed"


class ToolError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    code: Identifier
    message: Text


class FileBytes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a file held at one moment: its path below a workspace root, and the hash of its bytes.

    `taint` names the sources that the writing call had seen.
    """

    root: Identifier
    path: Identifier
    sha256: Identifier
    taint: tuple[Identifier, ...] = ()


class Attestation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ToolAttestation: who ran what, and its outcome, signed by the node. See core.attestation for the bytes."""

    key_id: Identifier
    runtime: Identifier
    sandbox: Identifier
    started_at_ms: Count
    finished_at_ms: Count
    input_sha256: Identifier
    output_sha256: Identifier
    signature: Identifier


class PolicySnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ToolCallPolicySnapshot: which set of policies judged the call, and which of them decided."""

    sha256: Identifier
    policies: tuple[Identifier, ...]


class Touches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What calls would touch: files, hosts, and the programs they would start."""

    paths: tuple[Identifier, ...] = ()
    hosts: tuple[Identifier, ...] = ()
    commands: tuple[Identifier, ...] = ()


class Constraint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One condition a later call's argument must meet to be covered by a grant."""

    argument: Identifier
    operator: Identifier
    value: Identifier


class GrantOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One answer offered to the person: what it would cover, in words and in terms.

    With `trusts` it allows the call once and vouches for these sources until the session is reset.
    """

    scope: Scope
    constraints: tuple[Constraint, ...]
    text: Text
    trusts: tuple[Identifier, ...] = ()


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An approval that covers later calls too. It is never wider than the option it was given by."""

    grant_id: GrantId
    tool: Identifier
    scope: Scope
    constraints: tuple[Constraint, ...]
    taint: tuple[Identifier, ...]
    principal: Principal
    agent: Identifier
    expires_at_ms: Count | None = None


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A no that covers later calls too, whatever their taint. It is never wider than the option it was given by.

    It is a type of its own, so that a reader who does not know it can never take it for a grant.
    """

    refusal_id: GrantId
    tool: Identifier
    scope: Scope
    constraints: tuple[Constraint, ...]
    principal: Principal
    agent: Identifier
    expires_at_ms: Count | None = None


class MadeArtifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A body that a call made in addition to its text: a picture of a page, a file.

    `is_shown` says that a channel gets it together with the run's answer.
    """

    artifact_id: Identifier
    name: Text
    media_type: Identifier
    bytes: Count
    is_shown: bool = False


class ToolProposed(EventData, frozen=True, kw_only=True):
    """The call that the model wants. Arguments that did not parse are kept as the raw string."""

    TYPE: ClassVar[str] = "tool.proposed"
    IS_PLAIN: ClassVar[bool] = False
    call_id: CallId
    tool: Text
    arguments: TextObject | Text


class ToolJudged(EventData, frozen=True, kw_only=True):
    """The verdict, with the facts about the call that rules need: resume and dispatch never ask the catalog again.

    `writes` is what the call would write, so that the bytes are known as tainted before they can exist. `commands`
    lists the programs it would start, and `command_words` the words of each, where all of them are known. `has_network`
    says that a policy lets this call's sandbox reach the network. `tool_sha256` is the hash of the judged tool's
    definition; a tool with another definition does not run. `starts_run` says that the call starts a run of its own.
    `is_callers` says that whoever started the run executes the call (core.caller_tools). `refused_by` is the refusal
    that covers the call. `full` is all that the call would do, for a channel whose message is too short for it.
    """

    TYPE: ClassVar[str] = "tool.judged"
    call_id: CallId
    verdict: Verdict
    rule: Identifier
    reason: Text
    effect_class: EffectClass = EffectClass.ONCE
    parallel_class: ParallelClass = ParallelClass.NEVER
    risk: Risk = Risk.MEDIUM
    paths: tuple[Identifier, ...] = ()
    taint: tuple[Identifier, ...] = ()
    policy: PolicySnapshot | None = None
    grant_id: GrantId | None = None
    preview: Text | None = None
    options: tuple[GrantOption, ...] = ()
    expires_in_ms: Count | None = None
    writes: tuple[FileBytes, ...] = ()
    host: Identifier | None = None
    commands: tuple[Identifier, ...] = ()
    command_words: tuple[tuple[Identifier, ...], ...] = ()
    has_network: bool = False
    tool_sha256: Identifier | None = None
    starts_run: bool = False
    is_callers: bool = False
    refused_by: GrantId | None = None
    full: MadeArtifact | None = None


class ToolStarted(EventData, frozen=True, kw_only=True):
    """The durable intent (L1). A second one with the same effect_id is a repeat, which L2 allows.

    A call that the caller executes has `expires_at_ms`: until then its result is waited for.
    """

    TYPE: ClassVar[str] = "tool.started"
    call_id: CallId
    effect_id: EffectId
    attempt: Count = 1
    expires_at_ms: Count | None = None


class ToolHeld(EventData, frozen=True, kw_only=True):
    """What a running call waits for: a person, because the run it started does, or no longer one.

    While all calls that run are held, the run's active time stands still, as if the run itself waited.
    """

    TYPE: ClassVar[str] = "tool.held"
    call_id: CallId
    is_held: bool


class OpenedSkill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A skill that a call opened. Its `allowed_tools` narrow the catalog until the run ends; None narrows nothing."""

    name: Identifier
    sha256: Identifier
    allowed_tools: tuple[Identifier, ...] | None = None


class ToolFinished(EventData, frozen=True, kw_only=True):
    """The outcome of a call.

    `source` names where output below `local` came from, and `tool` the tool that brought it. `sources` names them
    where there are several. `written` lists the files that the call left. `memory_ids` are the remembered items whose
    content the output shows. `changes_artifact_id` lists what it changed in the workspace, and `undo_artifact_id` holds
    what that replaced. `held_count` counts the changes that are not applied but stay in the layer of the session.
    """

    TYPE: ClassVar[str] = "tool.finished"
    call_id: CallId
    effect_id: EffectId
    outcome: Outcome
    error: ToolError | None
    attestation: Attestation | None
    output: Text | None = None
    artifact_id: Identifier | None = None
    fence_id: Identifier | None = None
    source: Identifier | None = None
    tool: Identifier | None = None
    written: tuple[FileBytes, ...] = ()
    made: tuple[MadeArtifact, ...] = ()
    skill: OpenedSkill | None = None
    memory_ids: tuple[Identifier, ...] = ()
    sources: tuple[Identifier, ...] = ()
    changes_artifact_id: Identifier | None = None
    changes_count: Count = 0
    undo_artifact_id: Identifier | None = None
    held_count: Count = 0


class ToolUncertain(EventData, frozen=True, kw_only=True):
    """A `once` effect was started, and nobody knows whether it happened. It is never retried in silence."""

    TYPE: ClassVar[str] = "tool.uncertain"
    call_id: CallId
    effect_id: EffectId
    attestation: Attestation | None = None


class ApprovalRequested(EventData, frozen=True, kw_only=True):
    """One question to a person.

    A question about several calls names each with its digest, and `digest` covers all of those (L7).
    `reason` is the deciding policy's sentence. `full` is what the preview leaves some of out: whoever allows it has read
    that first.
    """

    TYPE: ClassVar[str] = "approval.requested"
    approval_id: ApprovalId
    kind: ApprovalKind
    digest: Identifier
    rule: Identifier
    expires_at_ms: Count | None
    call_id: CallId | None = None
    tool: Identifier | None = None
    risk: Risk = Risk.MEDIUM
    policies: tuple[Identifier, ...] = ()
    taint: tuple[Identifier, ...] = ()
    preview: Text | None = None
    options: tuple[GrantOption, ...] = ()
    count: Count = 1
    calls: tuple[CallId, ...] = ()
    digests: tuple[Identifier, ...] = ()
    touches: Touches | None = None
    reason: Text = ""
    full: MadeArtifact | None = None


class ApprovalResolved(EventData, frozen=True, kw_only=True):
    """The answer to a question, which is decided once.

    `decided_by` is a principal, or a system principal for expiry and supersession.
    `covered_by` is set where a grant or a refusal given with another question answered. `decided_by` is then who gave it.
    `without` lists the paths of a draft that are not to be applied. `rule` is set where a yes did not count, because what
    holds now denies the call: it names what denies.
    """

    TYPE: ClassVar[str] = "approval.resolved"
    approval_id: ApprovalId
    status: ApprovalStatus
    decision: Decision
    decided_by: Principal
    digest: Identifier
    scope: Scope = Scope.ONCE
    grant: Grant | None = None
    reason: Text = ""
    end_run: bool = False
    covered_by: GrantId | None = None
    without: tuple[Identifier, ...] = ()
    refusal: Refusal | None = None
    rule: Identifier | None = None


class GrantRevoked(EventData, frozen=True, kw_only=True):
    """Takes back a grant or a refusal."""

    TYPE: ClassVar[str] = "grant.revoked"
    grant_id: GrantId
    reason: Text = ""
