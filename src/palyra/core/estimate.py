"""Estimates how many tokens a turn is likely to send, before a provider has counted them.

The estimate errs upwards: three bytes a token, where English has four and most other scripts about three. The error is
learned from settled calls (engine.spend.ledger). A wrong estimate never changes what is sent.
"""

from collections.abc import Iterable

import msgspec

from palyra.core.conversation import AssistantMessage, Message, ToolMessage, UserMessage, Window
from palyra.core.events import Data, Draft
from palyra.core.events.model import ModelOutput
from palyra.core.events.run import Attachment, MessageUser
from palyra.core.events.tool import ToolFinished
from palyra.core.ids import RunId
from palyra.core.images import IMAGE_CHARS, is_image

BYTES_A_TOKEN = 3
MESSAGE_BYTES = 24  # Counts the roles and separators around every message.


def estimate_tokens(bytes_count: int) -> int:
    return -(-bytes_count // BYTES_A_TOKEN)


def text_bytes(text: str) -> int:
    """Returns the size in UTF-8. Python knows whether a string is ASCII without reading it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def prompt_bytes(window: Window, run_id: RunId, coming: Iterable[Draft]) -> int:
    """Measures the conversation as this run's next call will carry it.

    `coming` holds drafts that are not recorded yet.
    """
    said = [item.message for item in window.items]
    said += [item.message for held_id, item in window.held if held_id == run_id]
    recorded = sum(_message_bytes(message) + MESSAGE_BYTES for message in said)
    return recorded + sum(_draft_bytes(draft.data) for draft in coming if draft.run_id == run_id)


def _message_bytes(message: Message) -> int:
    match message:
        case AssistantMessage(text=text, tool_calls=calls, provider_state=state):
            kept = len(msgspec.json.encode(state)) if state is not None else 0
            return text_bytes(text) + kept + sum(text_bytes(str(call.arguments)) + len(call.tool) for call in calls)
        case UserMessage(text=text, attachments=attachments):
            return text_bytes(text) + _attached_bytes(attachments)
        case ToolMessage(text=text):
            return text_bytes(text)


def _draft_bytes(data: Data) -> int:
    match data:
        case MessageUser(text=text, attachments=attachments):
            return text_bytes(text) + _attached_bytes(attachments) + MESSAGE_BYTES
        case ModelOutput(text=text, tool_calls=calls):
            return text_bytes(text) + sum(text_bytes(str(call.arguments)) for call in calls) + MESSAGE_BYTES
        case ToolFinished(output=output):
            return text_bytes(output or "") + MESSAGE_BYTES
        case _:
            return 0


def _attached_bytes(attachments: tuple[Attachment, ...]) -> int:
    return sum(IMAGE_CHARS if is_image(attachment) else MESSAGE_BYTES for attachment in attachments)
