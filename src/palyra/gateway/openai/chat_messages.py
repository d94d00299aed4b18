"""The body of a chat completion request.

Owns: its form, and turning its messages into a conversation. Does not own: what becomes of it (exchange).
Members that are not named here are accepted and have no effect; docs/openai-api.md lists the usual ones.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.core.errors import Invalid
from palyra.core.events.base import JsonObject
from palyra.core.events.run import CallerTool, GivenRole
from palyra.engine.api.requests import NAME_LENGTH_MAX, GivenAttachment, GivenMessage
from palyra.gateway.openai.conversation import (
    CallerConversation,
    past_call,
    read_base64,
    read_data_url,
    read_tool,
    require_call_id,
    require_few,
    require_readable,
)
from palyra.gateway.openai.errors import UnsupportedParameter

ModelName = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
_ROLES = {"user": GivenRole.USER, "assistant": GivenRole.ASSISTANT, "tool": GivenRole.TOOL}
_FILE_TYPE = "application/octet-stream"


class ImageUrl(msgspec.Struct, frozen=True):
    url: str


class FileData(msgspec.Struct, frozen=True):
    file_data: str | None = None
    filename: str | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message: `text`, `refusal`, `image_url` or `file`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | None = None
    file: FileData | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = ""


class ChatToolCall(msgspec.Struct, frozen=True):
    id: str
    function: CalledFunction
    type: str = "function"


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | tuple[ContentPart, ...] | None = None
    tool_calls: tuple[ChatToolCall, ...] | None = None
    tool_call_id: str | None = None


class FunctionTool(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: JsonObject | None = None


class ChatTool(msgspec.Struct, frozen=True):
    type: str
    function: FunctionTool | None = None


class NamedFunction(msgspec.Struct, frozen=True):
    name: str


class ChatToolChoice(msgspec.Struct, frozen=True):
    type: str
    function: NamedFunction | None = None


class SchemaFormat(msgspec.Struct, frozen=True):
    schema: JsonObject | None = None
    name: str = ""


class ResponseFormat(msgspec.Struct, frozen=True):
    type: str
    json_schema: SchemaFormat | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class ChatBody(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion request. `user`, `metadata` and the header X-Palyra-Session name a session."""

    model: ModelName
    messages: tuple[ChatMessage, ...]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: tuple[ChatTool, ...] | None = None
    tool_choice: str | ChatToolChoice | None = None
    response_format: ResponseFormat | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: int | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


def read_conversation(messages: tuple[ChatMessage, ...]) -> CallerConversation:
    require_readable(1 + count_parts(message.content) + len(message.tool_calls or ()) for message in messages)
    instructions: list[str] = []
    read: list[GivenMessage] = []
    for at, message in enumerate(messages):
        text, attachments = _content(message.content, f"messages[{at}].content")
        if message.role in ("system", "developer"):
            instructions.append(text)
            continue
        role = _ROLES.get(message.role)
        if role is None:
            raise UnsupportedParameter(f"messages[{at}].role", "a role is system, developer, user, assistant or tool")
        calls = tuple(
            past_call(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
        )
        is_result = role is GivenRole.TOOL
        read.append(
            GivenMessage(
                role=role,
                text=text,
                attachments=attachments,
                calls=calls if role is GivenRole.ASSISTANT else (),
                call_id=require_call_id(message.tool_call_id or "") if is_result else None,
            )
        )
    return CallerConversation(instructions="\n\n".join(instructions), messages=tuple(read))


def count_parts(content: str | tuple[object, ...] | None) -> int:
    return len(content) if isinstance(content, tuple) else 0


def read_chat_tools(tools: tuple[ChatTool, ...]) -> tuple[CallerTool, ...]:
    require_few(len(tools))
    found: list[CallerTool] = []
    for at, tool in enumerate(tools):
        if tool.type != "function" or tool.function is None:
            raise UnsupportedParameter(f"tools[{at}].type", "only tools of type function can be supplied")
        found.append(read_tool(tool.function.name, tool.function.description, tool.function.parameters))
    return tuple(found)


def schema_of(form: ResponseFormat | None) -> JsonObject | None:
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    if form.type != "json_schema" or form.json_schema is None or form.json_schema.schema is None:
        raise UnsupportedParameter("response_format", "it is text, json_object, or json_schema with a schema")
    return form.json_schema.schema


def _content(content: str | tuple[ContentPart, ...] | None, place: str) -> tuple[str, tuple[GivenAttachment, ...]]:
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    attachments: list[GivenAttachment] = []
    for part in content:
        name = f"{len(attachments) + 1}"
        match part:
            case ContentPart(type="text", text=str() as text) | ContentPart(type="refusal", refusal=str() as text):
                texts.append(text)
            case ContentPart(type="image_url", image_url=ImageUrl(url=url)):
                attachments.append(read_data_url(url, f"image {name}"))
            case ContentPart(type="file", file=FileData(file_data=str() as data, filename=filename)):
                attachments.append(read_file(data, filename or f"file {name}"))
            case _:
                raise UnsupportedParameter(place, f"a part of type {part.type[:40]} is not supported or not complete")
    return "\n".join(texts), tuple(attachments)


def read_file(data: str, name: str) -> GivenAttachment:
    if data.startswith("data:"):
        return read_data_url(data, name)
    return GivenAttachment(name=name, media_type=_FILE_TYPE, body=read_base64(data))


def chosen_tools(
    tools: tuple[CallerTool, ...], choice: str | None, named: str | None
) -> tuple[tuple[CallerTool, ...], tuple[str, ...], str]:
    """Returns the tools to offer, those that must be called, and a sentence for the model."""
    if choice == "none":
        return (), (), ""
    if named is not None:
        if named not in {tool.name for tool in tools}:
            raise Invalid("tool_choice_unknown", "tool_choice names a tool that the request does not supply")
        return tools, (named,), f"Call the tool {named} before you answer."
    if choice == "required" and tools:
        must = (tools[0].name,) if len(tools) == 1 else ()
        return tools, must, "Call at least one of the caller's tools before you answer."
    return tools, (), ""
