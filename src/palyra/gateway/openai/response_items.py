"""The body of a request for a response.

Owns: its form, and turning its input into a conversation. Does not own: what becomes of it (exchange).
Members that are not named here are accepted and have no effect; docs/openai-api.md lists the usual ones.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.core.events.base import JsonObject
from palyra.core.events.run import CallerTool, GivenRole
from palyra.engine.api.requests import GivenAttachment, GivenMessage
from palyra.gateway.openai.chat_messages import ModelName, count_parts, read_file
from palyra.gateway.openai.conversation import (
    CallerConversation,
    join_calls,
    past_call,
    read_data_url,
    read_tool,
    require_call_id,
    require_few,
    require_readable,
)
from palyra.gateway.openai.errors import UnsupportedParameter

_ROLES = {"user": GivenRole.USER, "assistant": GivenRole.ASSISTANT}
_IGNORED = frozenset({"reasoning", "item_reference"})  # Our own are on the tape already.


class InputPart(msgspec.Struct, frozen=True):
    """A part of a message: `input_text`, `output_text`, `refusal`, `input_image` or `input_file`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


class InputItem(msgspec.Struct, frozen=True):
    """A message, a `function_call` or a `function_call_output`."""

    type: str = "message"
    role: str | None = None
    content: str | tuple[InputPart, ...] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | tuple[InputPart, ...] | None = None


class ResponseTool(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: JsonObject | None = None


class ResponseToolChoice(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None


class TextFormat(msgspec.Struct, frozen=True):
    type: str
    schema: JsonObject | None = None
    name: str = ""


class TextOptions(msgspec.Struct, frozen=True):
    format: TextFormat | None = None


class ConversationName(msgspec.Struct, frozen=True):
    id: str


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a response. A session is named by `previous_response_id`, `conversation`, `user` or `metadata`."""

    model: ModelName
    input: str | tuple[InputItem, ...] = ()
    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: tuple[ResponseTool, ...] | None = None
    tool_choice: str | ResponseToolChoice | None = None
    text: TextOptions | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


def read_input(given: str | tuple[InputItem, ...], instructions: str | None) -> CallerConversation:
    if isinstance(given, str):
        asked = GivenMessage(role=GivenRole.USER, text=given)
        return CallerConversation(instructions=instructions or "", messages=(asked,))
    require_readable(1 + count_parts(item.content) + count_parts(item.output) for item in given)
    said = [instructions] if instructions else []
    read: list[GivenMessage] = []
    for at, item in enumerate(given):
        if item.type == "message" and item.role in ("system", "developer"):
            said.append(_content(item.content, f"input[{at}]")[0])
        elif item.type not in _IGNORED:
            read.append(_item(item, f"input[{at}]"))
    return CallerConversation(instructions="\n\n".join(said), messages=join_calls(read))


def _item(item: InputItem, place: str) -> GivenMessage:
    match item:
        case InputItem(type="message", role=str() as role) if role in _ROLES:
            text, attachments = _content(item.content, place)
            return GivenMessage(role=_ROLES[role], text=text, attachments=attachments)
        case InputItem(type="function_call", call_id=str() as call_id, name=str() as name):
            call = past_call(call_id, name, item.arguments or "")
            return GivenMessage(role=GivenRole.ASSISTANT, text="", calls=(call,))
        case InputItem(type="function_call_output", call_id=str() as call_id):
            text, _ = _content(item.output, place)
            return GivenMessage(role=GivenRole.TOOL, text=text, call_id=require_call_id(call_id))
        case _:
            raise UnsupportedParameter(place, f"an item of type {item.type[:40]} is not supported or not complete")


def read_response_tools(tools: tuple[ResponseTool, ...]) -> tuple[CallerTool, ...]:
    require_few(len(tools))
    found: list[CallerTool] = []
    for at, tool in enumerate(tools):
        if tool.type != "function" or tool.name is None:
            raise UnsupportedParameter(f"tools[{at}].type", "only tools of type function can be supplied")
        found.append(read_tool(tool.name, tool.description, tool.parameters))
    return tuple(found)


def schema_in(options: TextOptions | None) -> JsonObject | None:
    form = options.format if options is not None else None
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    if form.type != "json_schema" or form.schema is None:
        raise UnsupportedParameter("text.format", "it is text, json_object, or json_schema with a schema")
    return form.schema


def _content(content: str | tuple[InputPart, ...] | None, place: str) -> tuple[str, tuple[GivenAttachment, ...]]:
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    attachments: list[GivenAttachment] = []
    for part in content:
        number = len(attachments) + 1
        match part:
            case InputPart(type="input_text" | "output_text" | "text", text=str() as text):
                texts.append(text)
            case InputPart(type="refusal", refusal=str() as text):
                texts.append(text)
            case InputPart(type="input_image", image_url=str() as url):
                attachments.append(read_data_url(url, f"image {number}"))
            case InputPart(type="input_file", file_data=str() as data, filename=filename):
                attachments.append(read_file(data, filename or f"file {number}"))
            case _:
                raise UnsupportedParameter(place, f"a part of type {part.type[:40]} is not supported or not complete")
    return "\n".join(texts), tuple(attachments)
