"""Assembles the streamed fragments of a model's answer into one recorded output.

Does not own: streaming.
Arguments stay the raw string unless they are a JSON object that every reader keeps exactly. The gate then refuses the
call, and the model is told.
"""

import msgspec

from palyra.core.canonical import canonical_bytes
from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.model import Finish, ModelOutput, ToolCall, Usage
from palyra.core.ids import RunId, make_call_id
from palyra.core.run.loop import CALLS_A_TURN_MAX

# The limits are parts of an event's 256 KiB, measured as JSON: as the text is written, not as it was said.
TEXT_BYTES_MAX = 80 * 1024
REASONING_BYTES_MAX = 32 * 1024
ARGUMENTS_BYTES_MAX = 112 * 1024  # For all calls of one output together.
TOOL_NAME_LENGTH_MAX = 256
RAW_LENGTH_KEPT = 1_000  # Kept of arguments that cannot be used: enough to see what went wrong.


class CallFragments:
    """The fragments of one call that have arrived so far."""

    def __init__(self) -> None:
        self.tool = ""
        self.arguments: list[str] = []


class Assembly:
    """Grows with every fragment. The output is asked for at the end, or when the stream breaks off."""

    def __init__(self, run_id: RunId, turn: int, calls_before: int) -> None:
        self._run_id = run_id
        self._turn = turn
        self._calls_before = calls_before
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, CallFragments] = {}

    def add_text(self, text: str) -> None:
        self._texts.append(text)

    def add_reasoning(self, text: str) -> None:
        self._reasoning.append(text)

    def add_call(self, index: int, tool: str, arguments: str) -> None:
        call = self._calls.setdefault(index, CallFragments())
        call.tool = call.tool or tool
        call.arguments.append(arguments)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def is_empty(self) -> bool:
        return not (self._texts or self._calls)

    def complete(self, finish: Finish, usage: Usage | None, provider_state: JsonObject | None = None) -> ModelOutput:
        text, is_cut = _cut(self.text, TEXT_BYTES_MAX)
        reasoning, _ = _cut("".join(self._reasoning), REASONING_BYTES_MAX)
        return ModelOutput(
            turn=self._turn,
            text=text,
            tool_calls=tuple(self._tool_calls()),
            finish=Finish.LENGTH if is_cut else finish,
            usage=usage,
            reasoning=reasoning or None,
            provider_state=provider_state,
        )

    def interrupted(self, cause: str | None = None) -> ModelOutput:
        """Returns what had come when the stream broke off; calls are never made from half a stream."""
        text, _ = _cut(self.text, TEXT_BYTES_MAX)
        return ModelOutput(
            turn=self._turn, text=text, tool_calls=(), finish=Finish.INTERRUPTED, usage=None, cause=cause
        )

    def _tool_calls(self) -> list[ToolCall]:
        calls = [self._calls[index] for index in sorted(self._calls)][:CALLS_A_TURN_MAX]
        made: list[ToolCall] = []
        room = ARGUMENTS_BYTES_MAX
        for number, call in enumerate(calls, start=1):
            arguments = parse_arguments("".join(call.arguments), room)
            room -= len(msgspec.json.encode(arguments))
            call_id = make_call_id(self._run_id, self._calls_before + number)
            made.append(ToolCall(call_id=call_id, tool=call.tool[:TOOL_NAME_LENGTH_MAX], arguments=arguments))
        return made


def parse_arguments(raw: str, room: int = ARGUMENTS_BYTES_MAX) -> JsonObject | str:
    """Returns the object if it is one, can be kept exactly and fits; else the beginning of the raw text."""
    try:
        value = msgspec.json.decode(raw or "{}", type=dict[str, object])
        size = len(canonical_bytes(value))
    except (msgspec.DecodeError, Invalid, UnicodeError, RecursionError):
        return _beginning(raw)
    return value if size <= room else _beginning(raw)


def _beginning(raw: str) -> str:
    """Cuts where a word ends: half a secret would not be recognised as one."""
    return _clean(raw if len(raw) <= RAW_LENGTH_KEPT else _up_to_a_break(raw[:RAW_LENGTH_KEPT]))


def _up_to_a_break(text: str) -> str:
    return text[: max(text.rfind(sign) for sign in ' \n\t",;&') + 1]


def _cut(text: str, bytes_max: int) -> tuple[str, bool]:
    """Returns as much of the text as fits, and whether it was cut. Control characters and quotes need extra room."""
    text = _clean(text)
    size = len(msgspec.json.encode(text))
    if size <= bytes_max:
        return text, False
    kept = text
    while len(msgspec.json.encode(kept)) > bytes_max:
        kept = kept[: len(kept) * 3 // 4]
    return _up_to_a_break(kept), True


def _clean(text: str) -> str:
    """Replaces lone surrogates, which cannot be written."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
