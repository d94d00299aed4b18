"""The messages of a model call, made from the window.

Does not own: the window (window), providers' wire forms (adapters.providers), the bytes of images.
Invariants: a call is never shown without its result, nor a result without its call. The text mentions every attachment;
a message also names the images that are shown.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from palyra.core.attachments import named
from palyra.core.compaction.plan import cut_summary, tell
from palyra.core.context.attached import images_of, tell_attached
from palyra.core.context.documents import document_texts
from palyra.core.context.layers import low_signal
from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.context.pins import render_pins
from palyra.core.context.recalled import render_preferences
from palyra.core.context.window import ContextSummary, Window, WindowItem
from palyra.core.fences import fence, neutralise
from palyra.core.images import fitting_count
from palyra.core.trust import is_tainting

SHORT_CHARS = 160
SUMMARY_PREFIX = (
    "[palyra] The older part of this conversation, summarised. The words themselves are on record; session.search "
    "finds them."
)
_ARTIFACT = re.compile(r"\[The whole output is artifact ([0-9a-f]{64});")


def render(window: Window) -> tuple[Message, ...]:
    """Returns the messages to send. A call without a result, or a result without its call, is left out.

    Results stand right behind their calls, in the calls' order, whatever was said while the calls ran: providers refuse
    anything else. A later result of an uncertain call replaces the earlier one, in its place. Preferences and
    pins come first.
    """
    items = _sent_items(window)
    images = images_of(item.message for item in items)
    left_out_count = len(images) - fitting_count(images)
    results = {item.message.call_id: item.message for item in items if isinstance(item.message, ToolMessage)}
    messages: list[Message] = [*render_preferences(window.preferences), *render_pins(window.pins)]
    texts = document_texts(window.documents)
    if texts:
        messages.append(UserMessage("\n".join(texts)))
    if window.summary is not None:
        messages.append(tell_summary(window.summary, window.summary_cut))
    for item in items:
        match item.message:
            case AssistantMessage() as said:
                calls = tuple(call for call in said.tool_calls if call.call_id in results)
                if calls or said.text:
                    messages.append(replace(said, tool_calls=calls))
                messages += [results[call.call_id] for call in calls]
            case UserMessage() as said_by_user:
                messages.append(tell_attached(said_by_user, item.trust, left_out_count))
                left_out_count -= len(images_of([said_by_user]))
            case ToolMessage():
                continue
    return tuple(messages)


def tell_summary(summary: ContextSummary, cut: int = 0) -> UserMessage:
    """Returns the message that stands in the place of the compacted conversation.

    Outside content stays in a fence, and so does prose that was written with it in view. What people said themselves is
    kept word for word and stands before the fence: a rule in it would bind nobody. `cut` says how much gives way.
    """
    items, text = cut_summary(summary.items, summary.text, cut)
    if not is_tainting(summary.trust):
        return UserMessage(f"{SUMMARY_PREFIX}\n{tell(items, text)}")
    own = tell([item for item in items if not is_tainting(item.trust)], "")
    rest = tell([item for item in items if is_tainting(item.trust)], text)
    fenced = fence(rest, summary.fence_id or "summary", "summary") if rest else ""
    return UserMessage("\n".join(part for part in (SUMMARY_PREFIX, own, fenced) if part))


def shorten(message: ToolMessage) -> ToolMessage:
    """Returns a line in the place of an old result: how it began, how long it was, and how to read it again."""
    if len(message.text) <= SHORT_CHARS:
        return message
    artifact = _ARTIFACT.search(message.text)
    source = artifact.group(1) if artifact is not None else message.call_id
    first = neutralise(message.text.strip().split("\n", 1)[0][:SHORT_CHARS])
    note = f"[… {len(message.text)} characters, shortened; read them again with artifact.read, id {source}]"
    return replace(message, text=f"{first} {note}")


def _sent_items(window: Window) -> tuple[WindowItem, ...]:
    """Returns the items of the window as pruning leaves them."""
    if not window.pruned_place and not window.dropped_place:
        return window.items
    replaced = low_signal(window)
    sent: list[WindowItem] = []
    for item in window.items:
        is_low = replaced.get(item.place, window.dropped_place + 1) <= window.dropped_place
        if isinstance(item.message, ToolMessage):
            is_short = is_low or item.place <= window.pruned_place
            sent.append(replace(item, message=shorten(item.message)) if is_short else item)
        elif not is_low:
            sent.append(item)
    return tuple(sent)


def has_images(window: Window) -> bool:
    """Tells whether a request made from this window shows images."""
    return bool(images_of(item.message for item in window.items))


def hide_images(messages: Iterable[Message], reasons: Mapping[str, str]) -> tuple[Message, ...]:
    """Returns the same messages without the images of these artifacts; a reason stands in the place of each."""
    return tuple(_hide(message, reasons) if isinstance(message, UserMessage) else message for message in messages)


def _hide(message: UserMessage, reasons: Mapping[str, str]) -> UserMessage:
    hidden = [attachment for attachment in message.attachments if attachment.artifact_id in reasons]
    notes = [f"[image {named(each)} not shown: {reasons[each.artifact_id]}]" for each in hidden]
    kept = tuple(attachment for attachment in message.attachments if attachment not in hidden)
    return UserMessage("\n".join((message.text, *notes)), kept)
