"""Messages as a model is shown them.

Does not own: choosing them (prompt), providers' wire forms (adapters.providers).
"""

import re

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.run import Attachment

_SCHEME = re.compile(r"\s*https?:", re.IGNORECASE)


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


def is_visit(arguments: JsonObject | str) -> bool:
    """Tells whether a call with these arguments goes to an address, as far as the arguments tell."""
    if isinstance(arguments, str):
        return False
    return "url" in arguments or any(isinstance(each, str) and _SCHEME.match(each) for each in arguments.values())
