"""The window: a bounded fold over the last events of a tape.

Does not own: what of it is sent (prompt).
It is bounded in items, characters and images, so a turn costs the same however long the session is (L10).
Invariant: results below `local` stand in fences.
"""

from typing import NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from palyra.core.compaction.model import KeptItem, KeptKind
from palyra.core.context.attached import attached_size
from palyra.core.context.documents import WindowDocument, fold_document
from palyra.core.context.given import given_message
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage, is_visit
from palyra.core.context.pins import Pin, add_pin, remove_pin
from palyra.core.context.recalled import ShownPreference, fold_preferences, is_recall, join_recall, render_recall
from palyra.core.context.results import UNCERTAIN, tell_result
from palyra.core.events import Data, Event, SystemData
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
    Finish,
    MemoryRecalled,
    ModelFailed,
    ModelOutput,
    ModelRequested,
    RecallLayer,
    ReferenceResolved,
    RoutePlanned,
    UsageRecorded,
)
from palyra.core.events.run import (
    AnswerRejected,
    CancelRequested,
    GuardTripped,
    MessageAssistant,
    MessageGiven,
    MessageUser,
    ObjectivesChecked,
    RunAccepted,
    RunCancelled,
    RunDone,
    RunFailed,
    RunResumed,
    RunStarted,
    RunWaiting,
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
from palyra.core.ids import Principal, RunId, is_agent
from palyra.core.references.prompt import join_references, render_references
from palyra.core.trust import Trust, is_tainting, lowest
from palyra.core.typed import typed_words

ITEMS_MAX = 400
CHARS_MAX = 300_000  # About 75,000 tokens: fits every current model with room for tools and output.
EVENTS_READ_MAX = 1_200  # About three events an item: as many as are read from the tape to fill the window once.


class WindowItem(msgspec.Struct, frozen=True):
    """`source` and `tool` tell where a result below `local` came from, and by which tool; `source` also which program spoke.

    `place` is where the event that brought the message stands in the whole conversation, parents of a branch included.
    `is_delegated` marks a task that another agent wrote: its words are no person's. `is_reference` marks what a message
    referred to, or what it was reminded of. `memory_ids` are the remembered items that the message shows. `typed` are a
    person's own words of a message that holds others too.
    """

    message: Message
    trust: Trust
    chars: int
    source: str | None = None
    tool: str | None = None
    place: int = 0
    is_delegated: bool = False
    is_reference: bool = False
    memory_ids: tuple[str, ...] = ()
    typed: str | None = None

    @property
    def visits(self) -> tuple[str, ...]:
        """Returns the calls by which a model wanted to go to an address."""
        calls = self.message.tool_calls if isinstance(self.message, AssistantMessage) else ()
        return tuple(call.call_id for call in calls if is_visit(call.arguments))


class ContextSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the place of the compacted conversation."""

    text: str
    items: tuple[KeptItem, ...]
    trust: Trust
    to_place: int
    fence_id: str = ""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """`held` holds the words of queued runs: a model hears them when their run begins, not before.

    `tainted_visits_count` counts visits wanted under taint since the last reset, in items that have left the window.
    `pruned_place`, `dropped_place` and `summary_cut` are those of the last `context.assembled`. `base` is how many events
    of the session's ancestors come before its own, so that places in a branch go on where its parent's end. `documents`
    are the workspace's instruction files; `has_stale_documents` says that the next turn looks at them again.
    """

    items: tuple[WindowItem, ...] = ()
    chars: int = 0
    tainted_visits_count: int = 0
    active_run_id: RunId | None = None
    held: tuple[tuple[RunId | None, WindowItem], ...] = ()
    pruned_place: int = 0
    dropped_place: int = 0
    summary_cut: int = 0
    base: int = 0
    summary: ContextSummary | None = None
    pins: tuple[Pin, ...] = ()
    documents: tuple[WindowDocument, ...] = ()
    has_stale_documents: bool = False
    preferences: tuple[ShownPreference, ...] = ()


class WindowFact(NamedTuple):
    """An event that is recorded or about to be. `data` of an erased event says only that it was erased."""

    place: int
    run_id: RunId | None
    actor: Principal
    trust: Trust
    data: Data | ErasedData


def extend(window: Window, event: Event) -> Window:
    """Returns the window after one more event of its tape."""
    return extend_by(window, WindowFact(window.base + event.seq, event.run_id, event.actor, event.trust, event.data))


def extend_by(window: Window, fact: WindowFact) -> Window:
    """Returns the window after one more fact."""
    data = fact.data
    if isinstance(data, MessageUser) and fact.run_id != window.active_run_id:
        return replace(window, held=(*window.held, (fact.run_id, _said(data, fact))))
    if isinstance(data, RunAccepted | CancelRequested):
        return window
    if fact.run_id is not None and fact.run_id != window.active_run_id:
        window = _activate(window, fact)
    return _extend_active(window, fact)


def _said(data: MessageUser, fact: WindowFact) -> WindowItem:
    message = UserMessage(data.text, data.attachments)
    typed = None if data.typed is None else typed_words(data)
    return WindowItem(
        message,
        fact.trust,
        _size(message),
        data.client,
        place=fact.place,
        is_delegated=is_agent(fact.actor),
        typed=typed,
    )


def _activate(window: Window, fact: WindowFact) -> Window:
    """Adds what a person said to a queued run, now that this run is the active one."""
    held = tuple(pair for pair in window.held if pair[0] != fact.run_id)
    said = [item for run_id, item in window.held if run_id == fact.run_id]
    active = replace(window, active_run_id=fact.run_id, held=held)
    if isinstance(fact.data, RunCancelled):
        return active
    for item in said:
        active = _put(active, item)
    return active


def _extend_active(window: Window, fact: WindowFact) -> Window:
    """Handles one event type a case."""
    data = fact.data
    match data:
        case SessionReset():
            return Window(held=window.held, active_run_id=window.active_run_id, base=window.base)
        case MessageUser():
            return _put(window, _said(data, fact))
        case ModelOutput(finish=finish) as output if finish is not Finish.INTERRUPTED:
            calls = tuple(PastCall(call.call_id, call.tool, call.arguments) for call in output.tool_calls)
            return _add(window, AssistantMessage(output.text, calls, output.provider_state), fact)
        case ToolFinished() as finished:
            return _put(window, _result(finished, fact))
        case MessageGiven():
            message = given_message(data, fact.trust)
            return _put(window, WindowItem(message, fact.trust, _size(message), data.source, None, fact.place))
        case ToolUncertain(call_id=call_id):
            return _add(window, ToolMessage(call_id, UNCERTAIN, is_error=True), fact)
        case GuardTripped(guidance=guidance):
            return _add(window, UserMessage(f"[palyra] {guidance}"), fact)
        case ContextAssembled(pruned_place=pruned_place, dropped_place=dropped_place, summary_cut=cut):
            window = replace(window, has_stale_documents=False) if window.has_stale_documents else window
            if (pruned_place, dropped_place, cut) == (window.pruned_place, window.dropped_place, window.summary_cut):
                return window
            return replace(window, pruned_place=pruned_place, dropped_place=dropped_place, summary_cut=cut)
        case DocumentRead():
            return replace(window, documents=fold_document(window.documents, data, fact.place))
        case ReferenceResolved():
            return _refer(window, data, fact)
        case MemoryRecalled():
            return _recall(window, data, fact)
        case SessionCompacted():
            return _compact(window, data, fact)
        case AnswerRejected(problems=problems):
            return _add(window, UserMessage("[palyra] " + " ".join(problems)), fact)
        case PinAdded():
            return replace(window, pins=add_pin(window.pins, data, fact.trust))
        case PinRemoved(pin_id=pin_id):
            return replace(window, pins=remove_pin(window.pins, pin_id))
        case ModelOutput():
            return window
        case _:
            if isinstance(data, _Untold):
                return window
            assert_never(data)


# A model is told of none of these, nor of an interrupted output. A type that is neither here nor a case fails the type
# check. Frequent types come first.
_Untold = (
    ToolProposed | ToolJudged | ToolStarted | ToolHeld | ToolDrafted | DraftJudged | DraftApplying | DraftConflicted
    | ChangesUndoing | ChangesUndone | ChangesKeeping | ChangesKept
    | RoutePlanned | ModelRequested | UsageRecorded | RunAccepted | RunStarted
    | RunWaiting | RunResumed | RunDone | RunFailed | RunCancelled | CancelRequested | MessageAssistant
    | ObjectivesChecked | ModelFailed | ApprovalRequested | ApprovalResolved | GrantRevoked | SessionCreated
    | SessionBranched | SessionRestored | SessionLabelled | SessionCheckpointed | SourceTrusted | SourceDistrusted
    | DocumentChanged | LearningApplied | SystemData | ErasedData
)  # fmt: skip


def trust_of(window: Window) -> Trust:
    summary = () if window.summary is None else (window.summary.trust,)
    shown = (pin.trust for pin in window.pins), (document.trust for document in window.documents)
    fixed = (
        *(trust for trusts in shown for trust in trusts),
        *(each.item.trust for each in window.preferences),
        *summary,
    )
    return lowest((*(item.trust for item in window.items), *fixed))


def memory_ids_in(window: Window) -> frozenset[str]:
    """Returns the remembered items whose content the window holds."""
    shown = [memory_id for item in window.items for memory_id in item.memory_ids]
    return frozenset((*shown, *(each.item.memory_id for each in window.preferences)))


def read_documents_again(window: Window) -> Window:
    """Returns the window with a mark by which the next turn looks at the instruction files again."""
    return replace(window, has_stale_documents=True)


def _compact(window: Window, data: SessionCompacted, fact: WindowFact) -> Window:
    """Leaves out what was compacted. Results whose calls are gone go too."""
    items = tuple(item for item in window.items if item.place > data.to_place)
    kept = tuple(
        KeptItem(kind=KeptKind(each.kind), text=each.text, place=each.place, trust=each.trust, is_told=each.is_told)
        for each in data.items
    )
    summary = ContextSummary(
        text=data.summary, items=kept, trust=fact.trust, to_place=data.to_place, fence_id=data.fence_id
    )
    gone = sum(len(item.visits) for item in window.items if item.place <= data.to_place and is_tainting(item.trust))
    return replace(
        read_documents_again(window),
        items=items,
        chars=sum(item.chars for item in items),
        summary=summary,
        tainted_visits_count=window.tainted_visits_count + gone,
    )


def _refer(window: Window, data: ReferenceResolved, fact: WindowFact) -> Window:
    """Adds what a reference brought to the block of its message."""
    last = window.items[-1] if window.items else None
    if last is None or not last.is_reference or is_recall(last.message.text):
        return _begin_block(window, render_references([data]), fact, data.memory_ids, data.source)
    return _join_block(window, last, join_references(last.message.text, data), fact, data.memory_ids)


def _recall(window: Window, data: MemoryRecalled, fact: WindowFact) -> Window:
    """Adds what was remembered to the block behind the message it is about, or to the preferences."""
    if data.layer is RecallLayer.PREFERENCES:
        return replace(window, preferences=fold_preferences(window.preferences, data, fact.place))
    if not data.items:
        return window
    last = window.items[-1] if window.items else None
    shown = tuple(item.memory_id for item in data.items)
    if last is None or not last.is_reference or not is_recall(last.message.text):
        return _begin_block(window, render_recall(data.items), fact, shown)
    return _join_block(window, last, join_recall(last.message.text, data.items), fact, shown)


def _begin_block(
    window: Window, text: str, fact: WindowFact, memory_ids: tuple[str, ...], source: str | None = None
) -> Window:
    item = WindowItem(UserMessage(text), fact.trust, len(text), source, None, fact.place, False, True, memory_ids)
    return _put(window, item)


def _join_block(window: Window, last: WindowItem, text: str, fact: WindowFact, memory_ids: tuple[str, ...]) -> Window:
    joined = replace(
        last,
        message=UserMessage(text),
        chars=len(text),
        trust=lowest((last.trust, fact.trust)),
        place=fact.place,
        memory_ids=(*last.memory_ids, *memory_ids),
    )
    shorter = replace(window, items=window.items[:-1], chars=window.chars - last.chars)
    return _put(shorter, joined)


def _add(window: Window, message: Message, fact: WindowFact) -> Window:
    return _put(window, WindowItem(message, fact.trust, _size(message), place=fact.place))


def _result(finished: ToolFinished, fact: WindowFact) -> WindowItem:
    message = tell_result(finished, fact.trust)
    item = WindowItem(message, fact.trust, _size(message), finished.source, finished.tool, fact.place)
    return replace(item, memory_ids=finished.memory_ids) if finished.memory_ids else item


def _put(window: Window, item: WindowItem) -> Window:
    items = (*window.items, item)
    total = window.chars + item.chars
    first = 0
    while first < len(items) - 1 and (len(items) - first > ITEMS_MAX or total > CHARS_MAX):
        total -= items[first].chars
        first += 1
    gone = sum(len(each.visits) for each in items[:first] if is_tainting(each.trust))
    return replace(window, items=items[first:], chars=total, tainted_visits_count=window.tainted_visits_count + gone)


def _size(message: Message) -> int:
    match message:
        case AssistantMessage(text=text, tool_calls=calls):
            return len(text) + sum(len(str(call.arguments)) + len(call.tool) for call in calls)
        case UserMessage(text=text, attachments=attachments):
            return len(text) + sum(attached_size(attachment) for attachment in attachments)
        case ToolMessage(text=text):
            return len(text)
