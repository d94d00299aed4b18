"""The fold of a run: what each event of a run's tape does to its state.

Does not own: what should happen next (due).
Invariants: an illegal event raises Invalid and changes nothing. Folding in one go equals folding on from any prefix.
"""

from typing import assert_never

from msgspec.structs import replace

from palyra.core.errors import Corrupt, Invalid
from palyra.core.events import Draft, Event, SystemData
from palyra.core.events.base import ErasedData
from palyra.core.events.draft import (
    ChangesKeeping,
    ChangesKept,
    ChangesUndoing,
    ChangesUndone,
    DraftApplying,
    DraftConflicted,
    DraftJudged,
    ToolDrafted,
)
from palyra.core.events.model import (
    ContextAssembled,
    DocumentRead,
    MemoryRecalled,
    ModelFailed,
    ModelOutput,
    ModelRequested,
    ReferenceResolved,
    RoutePlanned,
    UsageRecorded,
)
from palyra.core.events.run import (
    AnswerRejected,
    CancelRequested,
    EndReason,
    GuardTripped,
    MessageAssistant,
    MessageGiven,
    MessageUser,
    ObjectivesChecked,
    ResumeCause,
    RunAccepted,
    RunCancelled,
    RunDone,
    RunFailed,
    RunResumed,
    RunStarted,
    RunWaiting,
    WaitKind,
)
from palyra.core.events.session import (
    DocumentChanged,
    LearningApplied,
    PinAdded,
    PinRemoved,
    SessionBranched,
    SessionCheckpointed,
    SessionCompacted,
    SessionCreated,
    SessionLabelled,
    SessionReset,
    SessionRestored,
    SourceDistrusted,
    SourceTrusted,
)
from palyra.core.events.tool import (
    ApprovalRequested,
    ApprovalResolved,
    GrantRevoked,
    ToolFinished,
    ToolHeld,
    ToolJudged,
    ToolProposed,
    ToolStarted,
    ToolUncertain,
)
from palyra.core.ids import is_agent
from palyra.core.references.parser import parse_references
from palyra.core.run import fold_calls, fold_drafts, fold_turn
from palyra.core.run.loop import begin_active, end_active
from palyra.core.run.progress import acknowledge
from palyra.core.run.state import (
    PlannedEnd,
    ReferringMessage,
    Run,
    TurnPhase,
    calls_handed_out,
    calls_in_flight,
    holding_questions,
)
from palyra.core.run.states import LIFECYCLE_TYPES, STATE_BY_REASON, LifecycleData, RunState, is_terminal, next_state
from palyra.core.trust import is_tainting, lowest
from palyra.core.typed import typed_words

AFTER_THE_END = frozenset({ApprovalResolved.TYPE})


def accept(fact: Draft) -> Run:
    """Returns the first state of a run, from its run.accepted."""
    data = fact.data
    if not isinstance(data, RunAccepted) or fact.run_id is None:
        raise Invalid("run_unknown", f"a run begins with {RunAccepted.TYPE}, not with {data.TYPE}")
    return Run(
        run_id=fact.run_id,
        agent=data.agent,
        origin=data.origin,
        limits=data.limits,
        can_ask=data.can_ask,
        must_call=data.must_call,
        model=data.model,
        answer_schema=data.answer_schema,
        state=RunState.ACCEPTED,
        trust=fact.trust,
        last_at_ms=fact.at_ms,
        principal=fact.actor,
        lineage=data.lineage,
        skills=data.skills,
        doubts=frozenset(data.doubts),
        budget_nano_usd=data.budget_nano_usd,
        caller_tools=data.caller_tools,
        instructions=data.instructions,
        output_tokens_max=data.output_tokens_max,
        reply=data.reply,
        serves_agent=data.serves_agent,
        batch_tokens=data.batch_tokens or 0,
        objectives=data.objectives,
    )


def fold(run: Run, fact: Draft) -> Run:
    """Returns the run after one more event of its own."""
    data = fact.data
    if fact.run_id != run.run_id:
        raise Invalid("run_elsewhere", f"an event of run {fact.run_id} was given to run {run.run_id}")
    if is_terminal(run.state) and data.TYPE in LIFECYCLE_TYPES | _DECIDING_TYPES:
        _require_open(run, data.TYPE)
    last_at_ms = max(run.last_at_ms, fact.at_ms)
    folded = _mind_children(_fold_data(run, fact), fact.at_ms)
    return replace(folded, last_at_ms=last_at_ms, trust=lowest((run.trust, fact.trust)))


def fact_of(event: Event) -> Draft:
    if isinstance(event.data, ErasedData):
        raise Corrupt(
            "tape_erased", f"session {event.stream} seq {event.seq} was erased: its run cannot be folded again"
        )
    return Draft(data=event.data, actor=event.actor, trust=event.trust, at_ms=event.at_ms, run_id=event.run_id)


