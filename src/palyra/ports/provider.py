"""The Provider port: one streamed model call in our words.

Does not own: failover (engine), wire formats (adapters.providers).
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

import msgspec

from palyra.core.context.messages import Message
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.tools import ToolSpec


class Image(msgspec.Struct, frozen=True):
    """The type and the bytes of an image attached to a message."""

    media_type: str
    data: bytes


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one call needs. `images` holds every artifact that the messages' attachments name."""

    model: str
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    answer_schema: JsonObject | None = None
    max_output_tokens: int | None = None
    run_id: str = ""
    turn: int = 0
    calls_before: int = 0
    images: Mapping[str, Image] = {}


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """A fragment of one proposed call; fragments of the same index belong together, in order."""

    index: int
    tool: str
    arguments: str


class Completed(msgspec.Struct, frozen=True):
    """The last delta of a stream that reached its end."""

    finish: Finish
    usage: Usage | None = None
    provider_state: JsonObject | None = None


class Failed(msgspec.Struct, frozen=True):
    """The last delta of a stream that did not reach its end: what kind of failure, and what a person can do."""

    code: ModelError
    message: str
    retry_after_s: float | None = None


Delta = TextDelta | ReasoningDelta | CallDelta | Completed | Failed
ENDINGS = (Completed, Failed)  # For isinstance: a union would be built again for each token.


class Provider(Protocol):
    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Yields deltas as they arrive, the last one Completed or Failed. Closing the iterator stops the call."""
        ...
