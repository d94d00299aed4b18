"""Events: immutable facts on a tape, as a closed union of types, a draft and a recorded event.

Does not own: hashing (core.chain).
"""

import msgspec

from palyra.core.events.base import ErasedData, EventData, JsonObject
from palyra.core.events.model import (
    ContextAssembled,
    DocumentRead,
    MemoryRecalled,
    ModelFailed,
    ModelOutput,
    ModelRequested,
    ReferenceResolved,
    RoutePlanned,
    UsageRecorded,
)
from palyra.core.events.routine import (
    RoutineChanged,
    RoutineCreated,
    RoutineFired,
    RoutineRemoved,
    RoutineSkipped,
)
from palyra.core.events.run import (
    AnswerRejected,
    CancelRequested,
    GuardTripped,
    MessageAssistant,
    MessageUser,
    RunAccepted,
    RunCancelled,
    RunDone,
    RunFailed,
    RunResumed,
    RunStarted,
    RunWaiting,
)
from palyra.core.events.session import (
    DocumentChanged,
    PinAdded,
    PinRemoved,
    SessionBranched,
    SessionCheckpointed,
    SessionCompacted,
    SessionCreated,
    SessionLabelled,
    SessionReset,
    SessionRestored,
    SourceDistrusted,
    SourceTrusted,
)
from palyra.core.events.system import (
    AdminActed,
    CheckpointSigned,
    Erased,
    IncidentActed,
    IncidentOpened,
    IncidentResolved,
)
from palyra.core.events.tool import (
    ApprovalRequested,
    ApprovalResolved,
    GrantRevoked,
    ToolFinished,
    ToolHeld,
    ToolJudged,
    ToolProposed,
    ToolStarted,
    ToolUncertain,
)
from palyra.core.ids import Principal, RunId, StreamId
from palyra.core.trust import Trust

SessionData = (
    SessionCreated
    | SessionBranched
    | SessionRestored
    | SessionReset
    | SessionLabelled
    | SessionCompacted
    | SourceTrusted
    | SourceDistrusted
    | SessionCheckpointed
    | PinAdded
    | PinRemoved
    | DocumentChanged
)
RunData = (
    RunAccepted
    | RunStarted
    | RunWaiting
    | RunResumed
    | RunDone
    | RunFailed
    | RunCancelled
    | CancelRequested
    | MessageUser
    | MessageAssistant
    | GuardTripped
    | AnswerRejected
)
ModelData = (
    RoutePlanned
    | ContextAssembled
    | MemoryRecalled
    | ReferenceResolved
    | DocumentRead
    | ModelRequested
    | ModelOutput
    | ModelFailed
    | UsageRecorded
)
ToolData = (
    ToolProposed
    | ToolJudged
    | ToolStarted
    | ToolHeld
    | ToolFinished
    | ToolUncertain
    | ApprovalRequested
    | ApprovalResolved
    | GrantRevoked
)
IncidentData = IncidentOpened | IncidentActed | IncidentResolved
RoutineData = RoutineCreated | RoutineChanged | RoutineRemoved | RoutineFired | RoutineSkipped
SystemData = CheckpointSigned | Erased | AdminActed | IncidentData | RoutineData
Data = SessionData | RunData | ModelData | ToolData | SystemData

DATA_TYPES: dict[str, type[EventData]] = {
    data_type.TYPE: data_type
    for union in (SessionData, RunData, ModelData, ToolData, SystemData)
    for data_type in union.__args__
}

SYSTEM_TYPES = frozenset(data_type.TYPE for data_type in SystemData.__args__)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it has a seq on a tape."""

    data: Data
    actor: Principal
    trust: Trust
    at_ms: int
    run_id: RunId | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded fact. `data` is ErasedData when its text was erased; `type` stays what it was."""

    seq: int
    position: int
    stream: StreamId
    run_id: RunId | None
    type: str
    at_ms: int
    actor: Principal
    trust: Trust
    data: Data | ErasedData
    hash: str
    salt: str | None
    digest: str


__all__ = [
    "DATA_TYPES",
    "SYSTEM_TYPES",
    "Data",
    "Draft",
    "ErasedData",
    "Event",
    "EventData",
    "JsonObject",
    "RoutineData",
]
