"""Events: immutable facts on a tape, as a closed union of types, a draft and a recorded event.

Does not own: hashing (core.chain).
"""

from collections.abc import Iterable

import msgspec

from palyra.core.events.account_links import (
    PairingCarriedOver,
    PairingIssued,
    PairingLinked,
    PairingLocked,
    PairingRevoked,
)
from palyra.core.events.base import ErasedData, EventData, JsonObject
from palyra.core.events.draft import (
    ChangesKeeping,
    ChangesKept,
    ChangesUndoing,
    ChangesUndone,
    DraftApplying,
    DraftConflicted,
    DraftJudged,
    ToolDrafted,
)
from palyra.core.events.learning import CandidateApplied, CandidateDecided, CandidateProposed
from palyra.core.events.memory import MemoryForgotten, MemoryStored, MemorySuperseded
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
from palyra.core.events.routine import RoutineChanged, RoutineCreated, RoutineFired, RoutineRemoved, RoutineSkipped
from palyra.core.events.run import (
    AnswerRejected,
    CancelRequested,
    GuardTripped,
    MessageAssistant,
    MessageGiven,
    MessageUser,
    ObjectivesChecked,
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
    LearningApplied,
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
    SessionCreated | SessionBranched | SessionRestored | SessionReset | SessionLabelled | SessionCompacted
    | SourceTrusted | SourceDistrusted | SessionCheckpointed | PinAdded | PinRemoved | DocumentChanged
    | ChangesUndoing | ChangesUndone | ChangesKeeping | ChangesKept | LearningApplied
)  # fmt: skip
RunData = (
    RunAccepted | RunStarted | RunWaiting | RunResumed | RunDone | RunFailed | RunCancelled | CancelRequested
    | MessageUser | MessageGiven | MessageAssistant | GuardTripped | ObjectivesChecked | AnswerRejected
)  # fmt: skip
ModelData = (
    RoutePlanned | ContextAssembled | MemoryRecalled | ReferenceResolved | DocumentRead | ModelRequested | ModelOutput
    | ModelFailed | UsageRecorded
)  # fmt: skip
ToolData = (
    ToolProposed | ToolJudged | ToolStarted | ToolHeld | ToolFinished | ToolUncertain | ToolDrafted | DraftJudged
    | DraftApplying | DraftConflicted | ApprovalRequested | ApprovalResolved | GrantRevoked
)  # fmt: skip
IncidentData = IncidentOpened | IncidentActed | IncidentResolved
RoutineData = RoutineCreated | RoutineChanged | RoutineRemoved | RoutineFired | RoutineSkipped
MemoryData = MemoryStored | MemorySuperseded | MemoryForgotten
LearningData = CandidateProposed | CandidateDecided | CandidateApplied
PairingData = PairingIssued | PairingLocked | PairingLinked | PairingRevoked | PairingCarriedOver
SystemData = (
    CheckpointSigned | Erased | AdminActed | IncidentData | RoutineData | MemoryData | LearningData | PairingData
)
Data = SessionData | RunData | ModelData | ToolData | SystemData

DATA_TYPES: dict[str, type[EventData]] = {
    data_type.TYPE: data_type
    for union in (SessionData, RunData, ModelData, ToolData, SystemData)
    for data_type in union.__args__
}

SYSTEM_TYPES = frozenset(data_type.TYPE for data_type in SystemData.__args__)

# A pairing question stands on a system tape, and every other question on a session's.
QUESTION_TYPES = frozenset({ApprovalRequested.TYPE, ApprovalResolved.TYPE})


def may_stand(type_name: str, *, is_system: bool) -> bool:
    """Tells whether an event of this type may stand on a system tape, or on a session's."""
    return type_name in QUESTION_TYPES or is_system is (type_name in SYSTEM_TYPES)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it has a seq on a tape."""

    data: Data
    actor: Principal
    trust: Trust
    at_ms: int
    run_id: RunId | None = None


def has_any(drafts: Iterable[Draft], types: frozenset[type]) -> bool:
    """Tells whether one of the drafts is of one of these types."""
    return not types.isdisjoint([type(draft.data) for draft in drafts])


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
    "LearningData",
    "RoutineData",
    "may_stand",
]
