"""The route of chat completions.

Owns: the wire form of a completion and of its chunks. Does not own: reading the request (chat_messages), the run
behind it (exchange, segment).
"""

import msgspec
from starlette.types import ASGIApp

from palyra.engine.hub import Frame, LiveFrame
from palyra.gateway.http.responses import JSON_TYPE, answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute
from palyra.gateway.http.sse import EVENT_STREAM_TYPE
from palyra.gateway.openai.answers import (
    ANSWER_TIMEOUT_S,
    BODY_BYTES_MAX,
    exchange_of,
    headers_of,
    key_of,
    reserved,
    session_of,
    streamed,
    whole,
)
from palyra.gateway.openai.chat_messages import (
    ChatBody,
    ChatToolChoice,
    chosen_tools,
    read_chat_tools,
    read_conversation,
    schema_of,
)
from palyra.gateway.openai.errors import UnsupportedParameter, failure_of, shape_error
from palyra.gateway.openai.exchange import Segment, Wish
from palyra.gateway.openai.segment import TEXT, SegmentEnd
from palyra.ports.tokens import Role

_encode = msgspec.json.Encoder().encode


class ChatFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ChatCallOut(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    function: ChatFunction
    type: str = "function"


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    content: str | None
    role: str
    refusal: str | None = None
    tool_calls: tuple[ChatCallOut, ...] | None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    message: ChatAnswer
    finish_reason: str
    logprobs: None = None


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class ChatUsage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class RunMark(msgspec.Struct, frozen=True, kw_only=True):
    """Where to find the run behind an answer, and what it waits for."""

    run_id: str
    session_id: str
    approval_ids: tuple[str, ...] = ()


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: ChatUsage
    palyra: RunMark
    object: str = "chat.completion"


async def complete(call: HttpCall[Empty, ChatBody]) -> ASGIApp:
    call.services.require_open()
    body = call.body
    created = call.services.credentials.clock.now_ms() // 1000
    with reserved(call) as slot:
        segment = await exchange_of(call).begin(_wish(call))
        if body.stream:
            wants_usage = body.stream_options is not None and body.stream_options.include_usage
            chunks = ChatChunks(segment, body.model, created, wants_usage=wants_usage)
            return streamed(call, slot, segment, chunks.encode, chunks.opening())
        end = await whole(call, slot, segment)
    return answer_json(_completion(segment, body.model, created, end), 200, headers_of(segment))


def _wish(call: HttpCall[Empty, ChatBody]) -> Wish:
    body = call.body
    if body.n not in (None, 1):
        raise UnsupportedParameter("n", "one answer is given to a request; send several requests for more")
    choice = body.tool_choice
    named = choice.function.name if isinstance(choice, ChatToolChoice) and choice.function is not None else None
    tools, must_call, hint = chosen_tools(
        read_chat_tools(body.tools or ()), choice if isinstance(choice, str) else None, named
    )
    return Wish(
        model=body.model,
        conversation=read_conversation(body.messages),
        session=session_of(call, body.metadata, body.user),
        tools=tools,
        must_call=must_call,
        hint=hint,
        answer_schema=schema_of(body.response_format),
        output_tokens_max=body.max_completion_tokens or body.max_tokens,
        idempotency_key=key_of(call),
    )


def _id_of(segment: Segment) -> str:
    return f"chatcmpl-{segment.run_id}" + (f"-{segment.after_seq}" if segment.after_seq else "")


def _completion(segment: Segment, model: str, created: int, end: SegmentEnd) -> ChatCompletion:
    content = "\n\n".join(text for text in (end.text, end.notice) if text)
    message = ChatAnswer(
        role="assistant",
        content=content or (None if end.calls else ""),
        tool_calls=tuple(
            ChatCallOut(id=call.id, function=ChatFunction(call.name, call.arguments)) for call in end.calls
        )
        or None,
    )
    return ChatCompletion(
        id=_id_of(segment),
        created=created,
        model=model,
        choices=(ChatChoice(index=0, message=message, finish_reason=end.finish),),
        usage=_usage(end),
        palyra=_mark(segment, end),
    )


def _usage(end: SegmentEnd) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=end.input_tokens,
        completion_tokens=end.output_tokens,
        total_tokens=end.input_tokens + end.output_tokens,
        prompt_tokens_details=PromptDetails(end.cached_tokens),
    )


def _mark(segment: Segment, end: SegmentEnd) -> RunMark:
    return RunMark(run_id=segment.run_id, session_id=segment.session_id, approval_ids=end.approval_ids)


class ChatChunks:
    """The chunks of one completion as bytes. What is the same in all of them is made once."""

    def __init__(self, segment: Segment, model: str, created: int, *, wants_usage: bool) -> None:
        self._segment = segment
        self._wants_usage = wants_usage
        self._has_text = False
        head = {"id": _id_of(segment), "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = b"data: " + _encode(head)[:-1]
        self._text_head = self._head + b',"choices":[{"index":0,"delta":{"content":'
        self._text_tail = b'},"logprobs":null,"finish_reason":null}]}\n\n'

    def opening(self) -> bytes:
        return self._choice(b'{"role":"assistant","content":"","refusal":null}', b"null")

    def encode(self, frame: Frame) -> bytes:
        if not isinstance(frame, LiveFrame):
            return b""
        if frame.type == TEXT:
            self._has_text = True
            return self._text_head + _encode(frame.data["text"]) + self._text_tail
        end = frame.data["end"]
        return self._ending(end) if isinstance(end, SegmentEnd) else b""

    def _ending(self, end: SegmentEnd) -> bytes:
        if end.error is not None:
            error = failure_of(end.error)
            return b"data: %b\n\ndata: [DONE]\n\n" % _encode(shape_error(error, 500))
        parts: list[bytes] = []
        rest = end.text if not self._has_text else ""
        notice = f"\n\n{end.notice}" if end.notice and (self._has_text or rest) else end.notice
        if rest or notice:
            parts.append(self._text_head + _encode(rest + notice) + self._text_tail)
        for index, call in enumerate(end.calls):
            out = {"index": index, "id": call.id, "type": "function"}
            function = {"name": call.name, "arguments": call.arguments}
            parts.append(self._choice(_encode({"tool_calls": [out | {"function": function}]}), b"null"))
        parts.append(self._choice(b"{}", _encode(end.finish), _encode(_mark(self._segment, end))))
        if self._wants_usage:
            parts.append(self._head + b',"choices":[],"usage":' + _encode(_usage(end)) + b"}\n\n")
        parts.append(b"data: [DONE]\n\n")
        return b"".join(parts)

    def _choice(self, delta: bytes, finish: bytes, mark: bytes = b"") -> bytes:
        extra = b',"palyra":' + mark if mark else b""
        return b'%b,"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]%b}\n\n' % (
            self._head,
            delta,
            finish,
            extra,
        )


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("POST", "/v1/chat/completions", "OpenAI-compatible: complete a chat; with stream the answer is chunks",
              complete, action="runs.start", answer=ChatCompletion, role=Role.USER,
              media_types=(JSON_TYPE, EVENT_STREAM_TYPE), errors=(404, 409), timeout_s=ANSWER_TIMEOUT_S,
              body_bytes_max=BODY_BYTES_MAX),
)  # fmt: skip
