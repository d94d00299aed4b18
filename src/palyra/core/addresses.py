"""Addresses in a conversation. Owns: whether an address that a call would reach was given to the model, word for word.

Fetching an address can carry a secret out, if the model writes the secret into it. One that stands as it is in what a
person said, or in what came from outside before the model ever wrote it, carries nothing but the choice of it.
"""

import re

from palyra.core.conversation import AssistantMessage, Item, ToolMessage, UserMessage, Window
from palyra.core.trust import Trust

LENGTH_MIN = 4  # A shorter one would be found by chance.
NOTE = "[palyra]"  # Words of the daemon itself, which may quote the model's.
_BEFORE = r"(?<![\w/.:@%-])"
_AFTER = r"(?=$|[\s\"'<>()\[\]{},;|`*]|[.!?:]+(?:$|[\s\"'<>)\]]))"


def is_known_address(address: str | None, window: Window) -> bool:
    """What the model wrote first does not count, even where a tool says it again; nor does the beginning of another address."""
    if address is None or len(address) < LENGTH_MIN or re.search(r"\s", address):
        return False
    whole = re.compile(f"{_BEFORE}{re.escape(address)}{_AFTER}")
    is_own = False
    for item in window.items:
        if address in _written(item) and not is_own:
            is_own = True
        elif _is_given(item, is_own=is_own) and whole.search(_heard(item)):
            return True
    return False


def _is_given(item: Item, *, is_own: bool) -> bool:
    match item.message:
        case UserMessage(text=text):
            return not text.startswith(NOTE)
        case ToolMessage(is_error=is_error):
            return item.trust is Trust.EXTERNAL and not is_error and not is_own
        case _:
            return False


def _heard(item: Item) -> str:
    return item.message.text if isinstance(item.message, UserMessage | ToolMessage) else ""


def _written(item: Item) -> str:
    """By the model: its words, and the calls it wanted."""
    message = item.message
    if not isinstance(message, AssistantMessage):
        return ""
    return "\n".join((message.text, *(f"{call.tool} {call.arguments}" for call in message.tool_calls)))
