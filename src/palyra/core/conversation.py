"""The conversation as a model is shown it: messages, and the bounded window over a tape's end.

Does not own: providers' wire forms (adapters.providers), the bytes of images (engine.session.images).
The window is a fold over the last events of a tape. It is bounded in items, characters and images, so a turn costs the
same however long the session is (L10).
Invariants: a call is never shown without its result, nor a result without its call. Results below `local` stand in
fences. The text mentions every attachment; a message also names the images that are shown.
"""

import re
from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec
from msgspec.structs import replace

from palyra.core.events import Draft, Event, SystemData
from palyra.core.events.base import ErasedData, JsonObject
from palyra.core.events.model import (
    ContextAssembled,
    Finish,
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
    Attachment,
    CancelRequested,
    GuardTripped,
    MessageAssistant,
    MessageUser,
    RunAccepted,
    RunCancelled,
    RunDone,
    RunFailed,
    RunResumed,
    RunStarted,
    RunWaiting,
)
from palyra.core.events.session import (
    PinAdded,
    PinRemoved,
    SessionBranched,
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
    Outcome,
    ToolFinished,
    ToolJudged,
    ToolProposed,
    ToolStarted,
    ToolUncertain,
)
from palyra.core.fences import FENCE_ID_LENGTH, fence
from palyra.core.ids import RunId
from palyra.core.images import IMAGE_CHARS, fitting_count, is_image
from palyra.core.taint import UNNAMED
from palyra.core.trust import Trust, is_tainting, lowest

ITEMS_MAX = 400
CHARS_MAX = 300_000  # About 75,000 tokens: fits every current model with room for tools and output.
EVENTS_READ_MAX = 1_200  # About three events an item: as many as are read from the tape to fill the window once.

_SCHEME = re.compile(r"\s*https?:", re.IGNORECASE)

# Events that a run may have while it is still queued.
_QUEUED_TYPES = frozenset({RunAccepted.TYPE, CancelRequested.TYPE})


class PastCall(msgspec.Struct, frozen=True):
    call_id: str
    tool: str
    arguments: JsonObject | str


