"""Events of a run's life and of what people say to it: run.*, message.*, cancel.requested and what guards found."""

from enum import Enum
from typing import ClassVar

import msgspec

from palyra.core.events.base import Count, EventData, Identifier, JsonSchema, Text, TextObject
from palyra.core.events.tool import OpenedSkill
from palyra.core.ids import ApprovalId, CallId, Principal, RunId, SessionId
from palyra.core.trust import Trust


class EndReason(Enum):
    FINAL_ANSWER = "final_answer"
    MAX_TURNS = "max_turns"
    MAX_TOOL_CALLS = "max_tool_calls"
    WALL_CLOCK = "wall_clock"
    BUDGET = "budget"
    CANCELLED = "cancelled"
    APPROVAL_DENIED = "approval_denied"
    PROVIDER_ERROR = "provider_error"
    CONTEXT_EXHAUSTED = "context_exhausted"
    INCOMPLETE_ANSWER = "incomplete_answer"
    NO_PROGRESS = "no_progress"


class ResumeCause(Enum):
    APPROVAL = "approval"
    INPUT = "input"
    RESTART = "restart"
    CALLER_TOOL = "caller_tool"


class WaitKind(Enum):
    """Whom a waiting run waits for: a person who approves, or the caller who executes a tool of its own."""

    APPROVAL = "approval"
    CALLER_TOOL = "caller_tool"


class RunLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wall_clock_ms: Count
    max_tool_calls: Count
    max_turns: Count
    parallel_tools: Count


class AttachedText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The readable text of an attached document.

    `shown` is what a model is shown of it. `sha256` and `bytes` are of the whole text, with markers for its secrets. If
    the whole is longer (`is_cut`), it is the artifact of that hash. `is_partial`: the document has more text than was
    read.
    """

    shown: Text
    sha256: Identifier
    bytes: Count
    fence_id: Identifier
    title: Text = ""
    detail: Text = ""
    is_cut: bool = False
    is_partial: bool = False


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`trust` and `source` are those of an artifact that came from elsewhere; without them the sender's count."""

    artifact_id: Identifier
    name: Text
    media_type: Identifier
    bytes: Count
    text: AttachedText | None = None
    trust: Trust | None = None
    source: Identifier | None = None


class Ancestor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run that a delegated run works for, as it was when the delegation began.

    `tools` holds the patterns of tools that its agent may use. `budget_nano_usd` is the cap it was given itself.
    """

    run_id: RunId
    session_id: SessionId
    agent: Identifier
    origin: Identifier
    tools: tuple[Identifier, ...]
    budget_nano_usd: Count | None = None


class CallerTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tool that the caller supplied with the run and executes itself."""

    name: Identifier
    description: Text = ""
    parameters: JsonSchema = {}


class ReplyAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The conversation of a channel that hears a run's answer and its questions. `reply_to` is the message it answers."""

    channel: Identifier
    conversation_id: Identifier
    thread_id: Identifier | None = None
    reply_to: Identifier | None = None


class RunAccepted(EventData, frozen=True, kw_only=True):
    """Holds everything that the run's rules need, so that its fold never looks elsewhere.

    `lineage` and the three after it are set on a delegated run (core.delegation). `lineage` lists the runs it works
    for, the first one first. `skills` are those its parent had open, and `doubts` the digests of the parent's uncertain
    calls. `budget_nano_usd` caps what it and its own children may spend. `reply` is set on a run that a channel hears of.

    The others are set by callers that bring their own: tools they execute, instructions that come after the agent's,
    the most tokens of one output, and what the answer has to achieve (core.run.objectives). `serves_agent` and
    `batch_tokens` are set on a service run: the agent of the session it serves, and what the texts that it embeds add to
    the input of its call, because they are on no tape. `client` names the program that gave the task, if it was no person.
    """

    TYPE: ClassVar[str] = "run.accepted"
    IS_PLAIN: ClassVar[bool] = False
    agent: Identifier
    origin: Identifier
    can_ask: bool
    limits: RunLimits
    idempotency_key: Identifier | None = None
    model: Identifier | None = None
    must_call: tuple[Identifier, ...] = ()
    answer_schema: JsonSchema | None = None
    lineage: tuple[Ancestor, ...] = ()
    skills: tuple[OpenedSkill, ...] = ()
    doubts: tuple[Identifier, ...] = ()
    budget_nano_usd: Count | None = None
    caller_tools: tuple[CallerTool, ...] = ()
    instructions: Text = ""
    output_tokens_max: Count | None = None
    reply: ReplyAddress | None = None
    serves_agent: Identifier | None = None
    batch_tokens: Count | None = None
    objectives: tuple[Text, ...] = ()
    client: Identifier | None = None


