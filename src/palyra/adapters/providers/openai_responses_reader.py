"""Reads the answers of OpenAI responses: events to deltas.

Does not own: requests (openai_responses).
Text and arguments are taken from deltas as they come. What a server only says at the end of an item, or of the answer,
is taken from there. The vendor's types do not leave this file.
"""

from collections.abc import Callable

import msgspec

from palyra.adapters.providers.delta_joins import Pieces
from palyra.adapters.providers.exchange import BodyDraft
from palyra.adapters.providers.failures import failed, read_refusal, refused
from palyra.adapters.providers.provider_state import keep
from palyra.adapters.providers.usage_counts import Count, believe, whole
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.sse import SseEvent
from palyra.ports.provider import Completed, Delta

_INCOMPLETE = {"max_output_tokens": Finish.LENGTH, "content_filter": Finish.CONTENT_FILTER}
_STATE_FIELDS = ("id", "type", "summary", "content", "encrypted_content")


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct, gc=False):
    """`content` and `arguments` of foreign items can be anything; they are read only in items of known types."""

    type: str = ""
    name: str | None = None
    arguments: str | JsonObject | None = None
    content: msgspec.Raw = msgspec.Raw()


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    reasoning_tokens: Count = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count = None
    output_tokens: Count = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Reason(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    status: str | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None
    error: JsonObject | None = None
    incomplete_details: _Reason | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = 0
    delta: str | None = None
    arguments: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()


class _Type(msgspec.Struct, gc=False):
    type: str = ""


_EVENT = msgspec.json.Decoder(_Event)
_TYPE = msgspec.json.Decoder(_Type)
_ITEM = msgspec.json.Decoder(_Item)
_RESPONSE = msgspec.json.Decoder(_Response)
_PARTS = msgspec.json.Decoder(list[_Part])
_OBJECT = msgspec.json.Decoder(dict[str, object])


class ResponsesReader:
    def __init__(self, draft: BodyDraft, provider: str) -> None:
        self._names = draft.names
        self._origin = draft.origin
        self._provider = provider
        self._pieces = Pieces()
        self._called: set[int] = set()
        self._spoken: set[int] = set()  # Items whose text or arguments have been passed on.
        self._order: list[JsonObject] = []
        self._has_reasoned = False
        self._has_refused = False
        self._readers: dict[str, Callable[[_Event], None]] = {
            "response.refusal.delta": self._read_refusal,
            "response.reasoning_summary_text.delta": self._read_reasoning,
            "response.reasoning_text.delta": self._read_reasoning,
            "response.reasoning_summary_part.added": self._part_reasoning,
            "response.output_item.added": self._open_item,
            "response.function_call_arguments.delta": self._read_arguments,
            "response.function_call_arguments.done": self._close_arguments,
            "response.output_item.done": self._close_item,
            "response.completed": self._complete,
            "response.incomplete": self._complete,
            "response.failed": self._fail,
            "response.cancelled": self._fail,
        }

    def read(self, events: list[SseEvent]) -> list[Delta]:
        for event in events:
            if event.data and event.data != b"[DONE]":
                self._read_event(event.data)
        return self._pieces.take()

    def end(self) -> Completed | None:
        """An answer without its last event is never complete: usage and status are only there."""
        return None

    def _read_event(self, data: bytes) -> None:
        try:
            event = _EVENT.decode(data)
        except msgspec.ValidationError:
            if _TYPE.decode(data).type in self._readers:
                raise
            return
        if event.type == "response.output_text.delta":
            self._spoken.add(event.output_index)
            self._pieces.add_text(event.delta or "")
        elif event.type == "error" or (not event.type and b'"error"' in data):
            self._pieces.end(refused(self._provider, read_refusal(data), None))
        elif event.type in self._readers:
            self._readers[event.type](event)

    def _read_refusal(self, event: _Event) -> None:
        self._spoken.add(event.output_index)
        self._has_refused = True
        self._pieces.add_text(event.delta or "")

    def _read_reasoning(self, event: _Event) -> None:
        self._has_reasoned = True
        self._pieces.add_reasoning(event.delta or "")

    def _part_reasoning(self, event: _Event) -> None:
        if self._has_reasoned:
            self._pieces.add_reasoning("\n\n")

    def _open_item(self, event: _Event) -> None:
        item = _ITEM.decode(event.item)
        if item.type == "function_call":
            self._name_call(event.output_index, item)

    def _read_arguments(self, event: _Event) -> None:
        self._spoken.add(event.output_index)
        self._pieces.add_call(event.output_index, "", event.delta or "")

    def _close_arguments(self, event: _Event) -> None:
        if event.output_index not in self._spoken and event.arguments:
            self._spoken.add(event.output_index)
            self._pieces.add_call(event.output_index, "", event.arguments)

    def _close_item(self, event: _Event) -> None:
        item = _ITEM.decode(event.item)
        if item.type == "reasoning":
            kept = {
                name: value for name, value in _OBJECT.decode(event.item).items() if name in _STATE_FIELDS and value
            }
            # An item that is only a name cannot be sent back, because nothing is stored at the provider.
            if "encrypted_content" in kept or "content" in kept:
                self._order.append({"summary": [], **kept})
        elif item.type in ("message", "function_call"):
            self._order.append({"type": item.type})
            self._say_item(event.output_index, item)

    def _say_item(self, index: int, item: _Item) -> None:
        """Passes on what no delta brought. A server may send an item only when it is complete."""
        if item.type == "function_call":
            self._name_call(index, item)
            if index not in self._spoken and isinstance(item.arguments, str):
                self._pieces.add_call(index, "", item.arguments)
        elif item.type == "message" and index not in self._spoken:
            for part in _PARTS.decode(item.content) if bytes(item.content) not in (b"", b"null") else ():
                self._has_refused = self._has_refused or bool(part.refusal)
                self._pieces.add_text(part.text or part.refusal or "")
        self._spoken.add(index)

    def _name_call(self, index: int, item: _Item) -> None:
        if index not in self._called:
            self._called.add(index)
            self._pieces.add_call(index, self._names.tool(item.name or ""), "")

    def _complete(self, event: _Event) -> None:
        response = _RESPONSE.decode(event.response)
        if response.error is not None and response.status == "failed":
            self._fail(event)
            return
        if not self._spoken:
            for index, item in enumerate(response.output or ()):
                self._say_item(index, item)
        has_sealed = any(item["type"] == "reasoning" for item in self._order)
        state: JsonObject = {"items": self._order} if has_sealed else {}
        usage = _read_usage(response.usage) if response.usage is not None else None
        self._pieces.end(Completed(self._finish(response), usage, keep(self._origin, state)))

    def _finish(self, response: _Response) -> Finish:
        if response.status == "incomplete":
            reason = response.incomplete_details.reason if response.incomplete_details else None
            return _INCOMPLETE.get(reason or "", Finish.LENGTH)
        if self._called:
            return Finish.TOOL_CALLS
        return Finish.REFUSAL if self._has_refused else Finish.STOP

    def _fail(self, event: _Event) -> None:
        error = _RESPONSE.decode(event.response).error
        if not error:
            self._pieces.end(failed(self._provider, ModelError.OVERLOADED))
            return
        self._pieces.end(refused(self._provider, read_refusal(msgspec.json.encode(error)), None))


def _read_usage(usage: _Usage) -> Usage | None:
    """Returns usage as reported: cached tokens are part of the input, reasoning tokens part of the output."""
    read, wrote = usage.input_tokens_details or _Details(), usage.output_tokens_details or _Details()
    counts = Usage(
        input_tokens=whole(usage.input_tokens),
        output_tokens=whole(usage.output_tokens),
        cached_tokens=whole(read.cached_tokens),
        reasoning_tokens=whole(wrote.reasoning_tokens),
    )
    return believe(counts)
