"""Estimates how many tokens a turn is likely to send, before a provider has counted them.

The estimate errs upwards: three bytes a token, where English has four and most other scripts about three. The error is
learned from settled calls (engine.spend.ledger). A wrong estimate never changes what is sent.
"""

import msgspec

from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.context.window import Window
from palyra.core.events.run import Attachment
from palyra.core.images import IMAGE_CHARS, is_image

BYTES_A_TOKEN = 3
MESSAGE_BYTES = 24  # Counts the roles and separators around every message.


def estimate_tokens(bytes_count: int) -> int:
    return -(-bytes_count // BYTES_A_TOKEN)


def text_bytes(text: str) -> int:
    """Returns the size in UTF-8. Python knows whether a string is ASCII without reading it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def prompt_bytes(window: Window) -> int:
    """Measures the conversation as the next call will carry it."""
    return sum(_message_bytes(item.message) + MESSAGE_BYTES for item in window.items)


def _message_bytes(message: Message) -> int:
    match message:
        case AssistantMessage(text=text, tool_calls=calls, provider_state=state):
            kept = len(msgspec.json.encode(state)) if state is not None else 0
            return text_bytes(text) + kept + sum(text_bytes(str(call.arguments)) + len(call.tool) for call in calls)
        case UserMessage(text=text, attachments=attachments):
            return text_bytes(text) + _attached_bytes(attachments)
        case ToolMessage(text=text):
            return text_bytes(text)


def _attached_bytes(attachments: tuple[Attachment, ...]) -> int:
    return sum(IMAGE_CHARS if is_image(attachment) else MESSAGE_BYTES for attachment in attachments)
