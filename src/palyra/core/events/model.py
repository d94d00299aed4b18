"""Events around one model call: routing plan, context, request, output and usage.

Does not own: provider wire formats (adapters.providers).
"""

from enum import Enum
from typing import ClassVar

import msgspec

from palyra.core.events.base import Count, EventData, Identifier, ProviderState, Text, TextObject
from palyra.core.ids import CallId
from palyra.core.trust import Trust


class BudgetState(Enum):
    OK = "ok"
    ASK = "ask"
    DENY = "deny"


class RouteMode(Enum):
    """Whether a plan is carried out: wholly, as far as budgets go, or not at all."""

    ENFORCED = "enforced"
    SUGGEST = "suggest"
    DRY_RUN = "dry_run"


class Finish(Enum):
    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    INTERRUPTED = "interrupted"


class ModelError(Enum):
    """The classes of failed calls that the rules distinguish."""

    AUTH = "auth"
    QUOTA = "quota"
    RATE = "rate"
    OVERLOADED = "overloaded"
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    BAD_REQUEST = "bad_request"
    NETWORK = "network"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    NO_MODEL = "no_model"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    call_id: CallId
    tool: Text
    arguments: TextObject | Text


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    input_tokens: Count
    output_tokens: Count
    cached_tokens: Count = 0
    reasoning_tokens: Count = 0
    cache_write_tokens: Count = 0


class ContextLayer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    name: Identifier
    source: Identifier
    trust: Trust
    tokens: Count
    dropped: Text | None = None


class RouteCandidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`reasons` says why the candidate may not be used. A candidate without reasons may be used.

    `policy` is the policy that does not permit it.
    """

    model: Identifier
    reasons: tuple[Identifier, ...] = ()
    health: Identifier = "unknown"
    estimated_cost_usd: float | None = None
    policy: Identifier | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that a call is expected to cost; an unknown price is null."""

    input_tokens: Count
    output_tokens: Count
    cost_usd: float | None


class BudgetStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a budget stood when a plan was made.

    Spent and reserved amounts are null where they are not this principal's alone.
    """

    budget: Identifier
    action: Identifier
    is_used_up: bool
    limit_usd: float | None = None
    limit_tokens: Count | None = None
    spent_usd: float | None = None
    spent_tokens: Count | None = None
    reserved_usd: float | None = None
    reserved_tokens: Count | None = None


class RoutePlanned(EventData, frozen=True, kw_only=True):
    """The UsageRoutingPlan of one turn. `chosen` is null when no candidate may be used, and `code` then says why.

    `reasons` tells why the model was chosen. `suggested` names the plan's own choice where the mode let another be
    called.
    """

    TYPE: ClassVar[str] = "route.planned"
    IS_PLAIN: ClassVar[bool] = False
    turn: Count
    mode: RouteMode
    chosen: Identifier | None
    budget: BudgetState
    candidates: tuple[RouteCandidate, ...] = ()
    fallbacks: tuple[Identifier, ...] = ()
    reasons: tuple[Identifier, ...] = ()
    suggested: Identifier | None = None
    estimated_input_tokens: Count = 0
    reserved: Reservation | None = None
    budgets: tuple[BudgetStanding, ...] = ()
    code: ModelError | None = None
    message: Text = ""
    expires_in_ms: Count | None = None


class ContextAssembled(EventData, frozen=True, kw_only=True):
    """What one model call is sent, layer by layer. The request can be made again from this and the tape.

    `budget_tokens` is the room for input; 0 means that nobody knows the model's window. Places count the events of the
    whole conversation, a branch's parents included. `from_place` is the first whose message is sent. Results up to
    `pruned_place` are shortened, and messages up to `dropped_place` that nothing needs any more are left out.
    `summary_cut` says how much of the summary gives way: nothing, all but rules, tasks and decisions, or all but rules.
    `is_over` says that the context does not fit. `whole_tokens` is what it would take without pruning. `documents` and
    `preferences` are the places of the project documents and preferences that are sent, in order. `tool_sources` are
    the sources of descriptions of tools that nobody has accepted; they taint the session.
    """

    TYPE: ClassVar[str] = "context.assembled"
    turn: Count
    budget_tokens: Count
    layers: tuple[ContextLayer, ...]
    taint: tuple[Identifier, ...] = ()
    input_tokens: Count = 0
    whole_tokens: Count = 0
    is_compaction_due: bool = False
    from_place: Count = 0
    pruned_place: Count = 0
    dropped_place: Count = 0
    summary_cut: Count = 0
    is_over: bool = False
    documents: tuple[Count, ...] = ()
    preferences: tuple[Count, ...] = ()
    tool_sources: tuple[Identifier, ...] = ()


class RecalledItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A remembered item as a model was shown it. `sources` names where its content came from, if it taints."""

    memory_id: Identifier
    score_bps: Count
    trust: Trust
    kind: Identifier = ""
    content: Text = ""
    sources: tuple[Identifier, ...] = ()
    fence_id: Identifier = ""


