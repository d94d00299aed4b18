"""Anthropic messages: the provider and its requests.

Does not own: reading answers (anthropic_messages_reader).
The parts that stay the same come first (tools, system, earlier messages) and are marked for the prompt cache. Results
of parallel calls stand together in one message, before anything else said there. Signed thinking goes back to its
place.
"""

import re
from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import urlsplit

from palyra.adapters.net.client import HttpClient
from palyra.adapters.providers.anthropic_messages_reader import MessagesReader
from palyra.adapters.providers.bodies import NO_OUTPUT, NO_TEXT, arguments_object, is_strict, object_schema, with_wish
from palyra.adapters.providers.exchange import (
    OUTPUT_LIMIT,
    BodyDraft,
    KeySource,
    ModelExchange,
    ProviderEndpoint,
    join_url,
)
from palyra.adapters.providers.image_parts import encoded, images_of
from palyra.adapters.providers.provider_state import give_back
from palyra.adapters.providers.tool_cache import ToolCache
from palyra.adapters.providers.wire_names import names_of_tools
from palyra.core.context.messages import AssistantMessage, Message, PastCall, ToolMessage, UserMessage
from palyra.core.events.base import JsonObject
from palyra.core.tools import ToolSpec
from palyra.ports.provider import Image

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"  # The vendor keeps what is documented for this version, and other servers know no other.
MAX_TOKENS = 16_384  # The format demands a limit; all current models allow this one. `max_output_tokens` overrides it.
MAX_TOKENS_OLD = 4_096  # The vendor's first models allow this many, and so every server does.
CONTINUED = "[palyra] The conversation goes on from here; what came before is left out."

_CACHED = {"cache_control": {"type": "ephemeral"}}
_CONCESSIONS = {
    "output_config": re.compile(r"output_config|output_format|structured output|json_schema"),
    "cache_control": re.compile(r"cache_control"),
}


class AnthropicMessages(ModelExchange):
    """A provider. `key` is called at every attempt; a None key means that the server needs none."""

    def __init__(self, endpoint: ProviderEndpoint, key: KeySource, client: HttpClient) -> None:
        super().__init__(MessagesFormat(endpoint.base_url), endpoint, key, client)


class MessagesFormat:
    kind = "anthropic-messages"
    concessions: ClassVar[dict[str, re.Pattern[str]]] = _CONCESSIONS

    def __init__(self, base_url: str | None) -> None:
        self._tools = ToolCache(_tools)
        host = urlsplit(base_url or BASE_URL).hostname or ""
        self._is_vendor = host.endswith("anthropic.com")

    def url(self, base_url: str | None) -> str:
        return join_url(base_url or BASE_URL, "/v1", "/messages")

    def headers(self, key: str | None) -> dict[str, str]:
        """Sends the key in the vendor's header.

        Other servers get both headers, because some read only the other one.
        """
        headers = {"anthropic-version": API_VERSION}
        if key:
            headers["x-api-key"] = key
        if key and not self._is_vendor:
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def body(self, draft: BodyDraft) -> JsonObject:
        request = draft.request
        schema = request.answer_schema
        is_native = schema is not None and "output_config" not in draft.without and is_strict(schema)
        instructions = with_wish(request.instructions, None if is_native else schema)
        mark = {} if "cache_control" in draft.without else _CACHED
        body: JsonObject = {"model": draft.model_id, "stream": True}
        most = MAX_TOKENS_OLD if OUTPUT_LIMIT in draft.without else MAX_TOKENS
        body["max_tokens"] = draft.max_output_tokens or most
        if draft.tools:
            tools = self._tools.of(draft.tools)
            body["tools"] = [*tools[:-1], {**tools[-1], **mark}]
        if instructions.strip():
            body["system"] = [{"type": "text", "text": instructions, **mark}]
        if is_native:
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        messages = _messages(draft)
        body["messages"] = _marked(messages) if mark else messages
        return body

    def reader(self, draft: BodyDraft, provider: str) -> MessagesReader:
        return MessagesReader(draft, provider)


def _tools(specs: tuple[ToolSpec, ...]) -> list[JsonObject]:
    names = names_of_tools(specs)
    return [_tool(names.wire(spec.name), spec) for spec in specs]


def _tool(name: str, spec: ToolSpec) -> JsonObject:
    return {"name": name, "description": spec.description, "input_schema": object_schema(spec.input_schema)}


def _messages(draft: BodyDraft) -> list[JsonObject]:
    """Merges neighbouring messages of one role, so that all results of a turn stand together."""
    turns: list[tuple[str, list[JsonObject]]] = []
    for message in draft.request.messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = list(_blocks(draft, message))
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    if turns and turns[0][0] == "assistant":
        turns.insert(0, ("user", [_text(CONTINUED)]))
    return [{"role": role, "content": blocks} for role, blocks in turns if blocks]


def _blocks(draft: BodyDraft, message: Message) -> Iterator[JsonObject]:
    match message:
        case UserMessage(text=text):
            yield from (_image(image) for image in images_of(draft.request, message))
            yield _text(text if text.strip() else NO_TEXT)
        case ToolMessage(call_id=call_id, text=text, is_error=is_error):
            content = text if text.strip() else NO_OUTPUT
            result: JsonObject = {"type": "tool_result", "tool_use_id": call_id, "content": content}
            yield {**result, "is_error": True} if is_error else result
        case AssistantMessage(text=text, tool_calls=calls):
            order = give_back(draft.origin, message).get("blocks")
            if isinstance(order, list) and _count(order, "tool_use") == len(calls):
                yield from _ordered(draft, message, order)
                return
            if text.strip():
                yield _text(text)
            yield from (_call(draft, call) for call in calls)


def _ordered(draft: BodyDraft, message: AssistantMessage, order: list[JsonObject]) -> Iterator[JsonObject]:
    """Yields the answer as it was given: thinking stands before what it led to."""
    calls = iter(message.tool_calls)
    text = message.text
    for block in order:
        match block.get("type"):
            case "text" if text.strip():
                yield _text(text)
                text = ""
            case "tool_use":
                yield _call(draft, next(calls))
            case "thinking" | "redacted_thinking":
                yield block
            case _:
                continue


def _marked(messages: list[JsonObject]) -> list[JsonObject]:
    """Marks two places for the cache: the end of this request, with which the next begins, and the end of the last one.

    Two marks here and two before (tools, system) are the four that the vendor allows.
    """
    last = len(messages) - 1
    return [_mark_last_block(message) if at in (last, last - 2) else message for at, message in enumerate(messages)]


def _mark_last_block(message: JsonObject) -> JsonObject:
    blocks = message["content"]
    if message["role"] != "user" or not isinstance(blocks, list):
        return message
    return {**message, "content": [*blocks[:-1], {**blocks[-1], **_CACHED}]}


def _count(order: list[JsonObject], kind: str) -> int:
    return sum(isinstance(block, dict) and block.get("type") == kind for block in order)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(image: Image) -> JsonObject:
    """Puts the image before the text: the vendor's models read it best when the question about it comes after."""
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": encoded(image)}}


def _call(draft: BodyDraft, call: PastCall) -> JsonObject:
    name = draft.names.wire(call.tool)
    return {"type": "tool_use", "id": call.call_id, "name": name, "input": arguments_object(call)}
