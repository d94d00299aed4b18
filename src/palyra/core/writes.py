"""Writes to state tables, which a commit may carry besides events.

Owns: the closed union of them, and the lease a write requires.
Does not own: SQL (each store), nor when a write is due (engine).

State is what no tape holds: it may be lost with the machine without a promise being broken, or it must vanish (sealed
secrets). Everything else is an event. A new kind of state is a record here, and for each store a case in its
`state_writes`, a migration and a view; the type check names the stores that lack the case.
"""

from enum import Enum
from typing import assert_never

import msgspec

from palyra.core.channel_writes import (
    ChannelWrite,
    CountPairingAttempts,
    DropPairingRequest,
    KeepDeadLetter,
    PutLink,
    PutPairingCode,
    PutPairingRequest,
    PutPosition,
    QueueOutbox,
    RecordEnvelope,
    SetChannelPaused,
    SetOutbox,
)
from palyra.core.ids import ArtifactId, JobId, MemoryId, NodeId, Principal, RunId, StreamId
from palyra.core.jobs.model import JobState, NewJob, lease_name
from palyra.core.learning.model import Candidate, ItemUse, Reflection, candidate_lease
from palyra.core.memory.model import MemoryItem
from palyra.core.routines.model import Routine, RoutineFire, routine_lease
from palyra.core.trust import Trust


class SetHeartbeat(msgspec.Struct, frozen=True):
    """A run begins or goes on, on this node. A run that waits for a person has no heartbeat."""

    run_id: RunId
    node: NodeId
    at_ms: int


class RenewHeartbeat(msgspec.Struct, frozen=True):
    """The run is still alive; `progress_at_ms` is when its last event or live text was seen.

    It changes nothing if the run has no heartbeat any more: a run that has just ended must not come back to life.
    """

    run_id: RunId
    at_ms: int
    progress_at_ms: int


class ClearHeartbeat(msgspec.Struct, frozen=True):
    run_id: RunId


class TakeLease(msgspec.Struct, frozen=True):
    """Compares and sets. It succeeds if the token still is `expected_token` (0 = never taken), and adds one to it."""

    name: str
    owner: NodeId
    expected_token: int
    expires_at_ms: int


class ReleaseLease(msgspec.Struct, frozen=True):
    """Keeps the row and its token, so that a token is never issued twice."""

    name: str
    token: int


class SealSecret(msgspec.Struct, frozen=True):
    """The real bytes behind a marker, encrypted, for the executor of this run alone (L5)."""

    run_id: RunId
    secret_id: str
    sealed: bytes


class EraseSecrets(msgspec.Struct, frozen=True):
    run_id: RunId


class LinkArtifact(msgspec.Struct, frozen=True):
    """A tape refers to an artifact; the file stays as long as one such row does.

    `trust` is that of whatever brought the body in, and `source` its label if it taints. Reading the artifact brings
    both back (L8).
    """

    artifact_id: ArtifactId
    stream: StreamId
    bytes: int
    media_type: str
    at_ms: int
    trust: Trust = Trust.EXTERNAL
    source: str | None = None


class EnqueueJob(msgspec.Struct, frozen=True):
    """Queues a job. Nothing happens if a live job of its kind has its dedupe key already."""

    job: NewJob


class ClaimJob(msgspec.Struct, frozen=True, kw_only=True):
    """A worker takes the job. It succeeds if the token still is `expected_token`, and adds one to it."""

    job_id: JobId
    owner: NodeId
    expected_token: int
    leased_until_ms: int
    at_ms: int


class RenewJob(msgspec.Struct, frozen=True, kw_only=True):
    """The worker is alive; the handler last got on at `progress_at_ms`, with what `progress` says."""

    job_id: JobId
    token: int
    leased_until_ms: int
    progress_at_ms: int
    progress: str


class RequeueCause(Enum):
    """Why a job goes back to the queue. Only a failure counts as an attempt."""

    FAILED = "failed"
    LOST = "lost"  # Its worker ended or was cut off.
    POSTPONED = "postponed"  # The handler itself asked to be called later.
    ASKED = "asked"  # A person wants it tried again: it starts over with all its attempts.


class RequeueJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job goes back to the queue, and its holder loses it."""

    job_id: JobId
    token: int
    cause: RequeueCause
    not_before_ms: int
    error: str | None
    at_ms: int


class EndJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job is over: done, dead, cancelled or expired. Its holder, if another, loses it.

    `progress` is the handler's last word; None leaves the stored one.
    """

    job_id: JobId
    token: int
    state: JobState
    error: str | None
    at_ms: int
    progress: str | None = None


class DropJobs(msgspec.Struct, frozen=True):
    """Forgets ended jobs that changed last before this time, of one kind if given; a bounded number at once."""

    before_ms: int
    kind: str | None = None


class PutRoutine(msgspec.Struct, frozen=True):
    """Stores a routine whole. It succeeds if the stored revision is one below the routine's (0 = no such routine)."""

    routine: Routine


class RecordFire(msgspec.Struct, frozen=True):
    """Records a time of a routine, or replaces its record. Of older ones `kept_max` stay."""

    fire: RoutineFire
    kept_max: int


class DropRoutines(msgspec.Struct, frozen=True):
    """Forgets routines that were removed before this time, with their history."""

    before_ms: int


class StoreVectors(msgspec.Struct, frozen=True):
    """Keeps vectors of remembered items, by the items' numbers. Items that are gone meanwhile are left out."""

    version: str
    vectors: tuple[tuple[int, bytes], ...]