class RecallLayer(Enum):
    """Where recalled items stand: behind the message that they are about, or as preferences at the beginning."""

    RECALLED = "recalled"
    PREFERENCES = "preferences"


class MemoryRecalled(EventData, frozen=True, kw_only=True):
    """Remembered items that the session's context holds from here on, or why there are none.

    An event holds one item, so that forgetting the item erases this event and no other. `gone` lists preferences that
    the context holds no longer. `reason` says why nothing was recalled, such as `timed_out`.
    """

    TYPE: ClassVar[str] = "memory.recalled"
    turn: Count
    items: tuple[RecalledItem, ...]
    layer: RecallLayer = RecallLayer.RECALLED
    gone: tuple[Identifier, ...] = ()
    reason: Identifier = ""


class ReferenceResolved(EventData, frozen=True, kw_only=True):
    """One reference of a message, such as `@file:notes.md`: what it brought, or why it brought nothing.

    `source` names where the content came from, in the words of taint; `sources` names several. `is_cut` says that the
    content is not whole. `memory_ids` are the remembered items whose content it shows.
    """

    TYPE: ClassVar[str] = "reference.resolved"
    raw: Text
    kind: Identifier
    ok: bool
    trust: Trust
    chars: Count = 0
    code: Identifier | None = None
    warning: Text | None = None
    fence_id: Identifier | None = None
    content: Text | None = None
    artifact_id: Identifier | None = None
    source: Identifier | None = None
    is_cut: bool = False
    memory_ids: tuple[Identifier, ...] = ()
    sources: tuple[Identifier, ...] = ()


class DocumentRead(EventData, frozen=True, kw_only=True):
    """An instruction file of the workspace, such as AGENTS.md, as the session's context holds it from here on.

    It is recorded when the file differs from what the session recorded last. `sha256` is that of the whole file, and
    `text` is redacted and may be cut. `source` names where tainted bytes came from. `is_gone` says that there is no such
    file any more, or none that may be read.
    """

    TYPE: ClassVar[str] = "document.read"
    path: Identifier
    sha256: Identifier
    trust: Trust
    chars: Count = 0
    text: Text = ""
    is_cut: bool = False
    source: Identifier | None = None
    fence_id: Identifier | None = None
    is_gone: bool = False


class ModelRequested(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "model.requested"
    turn: Count
    model: Identifier


class ModelOutput(EventData, frozen=True, kw_only=True):
    """The joined output of one call. `schema_errors` is what the caller's answer_schema says of the text.

    `model` is set where another model than the requested one answered, and `cause` where the output broke off.
    """

    TYPE: ClassVar[str] = "model.output"
    IS_PLAIN: ClassVar[bool] = False
    turn: Count
    text: Text
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    usage: Usage | None
    reasoning: Text | None = None
    schema_errors: tuple[Text, ...] = ()
    provider_state: ProviderState | None = None
    model: Identifier | None = None
    cause: Text | None = None


class ModelFailed(EventData, frozen=True, kw_only=True):
    """No attempt is left for this turn: retries and failover have already happened."""

    TYPE: ClassVar[str] = "model.failed"
    turn: Count
    code: ModelError
    message: Text
    model: Identifier | None = None


class UsageRecorded(EventData, frozen=True, kw_only=True):
    """Settled spend of one call. An unknown price is null, never zero."""

    TYPE: ClassVar[str] = "usage.recorded"
    IS_PLAIN: ClassVar[bool] = False
    model: Identifier
    input_tokens: Count
    output_tokens: Count
    cached_tokens: Count
    cost_usd: float | None
    turn: Count | None = None
    reasoning_tokens: Count = 0
    cache_write_tokens: Count = 0
    is_estimate: bool = False
