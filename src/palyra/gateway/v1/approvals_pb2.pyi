from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApprovalStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPROVAL_STATUS_UNSPECIFIED: _ClassVar[ApprovalStatus]
    APPROVAL_STATUS_PENDING: _ClassVar[ApprovalStatus]
    APPROVAL_STATUS_ALLOWED: _ClassVar[ApprovalStatus]
    APPROVAL_STATUS_DENIED: _ClassVar[ApprovalStatus]
    APPROVAL_STATUS_EXPIRED: _ClassVar[ApprovalStatus]
    APPROVAL_STATUS_CANCELLED: _ClassVar[ApprovalStatus]

class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECISION_UNSPECIFIED: _ClassVar[Decision]
    DECISION_ALLOW: _ClassVar[Decision]
    DECISION_DENY: _ClassVar[Decision]
    DECISION_RETRY: _ClassVar[Decision]
    DECISION_DONE: _ClassVar[Decision]
    DECISION_GIVE_UP: _ClassVar[Decision]

class Scope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCOPE_UNSPECIFIED: _ClassVar[Scope]
    SCOPE_ONCE: _ClassVar[Scope]
    SCOPE_SESSION: _ClassVar[Scope]
    SCOPE_TIMEBOXED: _ClassVar[Scope]
APPROVAL_STATUS_UNSPECIFIED: ApprovalStatus
APPROVAL_STATUS_PENDING: ApprovalStatus
APPROVAL_STATUS_ALLOWED: ApprovalStatus
APPROVAL_STATUS_DENIED: ApprovalStatus
APPROVAL_STATUS_EXPIRED: ApprovalStatus
APPROVAL_STATUS_CANCELLED: ApprovalStatus
DECISION_UNSPECIFIED: Decision
DECISION_ALLOW: Decision
DECISION_DENY: Decision
DECISION_RETRY: Decision
DECISION_DONE: Decision
DECISION_GIVE_UP: Decision
SCOPE_UNSPECIFIED: Scope
SCOPE_ONCE: Scope
SCOPE_SESSION: Scope
SCOPE_TIMEBOXED: Scope

class Approval(_message.Message):
    __slots__ = ("id", "kind", "run_id", "session_id", "call_id", "tool", "arguments_json", "status", "rule", "policies", "risk", "taint", "digest", "preview", "options", "created_at_ms", "expires_at_ms", "decided_by", "reason", "count", "calls", "is_cut")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    RISK_FIELD_NUMBER: _ClassVar[int]
    TAINT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    IS_CUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    run_id: str
    session_id: str
    call_id: str
    tool: str
    arguments_json: str
    status: str
    rule: str
    policies: _containers.RepeatedScalarFieldContainer[str]
    risk: str
    taint: _containers.RepeatedScalarFieldContainer[str]
    digest: str
    preview: str
    options: _containers.RepeatedCompositeFieldContainer[ApprovalOption]
    created_at_ms: int
    expires_at_ms: int
    decided_by: str
    reason: str
    count: int
    calls: _containers.RepeatedCompositeFieldContainer[ApprovalCall]
    is_cut: bool
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., run_id: _Optional[str] = ..., session_id: _Optional[str] = ..., call_id: _Optional[str] = ..., tool: _Optional[str] = ..., arguments_json: _Optional[str] = ..., status: _Optional[str] = ..., rule: _Optional[str] = ..., policies: _Optional[_Iterable[str]] = ..., risk: _Optional[str] = ..., taint: _Optional[_Iterable[str]] = ..., digest: _Optional[str] = ..., preview: _Optional[str] = ..., options: _Optional[_Iterable[_Union[ApprovalOption, _Mapping]]] = ..., created_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., decided_by: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ..., calls: _Optional[_Iterable[_Union[ApprovalCall, _Mapping]]] = ..., is_cut: _Optional[bool] = ...) -> None: ...

class ApprovalCall(_message.Message):
    __slots__ = ("call_id", "digest", "arguments_json", "preview")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    digest: str
    arguments_json: str
    preview: str
    def __init__(self, call_id: _Optional[str] = ..., digest: _Optional[str] = ..., arguments_json: _Optional[str] = ..., preview: _Optional[str] = ...) -> None: ...

class ApprovalOption(_message.Message):
    __slots__ = ("scope", "text", "decisions")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    text: str
    decisions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, scope: _Optional[str] = ..., text: _Optional[str] = ..., decisions: _Optional[_Iterable[str]] = ...) -> None: ...

class ListApprovalsRequest(_message.Message):
    __slots__ = ("status", "everyone", "after", "limit")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EVERYONE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    status: ApprovalStatus
    everyone: bool
    after: str
    limit: int
    def __init__(self, status: _Optional[_Union[ApprovalStatus, str]] = ..., everyone: _Optional[bool] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListApprovalsResponse(_message.Message):
    __slots__ = ("approvals", "next_after")
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    approvals: _containers.RepeatedCompositeFieldContainer[Approval]
    next_after: str
    def __init__(self, approvals: _Optional[_Iterable[_Union[Approval, _Mapping]]] = ..., next_after: _Optional[str] = ...) -> None: ...

class ResolveApprovalRequest(_message.Message):
    __slots__ = ("approval_id", "decision", "scope", "option", "ttl_s", "reason", "end_run")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    END_RUN_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    decision: Decision
    scope: Scope
    option: int
    ttl_s: int
    reason: str
    end_run: bool
    def __init__(self, approval_id: _Optional[str] = ..., decision: _Optional[_Union[Decision, str]] = ..., scope: _Optional[_Union[Scope, str]] = ..., option: _Optional[int] = ..., ttl_s: _Optional[int] = ..., reason: _Optional[str] = ..., end_run: _Optional[bool] = ...) -> None: ...

class ResolveApprovalResponse(_message.Message):
    __slots__ = ("approval",)
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping]] = ...) -> None: ...

class ReadApprovalRequest(_message.Message):
    __slots__ = ("approval_id", "offset")
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    approval_id: str
    offset: int
    def __init__(self, approval_id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ReadApprovalResponse(_message.Message):
    __slots__ = ("text", "total_chars", "next_offset")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CHARS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    text: str
    total_chars: int
    next_offset: int
    def __init__(self, text: _Optional[str] = ..., total_chars: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...