class UserMessage(msgspec.Struct, frozen=True, tag="user"):
    """In a window, `attachments` holds everything attached.

    After `render` it holds the images to show, and the text mentions every attachment.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()


class AssistantMessage(msgspec.Struct, frozen=True, tag="assistant"):
    text: str
    tool_calls: tuple[PastCall, ...] = ()
    provider_state: JsonObject | None = None


class ToolMessage(msgspec.Struct, frozen=True, tag="tool"):
    """The result of one past call, as the model sees it."""

    call_id: str
    text: str
    is_error: bool = False


Message = UserMessage | AssistantMessage | ToolMessage


class WindowItem(msgspec.Struct, frozen=True):
    """`source` and `tool` tell where a result below `local` came from, and by which tool."""

    message: Message
    trust: Trust
    chars: int
    source: str | None = None
    tool: str | None = None

    @property
    def visits(self) -> tuple[str, ...]:
        """Returns the calls by which a model wanted to go to an address."""
        calls = self.message.tool_calls if isinstance(self.message, AssistantMessage) else ()
        return tuple(call.call_id for call in calls if is_visit(call.arguments))


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """`held` holds the words of queued runs: a model hears them when their run begins, not before.

    `tainted_visits_count` counts visits wanted under taint since the last reset, in items that have left the window.
    """

    items: tuple[WindowItem, ...] = ()
    chars: int = 0
    tainted_visits_count: int = 0
    active_run_id: RunId | None = None
    held: tuple[tuple[RunId | None, WindowItem], ...] = ()


def extend(window: Window, event: Event) -> Window:
    """Returns the window after one more event of its tape."""
    if event.type == MessageUser.TYPE and event.run_id != window.active_run_id:
        return _hold(window, event)
    if event.type in _QUEUED_TYPES:
        return window
    if event.run_id is not None and event.run_id != window.active_run_id:
        window = _activate(window, event)
    return _extend_active(window, event)


def _hold(window: Window, event: Event) -> Window:
    if not isinstance(event.data, MessageUser):
        return window
    message = UserMessage(event.data.text, event.data.attachments)
    return replace(window, held=(*window.held, (event.run_id, WindowItem(message, event.trust, _size(message)))))


def _activate(window: Window, event: Event) -> Window:
    """Adds what a person said to a queued run, now that this run is the active one."""
    held = tuple(pair for pair in window.held if pair[0] != event.run_id)
    said = [item for run_id, item in window.held if run_id == event.run_id]
    active = replace(window, active_run_id=event.run_id, held=held)
    if event.type == RunCancelled.TYPE:
        return active
    for item in said:
        active = _add(active, item.message, item.trust)
    return active


def _extend_active(window: Window, event: Event) -> Window:
    """Handles one event type a case. Frequent types without effect come first, because cases are tried in order."""
    match event.data:
        case SessionReset():
            return Window(held=window.held, active_run_id=window.active_run_id)
        case MessageUser(text=text, attachments=attachments):
            return _add(window, UserMessage(text, attachments), event.trust)
        case ModelOutput(finish=finish) as output if finish is not Finish.INTERRUPTED:
            calls = tuple(PastCall(call.call_id, call.tool, call.arguments) for call in output.tool_calls)
            return _add(window, AssistantMessage(output.text, calls, output.provider_state), event.trust)
        case ToolFinished() as finished:
            return _put(window, _item(_told(finished, event.trust), event.trust, finished))
        case ToolUncertain(call_id=call_id):
            return _add(window, ToolMessage(call_id, _UNCERTAIN, is_error=True), event.trust)
        case GuardTripped(guidance=guidance):
            return _add(window, UserMessage(f"[palyra] {guidance}"), event.trust)
        case AnswerRejected(problems=problems):
            return _add(window, UserMessage("[palyra] " + " ".join(problems)), event.trust)
        case (
            ToolProposed()
            | ToolJudged()
            | ToolStarted()
            | RoutePlanned()
            | ModelRequested()
            | UsageRecorded()
            | ModelOutput()
            | RunAccepted()
            | RunStarted()
            | RunWaiting()
            | RunResumed()
            | RunDone()
            | RunFailed()
            | RunCancelled()
            | CancelRequested()
            | MessageAssistant()
            | ContextAssembled()
            | MemoryRecalled()
            | ReferenceResolved()
            | ModelFailed()
            | ApprovalRequested()
            | ApprovalResolved()
            | GrantRevoked()
            | SessionCreated()
            | SessionBranched()
            | SessionRestored()
            | SessionLabelled()
            | SessionCompacted()
            | SourceTrusted()
            | SourceDistrusted()
            | PinAdded()
            | PinRemoved()
            | ErasedData()
        ):
            return window  # A model is told of none of these. An interrupted output is among them.
        case _:
            if isinstance(event.data, SystemData):
                return window
            assert_never(event.data)


def render(window: Window) -> tuple[Message, ...]:
    """Returns the messages to send. A call without a result, or a result without its call, is left out.

    Results stand right behind their calls, in the calls' order, whatever was said while the calls ran: providers refuse
    anything else. A later result of an uncertain call replaces the earlier one, in its place.
    """
    images = _images(item.message for item in window.items)
    left_out_count = len(images) - fitting_count(images)
    results = {item.message.call_id: item.message for item in window.items if isinstance(item.message, ToolMessage)}
    messages: list[Message] = []
    for item in window.items:
        match item.message:
            case AssistantMessage() as said:
                calls = tuple(call for call in said.tool_calls if call.call_id in results)
                if calls or said.text:
                    messages.append(replace(said, tool_calls=calls))
                messages += [results[call.call_id] for call in calls]
            case UserMessage() as said_by_user:
                messages.append(_tell_attached(said_by_user, left_out_count))
                left_out_count -= len(_images([said_by_user]))
            case ToolMessage():
                continue
    return tuple(messages)


def has_images(window: Window, run_id: RunId | None = None, coming: Iterable[Draft] = ()) -> bool:
    """Tells whether a request made from this window shows images.

    A run that is only now accepted or begun has said nothing in the window yet. Name it, with the drafts that are about
    to be recorded, and the images attached to it count too.
    """
    said = [item.message for item in window.items]
    said += [item.message for held_id, item in window.held if held_id == run_id]
    drafted = [draft.data for draft in coming if draft.run_id == run_id]
    said += [UserMessage("", data.attachments) for data in drafted if isinstance(data, MessageUser)]
    return bool(_images(said))


def hide_images(messages: Iterable[Message], reasons: Mapping[str, str]) -> tuple[Message, ...]:
    """Returns the same messages without the images of these artifacts; a reason stands in the place of each."""
    return tuple(_hide(message, reasons) if isinstance(message, UserMessage) else message for message in messages)


def _hide(message: UserMessage, reasons: Mapping[str, str]) -> UserMessage:
    hidden = [attachment for attachment in message.attachments if attachment.artifact_id in reasons]
    notes = [f"[image {_named(each)} not shown: {reasons[each.artifact_id]}]" for each in hidden]
    kept = tuple(attachment for attachment in message.attachments if attachment not in hidden)
    return UserMessage("\n".join((message.text, *notes)), kept)


def is_visit(arguments: JsonObject | str) -> bool:
    """Tells whether a call with these arguments goes to an address, as far as the arguments tell."""
    if isinstance(arguments, str):
        return False
    return "url" in arguments or any(isinstance(each, str) and _SCHEME.match(each) for each in arguments.values())


def trust_of(window: Window) -> Trust:
    return lowest(item.trust for item in window.items)


_UNCERTAIN = (
    "It is not known whether this call took effect: the daemon stopped while it ran. Do not repeat it on your own; "
    "the operator has been asked."
)


def _told(finished: ToolFinished, trust: Trust) -> ToolMessage:
    """Fences a result that came from outside; the daemon's notes on it stand before and behind the fence."""
    text = finished.output or ""
    head = ""
    if finished.error is not None:
        head = f"{finished.outcome.value}: {finished.error.code}: "
        text = f"{finished.error.message}\n{text}".rstrip()
    if is_tainting(trust) and text:
        head = head and f"{head.rstrip(' :')}\n"
        text = fence(text, finished.fence_id or finished.effect_id[:FENCE_ID_LENGTH], finished.source or UNNAMED)
    text = f"{head}{text}"
    if finished.artifact_id is not None:
        text = f"{text}\n[The whole output is artifact {finished.artifact_id}; read on with artifact.read.]"
    return ToolMessage(finished.call_id, text, is_error=finished.outcome is not Outcome.OK)


