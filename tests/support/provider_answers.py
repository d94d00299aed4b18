"""The same answers in the three wire formats: bodies that a stand-in plays, and joining deltas again."""

from collections.abc import Callable
from typing import Any

import msgspec

from palyra.adapters.net.client import HttpClient, Timeouts
from palyra.adapters.providers.anthropic_messages import AnthropicMessages
from palyra.adapters.providers.attempts import RetryPace
from palyra.adapters.providers.exchange import KeySource, ProviderEndpoint, WireModel
from palyra.adapters.providers.openai_chat import OpenAiChat
from palyra.adapters.providers.openai_responses import OpenAiResponses
from palyra.core.context.messages import Message
from palyra.ports.provider import CallDelta, Completed, Delta, Failed, ModelRequest, Provider, ReasoningDelta, TextDelta
from tests.support.stand_in_provider import events

Json = dict[str, Any]
KEY = "sk-test-1234567890abcdef"
ADAPTERS: dict[str, Callable[[ProviderEndpoint, KeySource, HttpClient], Provider]] = {
    "openai-chat": OpenAiChat,
    "openai-responses": OpenAiResponses,
    "anthropic-messages": AnthropicMessages,
}
QUICK = Timeouts(connect_s=60.0, first_byte_s=60.0, idle_s=60.0)
AT_ONCE = RetryPace(retries=2, first_s=0.001, most_s=0.001)


class Told(msgspec.Struct, frozen=True):
    """What the deltas of one stream add up to."""

    text: str
    reasoning: str
    calls: list[tuple[str, str]]
    last: Completed | Failed


def make(
    kind: str, url: str, client: HttpClient, timeouts: Timeouts = QUICK, models: dict[str, WireModel] | None = None
) -> Provider:
    endpoint = ProviderEndpoint(name="standin", base_url=url, timeouts=timeouts, pace=AT_ONCE, models=models or {})
    return ADAPTERS[kind](endpoint, lambda: KEY, client)


def request(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(model="a-model", instructions="Be brief.", messages=messages, **more)


async def ask(provider: Provider, asked: ModelRequest) -> Told:
    return told([delta async for delta in provider.stream(asked)])


def told(deltas: list[Delta]) -> Told:
    """Joins the deltas of a stream, which has exactly one final delta, the last one."""
    last = deltas[-1]
    assert isinstance(last, Completed | Failed)
    assert not any(isinstance(delta, Completed | Failed) for delta in deltas[:-1])
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            call = calls.setdefault(delta.index, ["", ""])
            call[0] = call[0] or delta.tool
            call[1] += delta.arguments
    return Told(
        text="".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        reasoning="".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        calls=[(tool, arguments) for _, (tool, arguments) in sorted(calls.items())],
        last=last,
    )


def chat(*deltas: Json, finish: str | None = "stop", usage: Json | None = None) -> bytes:
    chunks: list[Json | str] = [_chat_chunk(delta, None) for delta in deltas]
    if finish is not None:
        chunks.append(_chat_chunk({}, finish))
    if usage is not None:
        chunks.append(
            {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
        )
    return events(*chunks, *(["[DONE]"] if finish is not None else []))


def _chat_chunk(delta: Json, finish: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def messages(*blocks: Json, stop: str | None = "end_turn", usage: Json | None = None) -> bytes:
    """Each block is `{start, deltas}`."""
    message: Json = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    start = {**message, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 1}}
    said: list[Json | str] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        said.append({"type": "content_block_start", "index": index, "content_block": block["start"]})
        said += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in block["deltas"]]
        said.append({"type": "content_block_stop", "index": index})
    if stop is not None:
        delta = {"stop_reason": stop, "stop_sequence": None}
        said.append({"type": "message_delta", "delta": delta, "usage": usage or {"output_tokens": 5}})
        said.append({"type": "message_stop"})
    return events(*said)


def responses(*items: Json, status: str | None = "completed", usage: Json | None = None, **more: Any) -> bytes:
    """Each item is `{item, deltas}`, the item as it is when done."""
    said: list[Json | str] = [
        {"type": "response.created", "sequence_number": 0, "response": _response([], "in_progress")}
    ]
    for index, entry in enumerate(items):
        opened = {**entry["item"], "status": "in_progress"}
        opened |= {name: [] for name in ("content", "summary") if name in opened} | (
            {"arguments": ""} if "arguments" in opened else {}
        )
        said.append({"type": "response.output_item.added", "sequence_number": 0, "output_index": index, "item": opened})
        said += [
            {"sequence_number": 0, "output_index": index, "content_index": 0, "item_id": "i", **delta}
            for delta in entry["deltas"]
        ]
        said.append(
            {"type": "response.output_item.done", "sequence_number": 0, "output_index": index, "item": entry["item"]}
        )
    if status is not None:
        whole = _response([entry["item"] for entry in items], status) | {"usage": usage} | more
        said.append({"type": f"response.{status}", "sequence_number": 9, "response": whole})
    return events(*said)


def _response(output: list[Json], status: str) -> Json:
    fixed = {"id": "r", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True, "tools": []}
    return {
        **fixed,
        "tool_choice": "auto",
        "output": output,
        "status": status,
        "error": None,
        "incomplete_details": None,
    }


def text_block(*pieces: str) -> Json:
    return {
        "start": {"type": "text", "text": ""},
        "deltas": [{"type": "text_delta", "text": piece} for piece in pieces],
    }


def tool_block(name: str, *fragments: str) -> Json:
    start = {"type": "tool_use", "id": f"t_{name}", "name": name, "input": {}}
    return {"start": start, "deltas": [{"type": "input_json_delta", "partial_json": piece} for piece in fragments]}


def text_item(*pieces: str) -> Json:
    part = {"type": "output_text", "text": "".join(pieces), "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    deltas = [{"type": "response.output_text.delta", "delta": piece, "logprobs": []} for piece in pieces]
    opened = {"type": "response.content_part.added", "part": {**part, "text": ""}}
    return {"item": item, "deltas": [opened, *deltas]}


def call_item(name: str, *fragments: str) -> Json:
    item = {"type": "function_call", "id": "f", "call_id": f"c_{name}", "name": name, "arguments": "".join(fragments)}
    deltas = [{"type": "response.function_call_arguments.delta", "delta": piece} for piece in fragments]
    return {"item": {**item, "status": "completed"}, "deltas": deltas}


def hello(kind: str) -> bytes:
    """Returns the shortest complete answer: the text "Hello."."""
    match kind:
        case "openai-chat":
            return chat({"role": "assistant", "content": "Hel"}, {"content": "lo."})
        case "openai-responses":
            return responses(text_item("Hel", "lo."))
        case _:
            return messages(text_block("Hel", "lo."))


def half_hello(kind: str) -> bytes:
    """Returns the same answer, interrupted after its first words."""
    match kind:
        case "openai-chat":
            return chat({"role": "assistant", "content": "Hel"}, finish=None)
        case "openai-responses":
            return responses(text_item("Hel"), status=None)
        case _:
            return messages(text_block("Hel"), stop=None)
