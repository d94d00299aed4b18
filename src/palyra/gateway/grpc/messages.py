"""Messages in and out: what clients send becomes the records of HTTP's bodies, and our records become messages.

Owns: the mapping between generated messages and records.
Does not own: limits of texts and names (gateway.routes.bodies): a message is held to the same ones as a JSON body.
Invariant: what a client sends is parsed once, here, and fails as Invalid.
"""

import base64
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import DecodeError, Message

from palyra.core.errors import Invalid
from palyra.core.events import Event
from palyra.core.projections.rows import SessionRow
from palyra.engine.api.requests import (
    ATTACHMENTS_MAX,
    ApprovalAnswer,
    ApprovalRecord,
    AskedCall,
    RunRecord,
    RunRequest,
)
from palyra.gateway.access.caller import Caller
from palyra.gateway.decode_errors import decode_error_words
from palyra.gateway.grpc.settings import PAGE_BYTES_MAX
from palyra.gateway.routes.approvals import AnswerBody, make_answer
from palyra.gateway.routes.runs import PATHS_MAX, RunBody, make_run_request
from palyra.gateway.v1 import approvals_pb2, events_pb2, runs_pb2, sessions_pb2

ORIGIN = "grpc"  # Of runs started here. A person can be asked behind it.

SentMessage = TypeVar("SentMessage", bound=Message)
Shape = TypeVar("Shape", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()


def parse(kind: type[SentMessage], body: bytes) -> SentMessage:
    try:
        return kind.FromString(body)
    except DecodeError as cause:
        raise Invalid("message_malformed", f"these bytes are no {kind.DESCRIPTOR.name}") from cause


def read(message: Message, shape: type[Shape], **members: object) -> Shape:
    """The message as a record. Members that are given replace those of the message; None leaves one out."""
    values = {**_values_of(message), **members}
    try:
        return msgspec.convert({name: value for name, value in values.items() if value is not None}, shape)
    except msgspec.ValidationError as cause:
        raise Invalid("message_invalid", decode_error_words(cause, "the message")) from cause


def read_run(start: runs_pb2.RunStart, caller: Caller) -> RunRequest:
    # One more than a run takes is enough to refuse them all.
    attachments = [_attachment(item) for item in islice(start.attachments, ATTACHMENTS_MAX + 1)] or None
    schema = _read_schema(start.answer_schema_json) if start.HasField("answer_schema_json") else None
    body = read(start, RunBody, attachments=attachments, answer_schema=schema, answer_schema_json=None)
    return make_run_request(body, ORIGIN, caller)


def read_answer(message: approvals_pb2.ResolveApprovalRequest, caller: Caller, *, may_trust: bool) -> ApprovalAnswer:
    return make_answer(read(message, AnswerBody, approval_id=None), caller, may_trust=may_trust)


def run_message(record: RunRecord) -> runs_pb2.Run:
    error = record.error
    return _copy(
        runs_pb2.Run,
        record,
        error=runs_pb2.RunFailure(code=error.code, message=error.message) if error is not None else None,
        usage=_copy(runs_pb2.RunUsage, record.usage),
        objectives=[_copy(runs_pb2.RunObjective, each) for each in record.objectives],
    )


def session_message(row: SessionRow) -> sessions_pb2.Session:
    return _copy(sessions_pb2.Session, row, head_seq=row.seq)


def approval_message(card: ApprovalRecord) -> approvals_pb2.Approval:
    options = [
        approvals_pb2.ApprovalOption(
            scope=option.scope.value, text=option.text, decisions=[decision.value for decision in option.decisions]
        )
        for option in card.options
    ]
    calls = fitting([_call_message(call) for call in card.calls])
    return _copy(approvals_pb2.Approval, card, arguments_json=_json(card.arguments), options=options, calls=calls)


def _call_message(call: AskedCall) -> approvals_pb2.ApprovalCall:
    return _copy(approvals_pb2.ApprovalCall, call, arguments_json=_json(call.arguments))


def _json(value: object) -> str | None:
    return None if value is None else _encoder.encode(value).decode()


def _copy(kind: type[SentMessage], record: object, **others: object) -> SentMessage:
    """Makes a message whose fields are the record's members of the same names, but for those that are given."""
    names = [field.name for field in kind.DESCRIPTOR.fields if field.name not in others]
    return kind(**{name: getattr(record, name) for name in names}, **others)


def event_message(event: Event) -> events_pb2.Event:
    return events_pb2.Event(
        seq=event.seq,
        position=event.position,
        session_id=event.stream,
        run_id=event.run_id,
        type=event.type,
        at_ms=event.at_ms,
        actor=event.actor,
        trust=event.trust.value,
        data_json=_encoder.encode(event.data).decode(),
        hash=event.hash,
    )


def fitting(messages: Sequence[SentMessage]) -> list[SentMessage]:
    """The first messages, as many as one answer may carry. At least one."""
    kept: list[SentMessage] = []
    size = 0
    for message in messages:
        size += message.ByteSize()
        if kept and size > PAGE_BYTES_MAX:
            break
        kept.append(message)
    return kept


def _attachment(item: runs_pb2.Attachment) -> dict[str, object]:
    members: dict[str, object] = {"name": item.name, "media_type": item.media_type}
    for name in ("trust", "source"):
        if item.HasField(name):
            members[name] = getattr(item, name)
    members["paths"] = list(islice(item.paths, PATHS_MAX + 1))  # One more than fits is enough to refuse them all.
    match item.WhichOneof("content"):
        case "artifact_id":
            members["artifact_id"] = item.artifact_id
        case "data":
            members["data_base64"] = base64.b64encode(item.data).decode("ascii")
        case _:
            pass
    return members


def _read_schema(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as cause:
        raise Invalid("answer_schema_invalid", "answer_schema_json is no JSON") from cause


def _values_of(message: Message) -> dict[str, object]:
    return dict(_plain_fields(message))


def _plain_fields(message: Message) -> Iterator[tuple[str, object]]:
    """Fields that are set and hold plain values, by name. A value of an enum is its word."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            continue
        if field.enum_type is not None:
            yield field.name, _word(field.enum_type, value)
        else:
            yield field.name, list(value) if field.is_repeated else value


def _word(kind: EnumDescriptor, number: int) -> str:
    """`WHEN_BUSY_QUEUE` of the enum WhenBusy is `queue`. A number without a name is told as it is, and fits nothing."""
    named = kind.values_by_number.get(number)
    if named is None:
        return str(number)
    return str(named.name.removeprefix(_prefix_of(kind))).lower()


def _prefix_of(kind: EnumDescriptor) -> str:
    """All values of an enum begin with its own name; the first ends with UNSPECIFIED."""
    return str(kind.values[0].name.removesuffix("UNSPECIFIED"))
