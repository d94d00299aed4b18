"""OpenAI responses: the provider and its requests.

Does not own: reading answers (openai_responses_reader).
Nothing is stored at the provider: the whole conversation is sent, and sealed reasoning goes back to its place in it.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from palyra.adapters.net.client import HttpClient
from palyra.adapters.providers.bodies import NO_OUTPUT, NO_TEXT, arguments_text, is_strict, object_schema, with_wish
from palyra.adapters.providers.exchange import BodyDraft, KeySource, ModelExchange, ProviderEndpoint, join_url
from palyra.adapters.providers.image_parts import data_url, images_of
from palyra.adapters.providers.openai_responses_reader import ResponsesReader
from palyra.adapters.providers.provider_state import give_back
from palyra.adapters.providers.tool_cache import ToolCache
from palyra.adapters.providers.wire_names import names_of_tools
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.events.base import JsonObject
from palyra.core.tools import ToolSpec

BASE_URL = "https://api.openai.com/v1"
OUTPUT_TOKENS_MIN = 16  # The vendor refuses fewer.

_CONCESSIONS = {
    "include": re.compile(r"encrypted[_ ]content|\binclude\b"),
    "store": re.compile(r"\bstore\b"),
    "text": re.compile(r"text\.format|json_schema|structured output|json mode"),
}


class OpenAiResponses(ModelExchange):
    """A provider. `key` is called at every attempt; a None key means that the server needs none."""

    def __init__(self, endpoint: ProviderEndpoint, key: KeySource, client: HttpClient) -> None:
        super().__init__(ResponsesFormat(), endpoint, key, client)


class ResponsesFormat:
    kind = "openai-responses"
    concessions: ClassVar[dict[str, re.Pattern[str]]] = _CONCESSIONS

    def __init__(self) -> None:
        self._tools = ToolCache(_tools)

    def url(self, base_url: str | None) -> str:
        return join_url(base_url or BASE_URL, "/v1", "/responses")

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, draft: BodyDraft) -> JsonObject:
        request = draft.request
        schema = request.answer_schema
        is_native = schema is not None and "text" not in draft.without
        instructions = with_wish(request.instructions, None if is_native else schema)
        body: JsonObject = {"model": draft.model_id, "stream": True}
        if "store" not in draft.without:
            body["store"] = False
        if "include" not in draft.without:
            body["include"] = ["reasoning.encrypted_content"]
        if instructions:
            body["instructions"] = instructions
        if draft.tools:
            body["tools"] = self._tools.of(draft.tools)
        if schema is not None and is_native:
            answer = {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}
            body["text"] = {"format": answer}
        if draft.max_output_tokens is not None:
            body["max_output_tokens"] = max(OUTPUT_TOKENS_MIN, draft.max_output_tokens)
        body["input"] = [item for message in request.messages for item in _items(draft, message)]
        return body

    def reader(self, draft: BodyDraft, provider: str) -> ResponsesReader:
        return ResponsesReader(draft, provider)


def _tools(specs: tuple[ToolSpec, ...]) -> list[JsonObject]:
    names = names_of_tools(specs)
    return [_tool(names.wire(spec.name), spec) for spec in specs]


def _tool(name: str, spec: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "name": name,
        "description": spec.description,
        "parameters": object_schema(spec.input_schema),
        "strict": False,  # The vendor's default is true, and most schemas do not fit strict mode.
    }


def _items(draft: BodyDraft, message: Message) -> Iterator[JsonObject]:
    match message:
        case UserMessage():
            yield {"role": "user", "content": _said(draft, message)}
        case ToolMessage(call_id=call_id, text=text):
            yield {"type": "function_call_output", "call_id": call_id, "output": text or NO_OUTPUT}
        case AssistantMessage(text=text, tool_calls=calls):
            order = give_back(draft.origin, message).get("items")
            if isinstance(order, list) and _count(order, "function_call") == len(calls):
                yield from _ordered(draft, message, order)
                return
            if text:
                yield {"role": "assistant", "content": text}
            yield from (_call(draft, call) for call in calls)


def _said(draft: BodyDraft, message: UserMessage) -> str | list[JsonObject]:
    text = message.text or NO_TEXT
    images: list[JsonObject] = [
        {"type": "input_image", "detail": "auto", "image_url": data_url(image)}
        for image in images_of(draft.request, message)
    ]
    return [*images, {"type": "input_text", "text": text}] if images else text


def _ordered(draft: BodyDraft, message: AssistantMessage, order: list[JsonObject]) -> Iterator[JsonObject]:
    """Yields the answer as it was given: reasoning stands before the message or the call it led to."""
    calls = iter(message.tool_calls)
    text = message.text
    for item in order:
        match item.get("type"):
            case "message" if text:
                yield {"role": "assistant", "content": text}
                text = ""
            case "function_call":
                yield _call(draft, next(calls))
            case "reasoning":
                yield item
            case _:
                continue


def _count(order: list[JsonObject], kind: str) -> int:
    return sum(isinstance(item, dict) and item.get("type") == kind for item in order)


def _call(draft: BodyDraft, call: PastCall) -> JsonObject:
    return {
        "type": "function_call",
        "call_id": call.call_id,
        "name": draft.names.wire(call.tool),
        "arguments": arguments_text(call),
    }
