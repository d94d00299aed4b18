"""Reads the answers of OpenAI chat completions: events to deltas.

Does not own: requests (openai_chat).
Beyond the vendor's own form it reads what compatible servers send. That is reasoning in three places, content in parts,
calls without an index, two calls under one index. The vendor's types do not leave this file.
"""

import msgspec

from palyra.adapters.providers.delta_joins import Pieces
from palyra.adapters.providers.exchange import BodyDraft
from palyra.adapters.providers.failures import failed, read_refusal, refused
from palyra.adapters.providers.provider_state import keep
from palyra.adapters.providers.usage_counts import Count, believe, whole
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelError, Usage
from palyra.core.sse import SseEvent
from palyra.ports.provider import Completed, Delta, Failed

_FINISHES = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "content_filter": Finish.CONTENT_FILTER,
    "refusal": Finish.REFUSAL,
}
_BROKEN_FINISHES = frozenset({"error", "insufficient_system_resource", "abort"})


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    thinking: "list[_Part] | str | None" = None


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | JsonObject | None = None


class _Call(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: JsonObject | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[JsonObject] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    reasoning_tokens: Count = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: Count = None


_ABSENT = msgspec.Raw()


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = _ABSENT
    object: str | None = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class ChatReader:
    def __init__(self, draft: BodyDraft, provider: str) -> None:
        self._names = draft.names
        self._origin = draft.origin
        self._provider = provider
        self._pieces = Pieces()
        self._calls = _Calls()
        self._reasoning = _Reasoning()
        self._has_said = False
        self._has_refused = False
        self._finish_reason: str | None = None
        self._usage: Usage | None = None

    def read(self, events: list[SseEvent]) -> list[Delta]:
        for event in events:
            if event.data == b"[DONE]":
                self._pieces.end(self._ending())
                break
            if event.data:
                self._read_chunk(_CHUNK.decode(event.data), event.data)
        return self._pieces.take()

    def end(self) -> Completed | None:
        return self._completed() if self._finish_reason else None

    def _read_chunk(self, chunk: _Chunk, data: bytes) -> None:
        if chunk.choices:
            choice = chunk.choices[0]
            if choice.delta is not None and not choice.index:
                self._read_said(choice.delta)
            if choice.finish_reason:
                self._finish_reason = choice.finish_reason
        if chunk.usage is not None:
            self._usage = _read_usage(chunk.usage)
        has_error = chunk.error is not _ABSENT and bytes(chunk.error) != b"null"
        if has_error or (chunk.object == "error" and not chunk.choices):
            self._pieces.end(refused(self._provider, read_refusal(data), None))

    def _read_said(self, said: _Delta) -> None:
        if reasoning := said.reasoning_content or said.reasoning:
            self._has_said = True
            self._pieces.add_reasoning(reasoning)
            self._reasoning.add("reasoning_content" if said.reasoning_content else "reasoning", reasoning)
        if content := said.content:
            self._has_said = True
            if isinstance(content, str):
                self._pieces.add_text(content)
            else:
                self._read_parts(content)
        if said.reasoning_details:
            self._reasoning.add_details(said.reasoning_details)
        if said.refusal:
            self._has_said = self._has_refused = True
            self._pieces.add_text(said.refusal)
        if said.tool_calls:
            self._has_said = True
            for call in said.tool_calls:
                self._read_call(call)

    def _read_parts(self, parts: list[_Part]) -> None:
        for part in parts:
            if part.text:
                self._pieces.add_text(part.text)
            elif isinstance(part.thinking, str):
                self._pieces.add_reasoning(part.thinking)
            elif part.thinking:
                self._pieces.add_reasoning("".join(inner.text or "" for inner in part.thinking))

    def _read_call(self, call: _Call) -> None:
        function = call.function or _Function()
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        slot = self._calls.place(call, arguments)
        tool = self._names.tool(function.name) if function.name else ""
        self._pieces.add_call(slot, tool, arguments)

    def _ending(self) -> Completed | Failed:
        if self._finish_reason in _BROKEN_FINISHES:
            return failed(self._provider, ModelError.OVERLOADED)
        if not self._has_said and self._finish_reason is None:
            return failed(self._provider, ModelError.PROTOCOL, "The answer was empty.")
        return self._completed()

    def _completed(self) -> Completed:
        finish = _FINISHES.get(self._finish_reason or "stop", Finish.STOP)
        if self._has_refused:
            finish = Finish.REFUSAL
        elif finish in (Finish.STOP, Finish.TOOL_CALLS):
            # Some servers say `stop` beside calls; the calls decide.
            finish = Finish.TOOL_CALLS if self._calls.count else Finish.STOP
        state = {**self._reasoning.state(), "calls": self._calls.extras()} if self._calls.count else {}
        return Completed(finish, self._usage, keep(self._origin, state))


class _Calls:
    """Tells which call a fragment belongs to.

    An index is enough for the vendor; other servers leave it out or use it twice.
    """

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self._arguments: dict[int, list[str]] = {}
        self._extras: dict[int, JsonObject] = {}
        self._last_slot = -1

    @property
    def count(self) -> int:
        return len(self._arguments)

    def place(self, call: _Call, arguments: str) -> int:
        slot = self._find(call)
        if slot is None or self._is_another(slot, call):
            slot = call.index if call.index is not None and call.index not in self._arguments else self._next()
            self._arguments[slot] = []
        if call.index is not None:
            self._slots[call.index] = slot
        if call.id:
            self._ids.setdefault(slot, call.id)
        if call.extra_content:
            self._extras[slot] = call.extra_content
        self._arguments[slot].append(arguments)
        self._last_slot = slot
        return slot

    def extras(self) -> list[JsonObject | None] | None:
        return [self._extras.get(slot) for slot in sorted(self._arguments)] if self._extras else None

    def _find(self, call: _Call) -> int | None:
        if call.index is not None:
            return self._slots.get(call.index)
        if call.id:
            return next((slot for slot, known in self._ids.items() if known == call.id), None)
        return self._last_slot if self._last_slot >= 0 else None

    def _is_another(self, slot: int, call: _Call) -> bool:
        """A new id and name under a used index is a second call, if the arguments of the first are complete."""
        if not call.id or call.id == self._ids.get(slot) or call.function is None or not call.function.name:
            return False
        try:
            msgspec.json.decode("".join(self._arguments[slot]))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
        return True

    def _next(self) -> int:
        return max(self._arguments, default=-1) + 1


class _Reasoning:
    """Reasoning that some servers want back while calls are in progress, in the field it came in."""

    def __init__(self) -> None:
        self._field = ""
        self._texts: list[str] = []
        self._details: list[JsonObject] = []

    def add(self, field: str, text: str) -> None:
        self._field = self._field or field
        self._texts.append(text)

    def add_details(self, details: list[JsonObject]) -> None:
        """Joins the texts of fragments with the same index; for all other fields the last value counts."""
        for detail in details:
            last = self._details[-1] if self._details else {}
            if last and all(last.get(name) == detail.get(name) for name in ("index", "type")):
                self._details[-1] = {**last, **{name: _joined(last, name, detail[name]) for name in detail}}
            else:
                self._details.append(detail)

    def state(self) -> JsonObject:
        if self._details:
            return {"reasoning_details": self._details}
        return {self._field: "".join(self._texts)} if self._texts else {}


def _joined(last: JsonObject, name: str, value: object) -> object:
    before = last.get(name)
    if name in ("text", "summary", "data") and isinstance(before, str) and isinstance(value, str):
        return before + value
    return before if value in (None, "") else value


def _read_usage(usage: _Usage) -> Usage | None:
    """Returns usage as reported: cached tokens are part of the input, reasoning tokens part of the output."""
    read, wrote = usage.prompt_tokens_details or _Details(), usage.completion_tokens_details or _Details()
    counts = Usage(
        input_tokens=whole(usage.prompt_tokens),
        output_tokens=whole(usage.completion_tokens),
        cached_tokens=whole(read.cached_tokens) or whole(usage.prompt_cache_hit_tokens),
        reasoning_tokens=whole(wrote.reasoning_tokens),
    )
    return believe(counts)
