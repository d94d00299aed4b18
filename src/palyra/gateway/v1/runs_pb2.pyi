from palyra.gateway.v1 import approvals_pb2 as _approvals_pb2
from palyra.gateway.v1 import events_pb2 as _events_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WhenBusy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WHEN_BUSY_UNSPECIFIED: _ClassVar[WhenBusy]
    WHEN_BUSY_QUEUE: _ClassVar[WhenBusy]
    WHEN_BUSY_STEER: _ClassVar[WhenBusy]
    WHEN_BUSY_REJECT: _ClassVar[WhenBusy]
WHEN_BUSY_UNSPECIFIED: WhenBusy
WHEN_BUSY_QUEUE: WhenBusy
WHEN_BUSY_STEER: WhenBusy
WHEN_BUSY_REJECT: WhenBusy

class Run(_message.Message):
    __slots__ = ("id", "session_id", "state", "reason", "answer", "error", "usage", "agent", "origin", "principal", "created_at_ms", "updated_at_ms", "objectives")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    id: str
    session_id: str
    state: str
    reason: str
    answer: str
    error: RunFailure
    usage: RunUsage
    agent: str
    origin: str
    principal: str
    created_at_ms: int
    updated_at_ms: int
    objectives: _containers.RepeatedCompositeFieldContainer[RunObjective]
    def __init__(self, id: _Optional[str] = ..., session_id: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., answer: _Optional[str] = ..., error: _Optional[_Union[RunFailure, _Mapping]] = ..., usage: _Optional[_Union[RunUsage, _Mapping]] = ..., agent: _Optional[str] = ..., origin: _Optional[str] = ..., principal: _Optional[str] = ..., created_at_ms: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., objectives: _Optional[_Iterable[_Union[RunObjective, _Mapping]]] = ...) -> None: ...

class RunObjective(_message.Message):
    __slots__ = ("objective", "state", "note")
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    objective: str
    state: str
    note: str
    def __init__(self, objective: _Optional[str] = ..., state: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class RunFailure(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class RunUsage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cost_usd")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_USD_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cost_usd: float
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cost_usd: _Optional[float] = ...) -> None: ...

class Attachment(_message.Message):
    __slots__ = ("name", "media_type", "artifact_id", "data", "trust", "source", "paths")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    name: str
    media_type: str
    artifact_id: str
    data: bytes
    trust: str
    source: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., media_type: _Optional[str] = ..., artifact_id: _Optional[str] = ..., data: _Optional[bytes] = ..., trust: _Optional[str] = ..., source: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class RunStart(_message.Message):
    __slots__ = ("text", "session_id", "session_key", "attachments", "agent", "model", "idempotency_key", "answer_schema_json", "must_call", "when_busy", "objectives", "typed")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    MUST_CALL_FIELD_NUMBER: _ClassVar[int]
    WHEN_BUSY_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    TYPED_FIELD_NUMBER: _ClassVar[int]
    text: str
    session_id: str
    session_key: str
    attachments: _containers.RepeatedCompositeFieldContainer[Attachment]
    agent: str
    model: str
    idempotency_key: str
    answer_schema_json: str
    must_call: _containers.RepeatedScalarFieldContainer[str]
    when_busy: WhenBusy
    objectives: _containers.RepeatedScalarFieldContainer[str]
    typed: str
    def __init__(self, text: _Optional[str] = ..., session_id: _Optional[str] = ..., session_key: _Optional[str] = ..., attachments: _Optional[_Iterable[_Union[Attachment, _Mapping]]] = ..., agent: _Optional[str] = ..., model: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., answer_schema_json: _Optional[str] = ..., must_call: _Optional[_Iterable[str]] = ..., when_busy: _Optional[_Union[WhenBusy, str]] = ..., objectives: _Optional[_Iterable[str]] = ..., typed: _Optional[str] = ...) -> None: ...

class RunFollow(_message.Message):
    __slots__ = ("run_id", "after_seq")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_seq: int
    def __init__(self, run_id: _Optional[str] = ..., after_seq: _Optional[int] = ...) -> None: ...

class RunInput(_message.Message):
    __slots__ = ("text", "typed")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TYPED_FIELD_NUMBER: _ClassVar[int]
    text: str
    typed: str
    def __init__(self, text: _Optional[str] = ..., typed: _Optional[str] = ...) -> None: ...

class RunCancel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunStreamRequest(_message.Message):
    __slots__ = ("request_id", "start", "follow", "input", "answer", "cancel")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    start: RunStart
    follow: RunFollow
    input: RunInput
    answer: _approvals_pb2.ResolveApprovalRequest
    cancel: RunCancel
    def __init__(self, request_id: _Optional[int] = ..., start: _Optional[_Union[RunStart, _Mapping]] = ..., follow: _Optional[_Union[RunFollow, _Mapping]] = ..., input: _Optional[_Union[RunInput, _Mapping]] = ..., answer: _Optional[_Union[_approvals_pb2.ResolveApprovalRequest, _Mapping]] = ..., cancel: _Optional[_Union[RunCancel, _Mapping]] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ("run_id", "session_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    session_id: str
    def __init__(self, run_id: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class RequestAccepted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequestRefused(_message.Message):
    __slots__ = ("code", "message", "retryable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retryable: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class RunStreamResponse(_message.Message):
    __slots__ = ("started", "event", "frame", "accepted", "refused", "request_id")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    started: RunStarted
    event: _events_pb2.Event
    frame: _events_pb2.LiveFrame
    accepted: RequestAccepted
    refused: RequestRefused
    request_id: int
    def __init__(self, started: _Optional[_Union[RunStarted, _Mapping]] = ..., event: _Optional[_Union[_events_pb2.Event, _Mapping]] = ..., frame: _Optional[_Union[_events_pb2.LiveFrame, _Mapping]] = ..., accepted: _Optional[_Union[RequestAccepted, _Mapping]] = ..., refused: _Optional[_Union[RequestRefused, _Mapping]] = ..., request_id: _Optional[int] = ...) -> None: ...

class RouteMessageRequest(_message.Message):
    __slots__ = ("start",)
    START_FIELD_NUMBER: _ClassVar[int]
    start: RunStart
    def __init__(self, start: _Optional[_Union[RunStart, _Mapping]] = ...) -> None: ...

class RouteMessageResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...