def _mind_children(run: Run, at_ms: int) -> Run:
    """Stops the clock of a run while all it does is waiting for children that wait for a person."""
    if not run.has_children or run.state is not RunState.IN_PROGRESS:
        return run
    running = calls_in_flight(run)
    if running and all(call.is_held for call in running):
        return replace(run, loop=end_active(run.loop, at_ms))
    return replace(run, loop=begin_active(run.loop, at_ms))


def _require_open(run: Run, type_name: str) -> None:
    if type_name not in AFTER_THE_END:
        raise Invalid("run_ended", f"run {run.run_id} is {run.state.value}; {type_name} came after its end")


# Lists the types that decide nothing about a run. A type that is neither here nor a case fails the type check.
_WithoutEffect = (
    MemoryRecalled | DocumentRead | MessageGiven | GrantRevoked | SessionCreated | SessionBranched | SessionRestored
    | SessionReset | SessionLabelled | SessionCompacted | SourceTrusted | SourceDistrusted | SessionCheckpointed
    | PinAdded | PinRemoved | DocumentChanged | ChangesUndoing | ChangesUndone
    | ChangesKeeping | ChangesKept | LearningApplied | SystemData
)  # fmt: skip


def _fold_data(run: Run, fact: Draft) -> Run:
    """Handles one event type a case; those of `_WithoutEffect` leave the run as it is."""
    data = fact.data
    match data:
        case RunAccepted() | RunStarted() | RunWaiting() | RunResumed() | RunDone() | RunFailed() | RunCancelled():
            return _fold_lifecycle(run, data, fact.at_ms)
        case MessageUser():
            return _fold_message(run, data, fact)
        case ReferenceResolved():
            return _fold_reference(run)
        case MessageAssistant():
            return _fold_answer(run)
        case CancelRequested(reason=reason, message=message):
            return _fold_cancel(run, PlannedEnd(reason, message))
        case GuardTripped(guard=guard):
            return _fold_guard(run, guard)
        case ObjectivesChecked():
            return fold_turn.check(run, data)
        case AnswerRejected():
            return fold_turn.reject_answer(run)
        case ContextAssembled():
            return fold_turn.assemble(run, data)
        case RoutePlanned():
            return fold_turn.plan(run, data)
        case ModelRequested():
            return fold_turn.request(run, data)
        case ModelOutput():
            return fold_turn.receive(run, data)
        case ModelFailed():
            return fold_turn.fail(run, data)
        case UsageRecorded():
            return fold_turn.settle_spend(run, data)
        case ToolProposed():
            return fold_calls.propose(run, data)
        case ToolJudged():
            return fold_calls.judge(run, data)
        case ApprovalRequested():
            return fold_calls.ask(run, data)
        case ApprovalResolved():
            return fold_calls.resolve(run, data, fact.at_ms)
        case ToolStarted():
            return fold_calls.start(run, data)
        case ToolHeld():
            return fold_calls.hold(run, data)
        case ToolFinished():
            return fold_calls.finish(run, data)
        case ToolUncertain():
            return fold_calls.doubt(run, data)
        case ToolDrafted() | DraftJudged() | DraftApplying() | DraftConflicted():
            return fold_drafts.fold_draft(run, data)
        case _:
            if isinstance(data, _WithoutEffect):
                return run
            assert_never(data)


_DECIDING_TYPES = frozenset(
    data_type.TYPE
    for data_type in (
        MessageUser, MessageAssistant, CancelRequested, GuardTripped, ObjectivesChecked, AnswerRejected,
        ContextAssembled, RoutePlanned, ModelRequested, ModelOutput, ModelFailed, ToolProposed, ToolJudged,
        ApprovalRequested, ApprovalResolved, ToolStarted, ToolHeld, ToolFinished, ToolUncertain, ToolDrafted,
        DraftJudged, DraftApplying, DraftConflicted,
    )
)  # fmt: skip


def _fold_message(run: Run, data: MessageUser, fact: Draft) -> Run:
    """Notes what was said. Only the words of the run's own principal refer to something, and not those from outside."""
    is_persons = not is_tainting(fact.trust) and not is_agent(fact.actor) and fact.actor == run.principal
    words = typed_words(data)
    count = len(parse_references(words)) if is_persons else 0
    number = run.messages_count + 1
    new = (ReferringMessage(number, words, count),) if count else ()
    key = data.idempotency_key
    return replace(
        run,
        unseen_count=run.unseen_count + 1,
        is_spoken_to=run.is_spoken_to or not data.leaves_questions,
        messages_count=number,
        referring=(*run.referring, *new),
        input_keys=run.input_keys if key is None else run.input_keys | {key},
        restarts_count=0,
        context=None,  # One that was assembled before these words lacks them.
    )


