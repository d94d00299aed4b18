"""Messages as a model is shown them.

Does not own: choosing them (prompt), providers' wire forms (adapters.providers).
"""

import msgspec

from palyra.core.events.base import JsonObject
from palyra.core.events.run import Attachment


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
