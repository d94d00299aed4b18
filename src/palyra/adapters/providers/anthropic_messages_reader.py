"""Reads the answers of Anthropic messages: events to deltas.

Does not own: requests (anthropic_messages).
Calls and results of tools that run at the provider are skipped. The vendor's types do not leave this file.
"""

import msgspec

from palyra.adapters.providers.delta_joins import Pieces
from palyra.adapters.providers.exchange import BodyDraft
from palyra.adapters.providers.failures import read_refusal, refused
from palyra.adapters.providers.provider_state import keep
from palyra.adapters.providers.usage_counts import Count, believe, whole
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, Usage
from palyra.core.sse import SseEvent
from palyra.ports.provider import Completed, Delta

_FINISHES = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "pause_turn": Finish.STOP,
    "tool_use": Finish.TOOL_CALLS,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSAL,
}
_READ = frozenset({"message_start", "content_block_start", "content_block_delta", "message_delta", "error"})


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count = None
    output_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_read_input_tokens: Count = None


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None


class _Type(msgspec.Struct, gc=False):
    type: str = ""


_EVENT = msgspec.json.Decoder(_Event)
_TYPE = msgspec.json.Decoder(_Type)


class _Thought(msgspec.Struct):
    texts: list[str]
    signatures: list[str]


class MessagesReader:
    def __init__(self, draft: BodyDraft, provider: str) -> None:
        self._names = draft.names
        self._origin = draft.origin
        self._provider = provider
        self._pieces = Pieces()
        self._calls: dict[int, str] = {}  # Calls by block, with the input they began with; "" once fragments came.
        self._thoughts: dict[int, _Thought] = {}
        self._order: dict[int, JsonObject] = {}
        self._usage = _Usage()
        self._stop_reason: str | None = None

    def read(self, events: list[SseEvent]) -> list[Delta]:
        for event in events:
            if event.data:
                self._read_event(event.data)
        return self._pieces.take()

    def end(self) -> Completed | None:
        return self._completed() if self._stop_reason else None

    def _read_event(self, data: bytes) -> None:
        try:
            event = _EVENT.decode(data)
        except msgspec.ValidationError:
            if _TYPE.decode(data).type in _READ:
                raise
            return
        match event.type:
            case "content_block_delta" if event.delta is not None:
                self._read_said(event.index, event.delta)
            case "content_block_start" if event.content_block is not None:
                self._open_block(event.index, event.content_block)
            case "content_block_stop":
                self._close_block(event.index)
            case "message_start" if event.message is not None:
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                self._stop_reason = (event.delta.stop_reason if event.delta else None) or self._stop_reason
            case "message_stop":
                self._pieces.end(self._completed())
            case "error":
                self._pieces.end(refused(self._provider, read_refusal(data), None))
            case _:
                pass

    def _read_said(self, index: int, said: _Delta) -> None:
        if said.text:
            self._pieces.add_text(said.text)
        elif said.partial_json is not None:
            if index in self._calls and said.partial_json:
                self._calls[index] = ""
                self._pieces.add_call(index, "", said.partial_json)
        elif said.thinking:
            self._pieces.add_reasoning(said.thinking)
            if index in self._thoughts:
                self._thoughts[index].texts.append(said.thinking)
        elif said.signature and index in self._thoughts:
            self._thoughts[index].signatures.append(said.signature)

    def _open_block(self, index: int, block: _Block) -> None:
        match block.type:
            case "text":
                self._order[index] = {"type": "text"}
                self._pieces.add_text(block.text or "")
            case "tool_use":
                self._order[index] = {"type": "tool_use"}
                self._calls[index] = bytes(block.input).decode()
                self._pieces.add_call(index, self._names.tool(block.name or ""), "")
            case "thinking":
                self._thoughts[index] = _Thought([block.thinking or ""], [block.signature or ""])
                self._order[index] = {}
                self._pieces.add_reasoning(block.thinking or "")
            case "redacted_thinking" if block.data:
                self._order[index] = {"type": "redacted_thinking", "data": block.data}
            case _:
                pass

    def _close_block(self, index: int) -> None:
        """Passes on the whole input of a block: some servers put it there and send no fragments."""
        whole = self._calls.get(index, "")
        if whole.strip() not in ("", "{}", "null"):
            self._calls[index] = ""
            self._pieces.add_call(index, "", whole)

    def _count(self, usage: _Usage | None) -> None:
        """Takes counts as totals, not additions; an absent count keeps its last value."""
        if usage is None:
            return
        for name in usage.__struct_fields__:
            if (count := getattr(usage, name)) is not None:
                setattr(self._usage, name, max(0, whole(count)))

    def _completed(self) -> Completed:
        finish = _FINISHES.get(self._stop_reason or "end_turn", Finish.STOP)
        if finish in (Finish.STOP, Finish.TOOL_CALLS):
            finish = Finish.TOOL_CALLS if self._calls else Finish.STOP
        return Completed(finish, self._total(), keep(self._origin, {"blocks": self._sealed()}))

    def _total(self) -> Usage | None:
        """Adds cached input, which the vendor counts apart: our input is the whole, of which a part was cached."""
        usage = self._usage
        cached = whole(usage.cache_read_input_tokens)
        counts = Usage(
            input_tokens=whole(usage.input_tokens) + cached + whole(usage.cache_creation_input_tokens),
            output_tokens=whole(usage.output_tokens),
            cached_tokens=cached,
            cache_write_tokens=whole(usage.cache_creation_input_tokens),
        )
        return believe(counts)

    def _sealed(self) -> list[JsonObject]:
        """Returns the order of the blocks, with signed thinking; nothing where no thinking is signed."""
        for index, thought in self._thoughts.items():
            signature = "".join(thought.signatures)
            if signature:
                text = "".join(thought.texts)
                self._order[index] = {"type": "thinking", "thinking": text, "signature": signature}
        blocks = [self._order[index] for index in sorted(self._order) if self._order[index]]
        return blocks if any("thinking" in str(block["type"]) for block in blocks) else []
