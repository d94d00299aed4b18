"""OpenAI chat completions, and the many servers that speak it: the provider and its requests.

Does not own: reading answers (openai_chat_reader).
An optional field that a server refuses is left out from then on, so that one adapter fits all servers.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import urlsplit

from palyra.adapters.net.client import HttpClient
from palyra.adapters.providers.bodies import NO_OUTPUT, NO_TEXT, arguments_text, is_strict, object_schema, with_wish
from palyra.adapters.providers.exchange import BodyDraft, KeySource, ModelExchange, ProviderEndpoint, join_url
from palyra.adapters.providers.image_parts import data_url, images_of
from palyra.adapters.providers.openai_chat_reader import ChatReader
from palyra.adapters.providers.provider_state import give_back
from palyra.adapters.providers.tool_cache import ToolCache
from palyra.adapters.providers.wire_names import names_of_tools
from palyra.core.context.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.events.base import JsonObject
from palyra.core.tools import ToolSpec

BASE_URL = "https://api.openai.com/v1"
SHORT_ID_LENGTH = 9  # Mistral accepts ids of exactly nine letters and digits.

_UNKNOWN = "unsupported|unrecognized|unknown|unexpected|not supported|not permitted|extra"
_CONCESSIONS = {
    "stream_options": re.compile(r"stream_options|include_usage"),
    "token_field": re.compile(
        rf"(?:{_UNKNOWN})[^.]*max_(?:completion_)?tokens|max_(?:completion_)?tokens[^.]*(?:{_UNKNOWN})"
    ),
    "response_format": re.compile(r"response_format|json_schema|structured output|json mode"),
    "long_ids": re.compile(r"length of 9"),
}


class OpenAiChat(ModelExchange):
    """A provider. `key` is called at every attempt; a None key means that the server needs none."""

    def __init__(self, endpoint: ProviderEndpoint, key: KeySource, client: HttpClient) -> None:
        super().__init__(ChatFormat(endpoint.base_url), endpoint, key, client)


class ChatFormat:
    kind = "openai-chat"
    concessions: ClassVar[dict[str, re.Pattern[str]]] = _CONCESSIONS

    def __init__(self, base_url: str | None) -> None:
        self._tools = ToolCache(_tools)
        host = urlsplit(base_url or BASE_URL).hostname or ""
        # The vendor's reasoning models refuse the old field; many other servers know only that one.
        self._is_vendor = host.endswith(("openai.com", "openai.azure.com"))

    def url(self, base_url: str | None) -> str:
        return join_url(base_url or BASE_URL, "/v1", "/chat/completions")

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, draft: BodyDraft) -> JsonObject:
        """Puts stable parts first, so that the provider's prompt cache finds the same beginning again."""
        request = draft.request
        schema = request.answer_schema
        is_native = schema is not None and "response_format" not in draft.without
        instructions = with_wish(request.instructions, None if is_native else schema)
        body: JsonObject = {"model": draft.model_id, "stream": True}
        if "stream_options" not in draft.without:
            body["stream_options"] = {"include_usage": True}
        if draft.tools:
            body["tools"] = self._tools.of(draft.tools)
        if schema is not None and is_native:
            answer = {"name": "answer", "schema": schema, "strict": is_strict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        if draft.max_output_tokens is not None:
            is_new = self._is_vendor != ("token_field" in draft.without)
            body["max_completion_tokens" if is_new else "max_tokens"] = draft.max_output_tokens
        head = [{"role": "system", "content": instructions}] if instructions else []
        body["messages"] = [*head, *_messages(draft)]
        return body

    def reader(self, draft: BodyDraft, provider: str) -> ChatReader:
        return ChatReader(draft, provider)


def _tools(specs: tuple[ToolSpec, ...]) -> list[JsonObject]:
    names = names_of_tools(specs)
    return [_tool(names.wire(spec.name), spec) for spec in specs]


def _tool(name: str, spec: ToolSpec) -> JsonObject:
    function = {"name": name, "description": spec.description, "parameters": object_schema(spec.input_schema)}
    return {"type": "function", "function": function}


def _messages(draft: BodyDraft) -> Iterator[JsonObject]:
    messages = draft.request.messages
    last_user = max((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1)
    for at, message in enumerate(messages):
        yield _message(draft, message, is_current=at > last_user)


def _message(draft: BodyDraft, message: Message, *, is_current: bool) -> JsonObject:
    match message:
        case UserMessage():
            return {"role": "user", "content": _said(draft, message)}
        case ToolMessage(call_id=call_id, text=text):
            return {"role": "tool", "tool_call_id": _wire_id(draft, call_id), "content": text or NO_OUTPUT}
        case AssistantMessage(text=text, tool_calls=calls):
            said: JsonObject = {"role": "assistant", "content": text or None}
            state = give_back(draft.origin, message)
            if is_current:
                # Servers want reasoning back while its calls are in progress; some refuse it later.
                said |= {name: state[name] for name in _REASONING_FIELDS if name in state}
            if calls:
                said["tool_calls"] = [
                    {
                        "id": _wire_id(draft, call.call_id),
                        "type": "function",
                        "function": {"name": draft.names.wire(call.tool), "arguments": arguments_text(call)},
                        **extra,
                    }
                    for call, extra in zip(calls, _extras(state, len(calls)), strict=True)
                ]
            return said


def _said(draft: BodyDraft, message: UserMessage) -> str | list[JsonObject]:
    """Leaves text alone as text, because many servers know no other form."""
    text = message.text or NO_TEXT
    images: list[JsonObject] = [
        {"type": "image_url", "image_url": {"url": data_url(image)}} for image in images_of(draft.request, message)
    ]
    return [*images, {"type": "text", "text": text}] if images else text


_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


def _extras(state: JsonObject, count: int) -> list[JsonObject]:
    extras = state.get("calls")
    if not isinstance(extras, list) or len(extras) != count:
        return [{} for _ in range(count)]
    return [{"extra_content": extra} if extra else {} for extra in extras]


def _wire_id(draft: BodyDraft, call_id: str) -> str:
    if "long_ids" not in draft.without:
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:SHORT_ID_LENGTH]
