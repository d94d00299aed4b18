"""Messages of gRPC as the client's records, and the other way round.

Owns: that mapping, and errors. Does not own: calls (grpc_client, grpc_run).
"""

from typing import Any

import grpc
import msgspec

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
    return RemoteSession(
        id=message.id,
        owner=message.owner,
        agent=message.agent,
        key=message.key if message.HasField("key") else None,
        label=message.label if message.HasField("label") else None,
        created_at_ms=message.created_at_ms,
        updated_at_ms=message.updated_at_ms,
    )


def read_run(message: runs_pb2.Run) -> RemoteRun:
    usage = message.usage
    return RemoteRun(
        id=message.id,
        session_id=message.session_id,
        state=message.state,
        reason=message.reason if message.HasField("reason") else None,
        answer=message.answer if message.HasField("answer") else None,
        usage=RemoteUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd if usage.HasField("cost_usd") else None,
        ),
        objectives=tuple(
            RemoteObjective(objective=each.objective, state=each.state, note=each.note) for each in message.objectives
        ),
        created_at_ms=message.created_at_ms,
        updated_at_ms=message.updated_at_ms,
    )


def read_approval(message: approvals_pb2.Approval) -> RemoteApproval:
    has = message.HasField
    return RemoteApproval(
        id=message.id,
        kind=message.kind,
        run_id=message.run_id if has("run_id") else None,
        session_id=message.session_id,
        call_id=message.call_id if has("call_id") else None,
        tool=message.tool if has("tool") else None,
        arguments=msgspec.json.decode(message.arguments_json) if has("arguments_json") else None,
        status=message.status,
        rule=message.rule,
        risk=message.risk,
        preview=message.preview if has("preview") else None,
        created_at_ms=message.created_at_ms,
        expires_at_ms=message.expires_at_ms if has("expires_at_ms") else None,
        decided_by=message.decided_by if has("decided_by") else None,
        calls=tuple(map(_read_call, message.calls)),
    )


def _read_call(message: approvals_pb2.ApprovalCall) -> RemoteCall:
    has = message.HasField
    return RemoteCall(
        call_id=message.call_id,
        arguments=msgspec.json.decode(message.arguments_json) if has("arguments_json") else None,
        preview=message.preview if has("preview") else None,
    )


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
