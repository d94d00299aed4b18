"""Builds requests for pydantic-ai: messages, tools and settings of one call, and a vendor's own state.

Does not own: sending them (pydantic_ai_call).
It imports pydantic-ai, so only modules that load at the first call may import it.
"""

import hashlib
from collections.abc import Iterator

import msgspec
from pydantic_ai.messages import (
    BinaryContent,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from palyra.adapters.providers.bodies import NO_OUTPUT, NO_TEXT, arguments_object, object_schema, with_wish
from palyra.adapters.providers.exchange import BodyDraft
from palyra.adapters.providers.image_parts import images_of
from palyra.adapters.providers.provider_state import give_back
from palyra.core.context.messages import AssistantMessage, PastCall, ToolMessage, UserMessage
from palyra.core.events.base import JsonObject

# Several vendors accept no conversation that begins with the assistant.
CONTINUED = "[palyra] The conversation goes on from here; what came before is left out."
ANSWER_SCHEMA = "answer_schema"  # A field that a model may refuse: a schema in the vendor's own form.


class StoredPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a vendor wants back of one part of its answer.

    Text and calls are on the tape, so only the length of a text is kept here.
    """

    kind: str
    content: str = ""
    length: int = 0
    id: str | None = None
    signature: str | None = None
    provider_name: str | None = None
    provider_details: JsonObject | None = None


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer: its parts in order, and its vendor; pydantic-ai gives signatures back to nobody else."""

    parts: tuple[StoredPart, ...]
    model_name: str | None = None
    provider_name: str | None = None
    provider_url: str | None = None
    canonical_system: str | None = None


def keep_answer(response: ModelResponse) -> JsonObject:
    """Returns the state; empty if the vendor wants nothing back."""
    parts = tuple(stored for part in response.parts if (stored := _keep_part(part)) is not None)
    if not any(part.kind == "thinking" or part.id or part.provider_details for part in parts):
        return {}
    answer = StoredAnswer(
        parts=parts,
        model_name=response.model_name,
        provider_name=response.provider_name,
        provider_url=response.provider_url,
        canonical_system=response.canonical_system,
    )
    try:
        return {"answer": msgspec.to_builtins(answer)}
    except (TypeError, ValueError):
        # The state is no JSON; the conversation goes on without it.
        return {}


def make_messages(draft: BodyDraft, model: Model) -> list[ModelMessage]:
    """Joins what people and tools said between two answers into one request."""
    id_length = model.profile.get("tool_call_id_length")
    tools: dict[str, str] = {}
    messages: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = []
    for message in draft.request.messages:
        match message:
            case UserMessage():
                waiting.append(UserPromptPart(_said(draft, message)))
            case ToolMessage(call_id=call_id, text=text, is_error=is_error):
                told = ToolReturnPart(tools.get(call_id, call_id), text or NO_OUTPUT, _wire_id(call_id, id_length))
                told.outcome = "failed" if is_error else "success"
                waiting.append(told)
            case AssistantMessage():
                tools |= {call.call_id: draft.names.wire(call.tool) for call in message.tool_calls}
                if waiting or not messages:
                    messages.append(ModelRequest(waiting or [UserPromptPart(CONTINUED)]))
                messages.append(_answer(draft, message, id_length))
                waiting = []
    if waiting or not messages:
        messages.append(ModelRequest(waiting or [UserPromptPart(NO_TEXT)]))
    return messages


def make_parameters(draft: BodyDraft, model: Model) -> ModelRequestParameters:
    schema = draft.request.answer_schema
    is_native = schema is not None and takes_schema(draft, model)
    instructions = with_wish(draft.request.instructions, None if is_native else schema)
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=draft.names.wire(spec.name),
                description=spec.description,
                parameters_json_schema=object_schema(spec.input_schema),
            )
            for spec in draft.tools
        ],
        output_mode="native" if is_native else "text",
        output_object=OutputObjectDefinition(json_schema=schema or {}, name="answer") if is_native else None,
        instruction_parts=[InstructionPart(content=instructions)] if instructions else [],
    )


def make_settings(draft: BodyDraft, model: Model) -> ModelSettings:
    """Returns settings.

    The library's retries are off, because we make them. Settings that a model ignores with a warning are left out.
    """
    settings = ModelSettings(cache=True)
    if draft.max_output_tokens is not None:
        settings["max_tokens"] = draft.max_output_tokens
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = 0
    return settings


def takes_schema(draft: BodyDraft, model: Model) -> bool:
    return bool(model.profile.get("supports_json_schema_output")) and ANSWER_SCHEMA not in draft.without


def _said(draft: BodyDraft, message: UserMessage) -> str | list[UserContent]:
    text = message.text or NO_TEXT
    images = images_of(draft.request, message)
    return [*(BinaryContent(image.data, media_type=image.media_type) for image in images), text] if images else text


def _answer(draft: BodyDraft, message: AssistantMessage, id_length: int | None) -> ModelResponse:
    """Returns an answer with the vendor's state if the answer is unchanged; else its text and calls alone."""
    calls = [_call(draft, call, id_length) for call in message.tool_calls]
    plain: list[ModelResponsePart] = [TextPart(message.text)] if message.text else []
    try:
        stored = msgspec.convert(give_back(draft.origin, message).get("answer"), StoredAnswer | None)
    except msgspec.ValidationError:
        stored = None
    if stored is None or not _is_unchanged(stored, message):
        return ModelResponse([*plain, *calls])
    return ModelResponse(
        list(_restore(stored, message.text, calls)),
        model_name=stored.model_name,
        provider_name=stored.provider_name,
        provider_url=stored.provider_url,
        canonical_system=stored.canonical_system,
    )


def _is_unchanged(stored: StoredAnswer, message: AssistantMessage) -> bool:
    """Tells whether the order of parts is still known.

    A redacted text has another length, and a call without a result is not shown.
    """
    length = sum(part.length for part in stored.parts)
    call_count = sum(part.kind == "call" for part in stored.parts)
    return length == len(message.text) and call_count == len(message.tool_calls)


def _restore(stored: StoredAnswer, text: str, calls: list[ToolCallPart]) -> Iterator[ModelResponsePart]:
    at, left = 0, iter(calls)
    for stored_part in stored.parts:
        part = _restored(stored_part, text[at : at + stored_part.length], left)
        part.id, part.provider_name, part.provider_details = (
            stored_part.id,
            stored_part.provider_name,
            stored_part.provider_details,
        )
        at += stored_part.length
        yield part


def _restored(stored: StoredPart, text: str, calls: Iterator[ToolCallPart]) -> TextPart | ThinkingPart | ToolCallPart:
    match stored.kind:
        case "text":
            return TextPart(text)
        case "call":
            return next(calls)
        case _:
            return ThinkingPart(stored.content, signature=stored.signature)


def _keep_part(part: ModelResponsePart) -> StoredPart | None:
    match part:
        case ThinkingPart():
            stored = StoredPart(kind="thinking", content=part.content, signature=part.signature)
        case TextPart():
            stored = StoredPart(kind="text", length=len(part.content))
        case ToolCallPart():
            stored = StoredPart(kind="call")
        case _:
            return None
    return msgspec.structs.replace(
        stored, id=part.id, provider_name=part.provider_name, provider_details=part.provider_details
    )


def _call(draft: BodyDraft, call: PastCall, id_length: int | None) -> ToolCallPart:
    return ToolCallPart(draft.names.wire(call.tool), arguments_object(call), _wire_id(call.call_id, id_length))


def _wire_id(call_id: str, length: int | None) -> str:
    return call_id if length is None else hashlib.sha256(call_id.encode()).hexdigest()[:length]
