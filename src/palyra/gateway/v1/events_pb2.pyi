from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("seq", "position", "session_id", "run_id", "type", "at_ms", "actor", "trust", "data_json", "hash")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    seq: int
    position: int
    session_id: str
    run_id: str
    type: str
    at_ms: int
    actor: str
    trust: str
    data_json: str
    hash: str
    def __init__(self, seq: _Optional[int] = ..., position: _Optional[int] = ..., session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., type: _Optional[str] = ..., at_ms: _Optional[int] = ..., actor: _Optional[str] = ..., trust: _Optional[str] = ..., data_json: _Optional[str] = ..., hash: _Optional[str] = ...) -> None: ...

class LiveFrame(_message.Message):
    __slots__ = ("session_id", "run_id", "model", "reasoning", "tool", "progress")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    run_id: str
    model: TextDelta
    reasoning: TextDelta
    tool: ToolDelta
    progress: Progress
    def __init__(self, session_id: _Optional[str] = ..., run_id: _Optional[str] = ..., model: _Optional[_Union[TextDelta, _Mapping]] = ..., reasoning: _Optional[_Union[TextDelta, _Mapping]] = ..., tool: _Optional[_Union[ToolDelta, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("turn", "offset", "text")
    TURN_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    turn: int
    offset: int
    text: str
    def __init__(self, turn: _Optional[int] = ..., offset: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class ToolDelta(_message.Message):
    __slots__ = ("call_id", "stream", "offset", "text")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    stream: str
    offset: int
    text: str
    def __init__(self, call_id: _Optional[str] = ..., stream: _Optional[str] = ..., offset: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("phase", "message")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    phase: str
    message: str
    def __init__(self, phase: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ReadTapeRequest(_message.Message):
    __slots__ = ("session_id", "after", "limit")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    after: int
    limit: int
    def __init__(self, session_id: _Optional[str] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ReadTapeResponse(_message.Message):
    __slots__ = ("events", "next_after")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    next_after: int
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...