def _fold_reference(run: Run) -> Run:
    if not run.referring:
        return run
    first, *others = run.referring
    left = (replace(first, left_count=first.left_count - 1),) if first.left_count > 1 else ()
    return replace(run, referring=(*left, *others), context=None)


def _fold_lifecycle(run: Run, data: LifecycleData, at_ms: int) -> Run:
    state = next_state(run.state, data.TYPE)
    changed = replace(run, state=state)
    match data:
        case RunStarted():
            return fold_turn.begin_turn(replace(changed, loop=begin_active(run.loop, at_ms)))
        case RunResumed(cause=cause):
            return _fold_resumed(run, changed, cause, at_ms)
        case RunWaiting() as waiting:
            return _fold_waiting(run, changed, waiting, at_ms)
        case RunDone(reason=reason) | RunFailed(reason=reason) | RunCancelled(reason=reason):
            return _fold_end(run, changed, reason, at_ms)
        case RunAccepted():
            return changed
        case _:
            assert_never(data)


def _fold_waiting(before: Run, waiting: Run, data: RunWaiting, at_ms: int) -> Run:
    asked = tuple(question.approval_id for question in holding_questions(before))
    owed = tuple(call.call_id for call in calls_handed_out(before))
    kind = WaitKind.APPROVAL if asked else WaitKind.CALLER_TOOL
    if (data.approval_ids, data.call_ids, data.kind) != (asked, owed, kind) or not (asked or owed):
        raise Invalid("wait_mismatch", f"run {before.run_id} has other open questions than it is said to wait for")
    return replace(waiting, loop=end_active(before.loop, at_ms), wait_kind=kind)


def _fold_resumed(before: Run, resumed: Run, cause: ResumeCause, at_ms: int) -> Run:
    """Applies the cause of a resume.

    A restart interrupts effects in flight. An answer or a message wakes a waiting run. A restart leaves a waiting run
    as it is.
    """
    if (cause is ResumeCause.RESTART) is (before.state is RunState.WAITING):
        raise Invalid(
            "resume_mismatch", f"run {before.run_id} is {before.state.value}: {cause.value} does not resume it"
        )
    if cause is ResumeCause.RESTART:
        return _fold_restart(resumed, at_ms)
    return replace(resumed, loop=begin_active(before.loop, at_ms))


def _fold_restart(run: Run, at_ms: int) -> Run:
    """Marks everything that was in flight as lost. Time during which no daemon ran does not count as active.

    If only children were under way, each of them counts the restart for itself: one may wait for a person for days.
    """
    stopped = end_active(run.loop, max(run.last_at_ms, run.loop.active_since_ms or 0))
    running = calls_in_flight(run)
    is_childrens = bool(running) and all(call.judged is not None and call.judged.starts_run for call in running)
    restarts_count = run.restarts_count if is_childrens else run.restarts_count + 1
    restarted = replace(run, loop=begin_active(stopped, at_ms), restarts_count=restarts_count)
    return fold_calls.lose_started(fold_turn.lose_call(restarted))


def _fold_end(before: Run, ended: Run, reason: EndReason, at_ms: int) -> Run:
    if STATE_BY_REASON[reason] is not ended.state:
        raise Invalid("reason_mismatch", f"a run that ends with {reason.value} is not {ended.state.value}")
    if ended.state is RunState.DONE and not before.is_answered:
        raise Invalid("answer_missing", f"run {before.run_id} cannot be done without an accepted answer")
    return replace(ended, loop=end_active(before.loop, at_ms))


def _fold_answer(run: Run) -> Run:
    if run.phase is not TurnPhase.ANSWERING or run.state is not RunState.IN_PROGRESS:
        raise Invalid("answer_unexpected", f"run {run.run_id} has no answer to accept while {run.phase.value}")
    if run.objectives and run.checked is None:
        raise Invalid("answer_unchecked", f"the answer of run {run.run_id} was not checked against its objectives")
    return replace(run, is_answered=True)


def _fold_cancel(run: Run, ending: PlannedEnd) -> Run:
    if ending.reason not in (EndReason.CANCELLED, EndReason.WALL_CLOCK):
        raise Invalid("cancel_reason", f"{ending.reason.value} is no reason to cancel a run")
    return run if run.ending is not None else replace(run, ending=ending)


def _fold_guard(run: Run, guard: str) -> Run:
    if run.progress.tripped != guard:
        raise Invalid("guard_unexpected", f"guard {guard} did not trip in run {run.run_id}")
    return replace(run, progress=acknowledge(run.progress))
