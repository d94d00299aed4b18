"""Responses and their streaming events, as the Responses API has them.

Owns: the wire form of a response, its output items and its events. Does not own: the run behind it (exchange, segment).
"""

import msgspec

from palyra.engine.hub import Frame, LiveFrame
from palyra.gateway.openai.chat import RunMark
from palyra.gateway.openai.errors import OpenaiError, failure_of, shape_error
from palyra.gateway.openai.exchange import Segment
from palyra.gateway.openai.segment import TEXT, SegmentEnd

_encode = msgspec.json.Encoder().encode


class ResponseText(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    type: str = "output_text"
    annotations: tuple[str, ...] = ()


class OutputItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of the assistant, or a call that the caller executes."""

    id: str
    type: str
    status: str
    role: str | None = None
    content: tuple[ResponseText, ...] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class InputDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class OutputDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails = OutputDetails()


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: str


class ResponseRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    created_at: int
    model: str
    status: str
    output: tuple[OutputItem, ...]
    usage: ResponseUsage | None
    error: OpenaiError | None
    incomplete_details: IncompleteDetails | None
    palyra: RunMark
    object: str = "response"
    instructions: str | None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    tool_choice: str = "auto"
    tools: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    previous_response_id: str | None = None


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same in every version of one response."""

    segment: Segment
    model: str
    created_at: int
    previous_response_id: str | None = None
    metadata: dict[str, str] = {}

    @property
    def id(self) -> str:
        after_seq = self.segment.after_seq
        return f"resp_{self.segment.run_id}" + (f"_{after_seq}" if after_seq else "")


def begun(head: ResponseHead, status: str = "in_progress") -> ResponseRecord:
    return _record(head, status, (), None)


def ended(head: ResponseHead, end: SegmentEnd) -> ResponseRecord:
    if end.error is not None:
        return _record(head, "failed", (), end)
    return _record(head, _status(end), items_of(head, end), end)


def items_of(head: ResponseHead, end: SegmentEnd) -> tuple[OutputItem, ...]:
    text = "\n\n".join(part for part in (end.text, end.notice) if part)
    messages = (message_item(head, text, "completed"),) if text or not end.calls else ()
    return (*messages, *_calls_of(head, end))


def message_item(head: ResponseHead, text: str | None, status: str) -> OutputItem:
    """None as text is a message that has only begun."""
    content = () if text is None else (ResponseText(text=text),)
    return OutputItem(
        id=f"msg_{head.id.removeprefix('resp_')}", type="message", status=status, role="assistant", content=content
    )


def _calls_of(head: ResponseHead, end: SegmentEnd) -> tuple[OutputItem, ...]:
    return tuple(
        OutputItem(
            id=f"fc_{call.id.removeprefix('call_')}",
            type="function_call",
            status="completed",
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
        )
        for call in end.calls
    )


def _status(end: SegmentEnd) -> str:
    return "incomplete" if end.notice or end.finish in ("length", "content_filter") else "completed"


def _record(head: ResponseHead, status: str, output: tuple[OutputItem, ...], end: SegmentEnd | None) -> ResponseRecord:
    failed = shape_error(failure_of(end.error), 500).error if end is not None and end.error is not None else None
    segment = head.segment
    return ResponseRecord(
        id=head.id,
        created_at=head.created_at,
        model=head.model,
        status=status,
        output=output,
        usage=_usage(end) if end is not None else None,
        error=failed,
        incomplete_details=IncompleteDetails(_why(end)) if end is not None and status == "incomplete" else None,
        palyra=RunMark(
            run_id=segment.run_id,
            session_id=segment.session_id,
            approval_ids=end.approval_ids if end is not None else (),
        ),
        previous_response_id=head.previous_response_id,
        metadata=head.metadata,
    )


def _why(end: SegmentEnd) -> str:
    if end.notice:
        return "approval_required"
    return "max_output_tokens" if end.finish == "length" else "content_filter"


def _usage(end: SegmentEnd) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=end.input_tokens,
        output_tokens=end.output_tokens,
        total_tokens=end.input_tokens + end.output_tokens,
        input_tokens_details=InputDetails(end.cached_tokens),
    )


class ResponseEvents:
    """The events of one response as bytes, numbered from 0."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._count = 0
        self._texts: list[str] = []
        self._item_id = message_item(head, None, "in_progress").id

    def opening(self) -> bytes:
        record = begun(self._head)
        return self._event("response.created", response=record) + self._event("response.in_progress", response=record)

    def encode(self, frame: Frame) -> bytes:
        if not isinstance(frame, LiveFrame):
            return b""
        if frame.type == TEXT:
            return self._text(str(frame.data["text"]))
        end = frame.data["end"]
        return self._ending(end) if isinstance(end, SegmentEnd) else b""

    def _text(self, text: str) -> bytes:
        begin = self._begin_message() if not self._texts else b""
        self._texts.append(text)
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return begin + self._event("response.output_text.delta", **place, delta=text, logprobs=[])

    def _begin_message(self) -> bytes:
        item = message_item(self._head, None, "in_progress")
        return self._event("response.output_item.added", output_index=0, item=item) + self._event(
            "response.content_part.added",
            item_id=self._item_id,
            output_index=0,
            content_index=0,
            part=ResponseText(text=""),
        )

    def _ending(self, end: SegmentEnd) -> bytes:
        if end.error is not None:
            return self._event("response.failed", response=ended(self._head, end))
        parts: list[bytes] = []
        rest = "" if self._texts else end.text
        notice = f"\n\n{end.notice}" if end.notice and (self._texts or rest) else end.notice
        if rest or notice or not (self._texts or end.calls):
            parts.append(self._text(rest + notice))
        text = "".join(self._texts)
        items = [] if not self._texts else [message_item(self._head, text, "completed")]
        parts += [self._end_message(items[0], text)] if items else []
        for item in _calls_of(self._head, end):
            parts.append(self._call(item, len(items)))
            items.append(item)
        record = _record(self._head, _status(end), tuple(items), end)
        parts.append(self._event(f"response.{record.status}", response=record))
        return b"".join(parts)

    def _end_message(self, item: OutputItem, text: str) -> bytes:
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return (
            self._event("response.output_text.done", **place, text=text, logprobs=[])
            + self._event("response.content_part.done", **place, part=ResponseText(text=text))
            + self._event("response.output_item.done", output_index=0, item=item)
        )

    def _call(self, item: OutputItem, index: int) -> bytes:
        started = msgspec.structs.replace(item, arguments="", status="in_progress")
        place = {"item_id": item.id, "output_index": index}
        return (
            self._event("response.output_item.added", output_index=index, item=started)
            + self._event("response.function_call_arguments.delta", **place, delta=item.arguments)
            + self._event("response.function_call_arguments.done", **place, arguments=item.arguments, name=item.name)
            + self._event("response.output_item.done", output_index=index, item=item)
        )

    def _event(self, type_name: str, **members: object) -> bytes:
        data = {"type": type_name, "sequence_number": self._count, **members}
        self._count += 1
        return b"event: %b\ndata: %b\n\n" % (type_name.encode(), _encode(data))
