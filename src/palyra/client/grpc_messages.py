"""Messages of gRPC as the client's records, and the other way round.

Owns: that mapping, and errors. Does not own: calls (grpc_client, grpc_run).
"""

from typing import Any, TypeVar

import grpc
import msgspec
from google.protobuf.message import Message

from palyra.client.records import (
    LiveUpdate,
    RemoteApproval,
    RemoteCall,
    RemoteObjective,
    RemoteRun,
    RemoteSession,
    RemoteUsage,
    RequestFailed,
    RunWish,
    TapeEvent,
)
from palyra.gateway.v1 import approvals_pb2, events_pb2, runs_pb2, sessions_pb2

Shape = TypeVar("Shape", bound=msgspec.Struct)

_LIVE_TYPES = {"model": "model.delta", "reasoning": "reasoning.delta", "tool": "tool.delta", "progress": "progress"}


def start_message(wish: RunWish) -> runs_pb2.RunStart:
    schema = wish.answer_schema
    return runs_pb2.RunStart(
        text=wish.text,
        session_id=wish.session_id,
        session_key=wish.session_key,
        agent=wish.agent,
        model=wish.model,
        idempotency_key=wish.idempotency_key,
        answer_schema_json=msgspec.json.encode(schema).decode() if schema is not None else None,
        must_call=wish.must_call,
        objectives=wish.objectives,
        when_busy=named(runs_pb2.WhenBusy, f"WHEN_BUSY_{wish.when_busy}"),
    )


def answer_message(approval_id: str, decision: str, scope: str) -> approvals_pb2.ResolveApprovalRequest:
    return approvals_pb2.ResolveApprovalRequest(
        approval_id=approval_id,
        decision=named(approvals_pb2.Decision, f"DECISION_{decision}"),
        scope=named(approvals_pb2.Scope, f"SCOPE_{scope}"),
    )


def named(kind: Any, name: str) -> Any:
    """The value of that name in an enum; RequestFailed if there is none. Enums are generated, and hardly typed."""
    try:
        return kind.Value(name.upper())
    except ValueError as cause:
        raise RequestFailed("word_unknown", f"there is no {name.lower()}") from cause


def read_session(message: sessions_pb2.Session) -> RemoteSession:
    return _read(RemoteSession, message)


def read_run(message: runs_pb2.Run) -> RemoteRun:
    objectives = tuple(_read(RemoteObjective, each) for each in message.objectives)
    return _read(RemoteRun, message, usage=_read(RemoteUsage, message.usage), objectives=objectives)


def read_approval(message: approvals_pb2.Approval) -> RemoteApproval:
    calls = tuple(_read(RemoteCall, call, arguments=_arguments(call)) for call in message.calls)
    return _read(RemoteApproval, message, arguments=_arguments(message), calls=calls)


def _arguments(message: approvals_pb2.Approval | approvals_pb2.ApprovalCall) -> Any:
    return msgspec.json.decode(message.arguments_json) if message.HasField("arguments_json") else None


def _read(shape: type[Shape], message: Message, **others: object) -> Shape:
    """Makes a record of the message's fields of the same names, but for those that are given. One unset is None."""
    fields = message.DESCRIPTOR.fields_by_name
    named = [name for name in shape.__struct_fields__ if name not in others]
    unset = {name for name in named if fields[name].has_presence and not message.HasField(name)}
    return shape(**{name: None if name in unset else getattr(message, name) for name in named}, **others)


def read_event(message: events_pb2.Event) -> TapeEvent:
    return TapeEvent(
        seq=message.seq,
        position=message.position,
        session_id=message.session_id,
        run_id=message.run_id if message.HasField("run_id") else None,
        type=message.type,
        at_ms=message.at_ms,
        actor=message.actor,
        trust=message.trust,
        data=msgspec.json.decode(message.data_json, type=dict[str, object]),
        hash=message.hash,
    )


def read_frame(message: events_pb2.LiveFrame) -> LiveUpdate:
    """With the members that the same frame has over HTTP."""
    kind = message.WhichOneof("frame") or "progress"
    inner = getattr(message, kind)
    data = {field.name: getattr(inner, field.name) for field in inner.DESCRIPTOR.fields}
    return LiveUpdate(session_id=message.session_id, run_id=message.run_id, type=_LIVE_TYPES[kind], data=data)


def failure(error: grpc.aio.AioRpcError) -> RequestFailed:
    trailing = {key: str(value) for key, value in error.trailing_metadata() or ()}
    code = trailing.get("palyra-code") or error.code().name.lower()
    is_retryable = trailing.get("palyra-retryable") == "true" or error.code() is grpc.StatusCode.UNAVAILABLE
    return RequestFailed(code, error.details() or code, is_retryable=is_retryable)