def _add(window: Window, message: Message, trust: Trust) -> Window:
    return _put(window, WindowItem(message, trust, _size(message)))


def _item(message: ToolMessage, trust: Trust, finished: ToolFinished) -> WindowItem:
    return WindowItem(message, trust, _size(message), finished.source, finished.tool)


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
            return len(text) + sum(_attached_size(attachment) for attachment in attachments)
        case ToolMessage(text=text):
            return len(text)


def _attached_size(attachment: Attachment) -> int:
    return IMAGE_CHARS if is_image(attachment) else len(_file_line(attachment))


def _images(messages: Iterable[Message]) -> list[Attachment]:
    attached = (message.attachments for message in messages if isinstance(message, UserMessage))
    return [attachment for attachments in attached for attachment in attachments if is_image(attachment)]


def _tell_attached(message: UserMessage, left_out_count: int) -> UserMessage:
    """Adds a line for each attachment; the first `left_out_count` images give way to newer ones."""
    if not message.attachments:
        return message
    shown: list[Attachment] = []
    lines = [message.text]
    for attachment in message.attachments:
        if not is_image(attachment):
            lines.append(_file_line(attachment))
        elif left_out_count > 0:
            left_out_count -= 1
            lines.append(f"[image {_named(attachment)} left out: newer ones take its place]")
        else:
            shown.append(attachment)
            lines.append(f"[image {_named(attachment)}]")
    return UserMessage("\n".join(lines), tuple(shown))


def _file_line(attachment: Attachment) -> str:
    kind, bytes_count = attachment.media_type, attachment.bytes
    return f"[file {_named(attachment)}, {kind}, {bytes_count} bytes, artifact {attachment.artifact_id}]"


def _named(attachment: Attachment) -> str:
    """Keeps a name within its line, because a name is somebody's text."""
    return " ".join(attachment.name.split())