class RunStarted(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "run.started"


class RunWaiting(EventData, frozen=True, kw_only=True):
    """`call_ids` are the calls whose results the caller owes. `kind` is `caller_tool` if no approval is open too."""

    TYPE: ClassVar[str] = "run.waiting"
    approval_ids: tuple[ApprovalId, ...]
    kind: WaitKind = WaitKind.APPROVAL
    call_ids: tuple[CallId, ...] = ()


class RunResumed(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "run.resumed"
    cause: ResumeCause


class RunDone(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "run.done"
    reason: EndReason
    message: Text


class RunFailed(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "run.failed"
    reason: EndReason
    message: Text


class RunCancelled(EventData, frozen=True, kw_only=True):
    TYPE: ClassVar[str] = "run.cancelled"
    reason: EndReason
    message: Text


class CancelRequested(EventData, frozen=True, kw_only=True):
    """The request is durable before anything is stopped, so that a cancel outlives a crash.

    The reason is cancelled or wall_clock.
    """

    TYPE: ClassVar[str] = "cancel.requested"
    reason: EndReason
    message: Text = ""


class MessageUser(EventData, frozen=True, kw_only=True):
    """What a person said. Within an active run it steers the run.

    A message that is sent again under the same key is not recorded again. An attachment of lower trust lowers the trust
    of the event; `sender_trust` is then the sender's own. `via` is the account of a channel that a person spoke through.
    `typed` holds the words that the person typed, one piece a line, if others of `text` were pasted or came from
    elsewhere (core.typed). Such an event is at most `local`. `client` names the program that wrote the message, where it
    was no person.
    With `leaves_questions` whoever said it may not answer the run's questions, so none ends because of it.
    """

    TYPE: ClassVar[str] = "message.user"
    text: Text
    attachments: tuple[Attachment, ...] = ()
    idempotency_key: Identifier | None = None
    sender_trust: Trust | None = None
    via: Principal | None = None
    typed: Text | None = None
    client: Identifier | None = None
    leaves_questions: bool = False


class GivenRole(Enum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class GivenCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of an earlier assistant message. Its id is the caller's."""

    call_id: Identifier
    tool: Identifier
    arguments: TextObject | Text


class MessageGiven(EventData, frozen=True, kw_only=True):
    """A message of an earlier conversation that a caller brought along, because it keeps the conversation itself.

    `calls` are those of an assistant, `call_id` names the call of a tool's result. What an assistant or a tool said
    is below `local`: nobody here saw where it came from (L8).
    """

    TYPE: ClassVar[str] = "message.given"
    IS_PLAIN: ClassVar[bool] = False
    role: GivenRole
    text: Text
    attachments: tuple[Attachment, ...] = ()
    calls: tuple[GivenCall, ...] = ()
    call_id: Identifier | None = None
    source: Identifier | None = None
    fence_id: Identifier | None = None


class MessageAssistant(EventData, frozen=True, kw_only=True):
    """The accepted final answer of a run."""

    TYPE: ClassVar[str] = "message.assistant"
    text: Text
    attachments: tuple[Attachment, ...] = ()


class GuardTripped(EventData, frozen=True, kw_only=True):
    """The RunProgressController saw no progress. The model gets `guidance` once; after that the run ends."""

    TYPE: ClassVar[str] = "guard.tripped"
    guard: Identifier
    trip: Count
    guidance: Text


class ObjectiveState(Enum):
    """`unchecked`: nobody could tell, and the note says why. It never counts as met."""

    MET = "met"
    UNMET = "unmet"
    UNCHECKED = "unchecked"


class ObjectiveResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`note` says what is missing, or why it could not be checked. `is_reviewed`: the note is a model's."""

    state: ObjectiveState
    note: Text = ""
    is_reviewed: bool = False


class ObjectivesChecked(EventData, frozen=True, kw_only=True):
    """What became of the run's objectives with the answer of this turn: one result for each, in their order.

    `review_run_id` is the service run that reviewed those in plain text.
    """

    TYPE: ClassVar[str] = "objectives.checked"
    turn: Count
    results: tuple[ObjectiveResult, ...]
    review_run_id: RunId | None = None


class AnswerRejected(EventData, frozen=True, kw_only=True):
    """The final answer contract was not met. The model gets `problems` for one recovery turn."""

    TYPE: ClassVar[str] = "answer.rejected"
    turn: Count
    problems: tuple[Text, ...]
