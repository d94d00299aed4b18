"""The state of a run: the record that folding its tape gives.

Does not own: folding (fold), deciding (due).
Invariant: its size is bounded by the run's limits and never grows with the session's history (L10).
"""

from enum import Enum

import msgspec
from msgspec.structs import replace

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.model import BudgetState, ModelError, ModelOutput, Reservation
from palyra.core.events.run import Ancestor, CallerTool, EndReason, ObjectiveResult, ReplyAddress, RunLimits, WaitKind
from palyra.core.events.tool import ApprovalKind, MadeArtifact, OpenedSkill, Outcome
from palyra.core.ids import ApprovalId, CallId, Principal, RunId
from palyra.core.run.call import IN_FLIGHT, Call, CallPhase
from palyra.core.run.loop import AgentRunLoopState
from palyra.core.run.progress import RunProgressController
from palyra.core.run.states import RunState
from palyra.core.trust import Trust

SHOWN_MAX = 4  # Pictures of one answer: more would flood a conversation.


class TurnPhase(Enum):
    PLANNING = "planning"  # A route for the next model call is wanted.
    ROUTED = "routed"  # The route is known; the call is due, or a budget question is.
    CALLING = "calling"
    ACTING = "acting"  # The turn's tool calls are being judged and executed.
    ANSWERING = "answering"  # The model's text waits to be checked as the answer.


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that nobody has decided yet. `calls` lists the calls it is about; a budget question has none."""

    approval_id: ApprovalId
    kind: ApprovalKind
    digest: str
    calls: tuple[CallId, ...]
    expires_at_ms: int | None


class PlannedEnd(msgspec.Struct, frozen=True):
    """The run is to end once nothing is in flight any more."""

    reason: EndReason
    message: str


class ChosenRoute(msgspec.Struct, frozen=True):
    chosen: str | None
    budget: BudgetState
    message: str
    fallbacks: tuple[str, ...] = ()
    reserved: Reservation | None = None
    code: ModelError | None = None
    expires_in_ms: int | None = None


class ContextSize(msgspec.Struct, frozen=True):
    """How large the assembled context of the present turn is. Without a known window `budget_tokens` is 0."""

    input_tokens: int
    budget_tokens: int
    is_over: bool = False


class ReferringMessage(msgspec.Struct, frozen=True):
    """A message whose references are not all resolved yet. `number` counts the run's messages."""

    number: int
    text: str
    left_count: int


class Unsettled(msgspec.Struct, frozen=True):
    """A model call that a restart cut off. Its cost will never be known, so its reservation counts as spent."""

    turn: int
    model: str
    reserved: Reservation


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """`wants_room` says that a provider found the context too long; `has_made_room` that this happened once already,
    and `room_words` is what the provider said.

    `calls` are the present turn's. `earlier` are uncertain calls of earlier turns, which a person may still retry.

    `unseen_count` counts people's messages that no model call has carried yet; `is_spoken_to` says that one of them is of
    somebody who may answer the run's questions, and spoke instead. `has_news` says that the outcome of an
    uncertain call became known, and the model has not been told. `skills` lists the skills opened so far, each once.
    `principal` is who it was accepted for: who is judged and charged, whoever owns the session.
    `objectives` are those of its run.accepted. While `is_checking`, the present turn's answer is being checked against
    them; `checked` is what came of it. A new turn clears both.
    `lineage`, `doubts`, `budget_nano_usd`, `reply` and the last four are those of its run.accepted. `has_children` says
    that it started a call that starts a run. `wait_kind` is that of its last run.waiting. `shown` are the newest bodies
    that its calls made for people, at most SHOWN_MAX.
    """

    run_id: RunId
    agent: str
    origin: str
    limits: RunLimits
    can_ask: bool
    must_call: tuple[str, ...]
    model: str | None
    answer_schema: JsonObject | None
    state: RunState
    trust: Trust
    last_at_ms: int
    principal: Principal
    loop: AgentRunLoopState = AgentRunLoopState()
    progress: RunProgressController = RunProgressController()
    phase: TurnPhase = TurnPhase.PLANNING
    turn: int = 0
    context: ContextSize | None = None
    wants_room: bool = False
    has_made_room: bool = False
    room_words: str = ""
    route: ChosenRoute | None = None
    unsettled: Unsettled | None = None
    is_budget_approved: bool = False
    budget_questions_count: int = 0
    output: ModelOutput | None = None
    calls: tuple[Call, ...] = ()
    earlier: tuple[Call, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()
    outcomes: tuple[tuple[str, Outcome], ...] = ()
    unseen_count: int = 0
    is_spoken_to: bool = False
    messages_count: int = 0
    referring: tuple[ReferringMessage, ...] = ()
    has_news: bool = False
    input_keys: frozenset[str] = frozenset()
    interruptions_count: int = 0
    interruption: str = ""
    restarts_count: int = 0
    has_rejected_answer: bool = False
    ending: PlannedEnd | None = None
    skills: tuple[OpenedSkill, ...] = ()
    is_answered: bool = False
    objectives: tuple[str, ...] = ()
    is_checking: bool = False
    checked: tuple[ObjectiveResult, ...] | None = None
    lineage: tuple[Ancestor, ...] = ()
    doubts: frozenset[str] = frozenset()
    budget_nano_usd: int | None = None
    has_children: bool = False
    reply: ReplyAddress | None = None
    wait_kind: WaitKind = WaitKind.APPROVAL
    caller_tools: tuple[CallerTool, ...] = ()
    instructions: str = ""
    output_tokens_max: int | None = None
    serves_agent: str | None = None
    batch_tokens: int = 0
    shown: tuple[MadeArtifact, ...] = ()


def find_call(run: Run, call_id: CallId) -> Call:
    for call in (*run.calls, *run.earlier):
        if call.call_id == call_id:
            return call
    raise Invalid("call_unknown", f"run {run.run_id} has no open call {call_id}")


def with_call(run: Run, changed: Call) -> Run:
    """Returns the run with one call replaced by its next version."""
    calls = tuple(changed if call.call_id == changed.call_id else call for call in run.calls)
    earlier = tuple(changed if call.call_id == changed.call_id else call for call in run.earlier)
    return replace(run, calls=calls, earlier=earlier)


def find_question(run: Run, approval_id: ApprovalId) -> OpenQuestion:
    for question in run.questions:
        if question.approval_id == approval_id:
            return question
    raise Invalid("approval_unknown", f"run {run.run_id} has no open approval {approval_id}")


def is_expired(question: OpenQuestion, now_ms: int) -> bool:
    return question.expires_at_ms is not None and question.expires_at_ms <= now_ms


def holding_questions(run: Run) -> tuple[OpenQuestion, ...]:
    """Returns the questions that the run waits for; a question about an uncertain effect holds nothing."""
    return tuple(question for question in run.questions if question.kind is not ApprovalKind.UNCERTAIN)


def tell_room(run_id: RunId, words: str) -> str:
    """Returns the words about a context that does not fit, and what a person can look at."""
    return f"{words.rstrip('. ')}. `palyra runs context {run_id}` shows what takes the room."


def calls_in_flight(run: Run) -> tuple[Call, ...]:
    return tuple(call for call in (*run.calls, *run.earlier) if call.phase in IN_FLIGHT)


def calls_handed_out(run: Run) -> tuple[Call, ...]:
    """Returns the calls whose results the caller owes."""
    return tuple(call for call in run.calls if call.phase is CallPhase.HANDED_OUT)


def has_caller_tool(run: Run, name: str) -> bool:
    return any(tool.name == name for tool in run.caller_tools)