class PutMemory(msgspec.Struct, frozen=True):
    """Stores new items and their index entries."""

    items: tuple[MemoryItem, ...]


class SupersedeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """An item gives way to a newer one. It stays as history, and is found no more."""

    memory_id: MemoryId
    superseded_by: MemoryId
    at_ms: int


class RestoreMemory(msgspec.Struct, frozen=True):
    """A superseded item is active again, because what took its place is gone."""

    memory_id: MemoryId
    at_ms: int


class ForgetMemory(msgspec.Struct, frozen=True):
    """Deletes items and their index entries. Where tapes hold their content stays known until that is erased too."""

    memory_ids: tuple[MemoryId, ...]


class TouchMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Counts that items were shown to a model. What came of it is counted by learning."""

    memory_ids: tuple[MemoryId, ...]
    at_ms: int


class MentionMemory(msgspec.Struct, frozen=True):
    """A tape holds the content of these items from this commit on. Forgetting them erases it there."""

    memory_ids: tuple[MemoryId, ...]
    stream: StreamId


class UnmentionMemory(msgspec.Struct, frozen=True):
    """Nothing of these items is on the tape any more."""

    memory_ids: tuple[MemoryId, ...]
    stream: StreamId


MemoryWrite = PutMemory | SupersedeMemory | RestoreMemory | ForgetMemory | TouchMemory | MentionMemory | UnmentionMemory


class PutCandidate(msgspec.Struct, frozen=True):
    """Stores a new candidate. It changes nothing if there is one of that id: the same find twice is one."""

    candidate: Candidate


class DecideCandidate(msgspec.Struct, frozen=True):
    """Replaces a candidate. It succeeds if the stored revision is one below the candidate's."""

    candidate: Candidate


class DropCandidates(msgspec.Struct, frozen=True):
    """Forgets the principal's oldest candidates that are settled, until `kept_max` are left. Open ones stay."""

    owner: Principal
    kept_max: int


class RecordUse(msgspec.Struct, frozen=True):
    """Records that a run was given an item, and what came of it, or replaces that. Of older ones `kept_max` stay."""

    use: ItemUse
    kept_max: int


class RecordReflection(msgspec.Struct, frozen=True):
    """Records that a run was reflected on, or replaces that. Of older ones of the principal `kept_max` stay."""

    reflection: Reflection
    kept_max: int


LearningWrite = PutCandidate | DecideCandidate | DropCandidates | RecordUse | RecordReflection


RoutineWrite = PutRoutine | RecordFire | DropRoutines
JobWrite = EnqueueJob | ClaimJob | RenewJob | RequeueJob | EndJob | DropJobs
Write = (
    SetHeartbeat | RenewHeartbeat | ClearHeartbeat | TakeLease | ReleaseLease | SealSecret | EraseSecrets
    | LinkArtifact | JobWrite | RoutineWrite | MemoryWrite | StoreVectors | LearningWrite | ChannelWrite
)  # fmt: skip


class Heartbeat(msgspec.Struct, frozen=True):
    run_id: RunId
    node: NodeId
    at_ms: int
    progress_at_ms: int


class Fence(msgspec.Struct, frozen=True):
    """The commit holds only while this lease still has this token."""

    lease: str
    token: int


class Lease(msgspec.Struct, frozen=True):
    """A lease as it stands: who took it last, with which token, until when (0 once released)."""

    name: str
    owner: NodeId
    token: int
    expires_at_ms: int


def fence_of(write: Write) -> Fence | None:
    """The lease and token without which the write is refused."""
    match write:
        case TakeLease(name=name, expected_token=token) | ReleaseLease(name=name, token=token):
            return Fence(name, token)
        case (
            ClaimJob(job_id=job_id, expected_token=token)
            | RenewJob(job_id=job_id, token=token)
            | RequeueJob(job_id=job_id, token=token)
            | EndJob(job_id=job_id, token=token)
        ):
            return Fence(lease_name(job_id), token)
        case PutRoutine(routine=routine):
            return Fence(routine_lease(routine.id), routine.revision - 1)
        case DecideCandidate(candidate=candidate):
            return Fence(candidate_lease(candidate.id), candidate.revision - 1)
        case SetHeartbeat() | RenewHeartbeat() | ClearHeartbeat() | SealSecret() | EraseSecrets() | LinkArtifact():
            return None
        case EnqueueJob() | DropJobs() | RecordFire() | DropRoutines() | StoreVectors():
            return None
        case PutMemory() | SupersedeMemory() | RestoreMemory() | ForgetMemory() | TouchMemory():
            return None
        case MentionMemory() | UnmentionMemory():
            return None
        case PutCandidate() | DropCandidates() | RecordUse() | RecordReflection():
            return None
        case RecordEnvelope() | PutPosition() | SetChannelPaused() | QueueOutbox() | KeepDeadLetter() | SetOutbox():
            return None
        case PutLink() | PutPairingCode() | PutPairingRequest() | DropPairingRequest() | CountPairingAttempts():
            return None
        case _:
            assert_never(write)


def token_after(write: Write) -> Fence | None:
    """The lease that the write gives a new token, and that token. Every other holder of the lease has lost it."""
    fence = fence_of(write)
    if fence is None or isinstance(write, RenewJob | ReleaseLease):
        return None
    return Fence(fence.lease, fence.token + 1)
