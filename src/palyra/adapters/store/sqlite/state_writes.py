"""Writes to state tables: the SQL of each member of core.writes.Write, and of a whole tape's erasure.

Does not own: whether a write may happen (core.commit.plan), nor reading the tables (views).
"""

from typing import assert_never

import apsw

from palyra.adapters.store.sqlite.channel_writes import apply_channel_write
from palyra.adapters.store.sqlite.job_writes import apply_job_write
from palyra.adapters.store.sqlite.learning_writes import apply_learning_write, drop_learned
from palyra.adapters.store.sqlite.memory_vectors import store_vectors
from palyra.adapters.store.sqlite.memory_writes import apply_memory_write, forget_session
from palyra.adapters.store.sqlite.routine_writes import apply_routine_write
from palyra.core.channel_writes import (
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
from palyra.core.ids import StreamId
from palyra.core.writes import (
    ClaimJob,
    ClearHeartbeat,
    DecideCandidate,
    DropCandidates,
    DropJobs,
    DropRoutines,
    EndJob,
    EnqueueJob,
    EraseSecrets,
    ForgetMemory,
    LinkArtifact,
    MentionMemory,
    PutCandidate,
    PutMemory,
    PutRoutine,
    RecordFire,
    RecordReflection,
    RecordUse,
    ReleaseLease,
    RenewHeartbeat,
    RenewJob,
    RequeueJob,
    RestoreMemory,
    SealSecret,
    SetHeartbeat,
    StoreVectors,
    SupersedeMemory,
    TakeLease,
    TouchMemory,
    UnmentionMemory,
    Write,
)


def apply_write(connection: apsw.Connection, write: Write) -> None:
    match write:
        case SetHeartbeat():
            _set_heartbeat(connection, write)
        case RenewHeartbeat(run_id=run_id, at_ms=at_ms, progress_at_ms=progress_at_ms):
            sql = "UPDATE heartbeats SET at_ms = ?, progress_at_ms = ? WHERE run_id = ?"
            connection.execute(sql, (at_ms, progress_at_ms, run_id))
        case ClearHeartbeat(run_id=run_id):
            connection.execute("DELETE FROM heartbeats WHERE run_id = ?", (run_id,))
        case TakeLease():
            _take_lease(connection, write)
        case ReleaseLease(name=name, token=token):
            connection.execute("UPDATE leases SET expires_at_ms = 0 WHERE name = ? AND token = ?", (name, token))
        case SealSecret():
            _seal_secret(connection, write)
        case EraseSecrets(run_id=run_id):
            connection.execute("DELETE FROM sealed_secrets WHERE run_id = ?", (run_id,))
        case LinkArtifact():
            _link_artifact(connection, write)
        case EnqueueJob() | ClaimJob() | RenewJob() | RequeueJob() | EndJob() | DropJobs():
            apply_job_write(connection, write)
        case PutRoutine() | RecordFire() | DropRoutines():
            apply_routine_write(connection, write)
        case PutMemory() | SupersedeMemory() | RestoreMemory() | ForgetMemory() | TouchMemory():
            apply_memory_write(connection, write)
        case MentionMemory() | UnmentionMemory():
            apply_memory_write(connection, write)
        case StoreVectors(version=version, vectors=vectors):
            store_vectors(connection, version, vectors)
        case PutCandidate() | DecideCandidate() | DropCandidates() | RecordUse() | RecordReflection():
            apply_learning_write(connection, write)
        case RecordEnvelope() | PutPosition() | SetChannelPaused() | QueueOutbox() | KeepDeadLetter() | SetOutbox():
            apply_channel_write(connection, write)
        case PutLink() | PutPairingCode() | PutPairingRequest() | DropPairingRequest() | CountPairingAttempts():
            apply_channel_write(connection, write)
        case _:
            assert_never(write)


def drop_state(connection: apsw.Connection, stream: StreamId) -> None:
    """Deletes the content of the tape and its runs when the whole tape is erased. A heartbeat has no content."""
    of_its_runs = "DELETE FROM sealed_secrets WHERE run_id IN (SELECT id FROM runs WHERE session_id = ?)"
    connection.execute(of_its_runs, (stream,))
    connection.execute("DELETE FROM artifact_links WHERE stream = ?", (stream,))
    connection.execute("DELETE FROM jobs WHERE session_id = ?", (stream,))
    connection.execute("DELETE FROM memory_mentions WHERE stream = ?", (stream,))
    forget_session(connection, stream)
    drop_learned(connection, stream)
    connection.execute("DELETE FROM outbox WHERE session_id = ?", (stream,))


def _set_heartbeat(connection: apsw.Connection, write: SetHeartbeat) -> None:
    sql = """
        INSERT INTO heartbeats (run_id, node, at_ms, progress_at_ms) VALUES (?, ?, ?, ?)
        ON CONFLICT (run_id) DO UPDATE
        SET node = excluded.node, at_ms = excluded.at_ms, progress_at_ms = excluded.progress_at_ms
    """
    connection.execute(sql, (write.run_id, write.node, write.at_ms, write.at_ms))


def _take_lease(connection: apsw.Connection, write: TakeLease) -> None:
    sql = """
        INSERT INTO leases (name, owner, token, expires_at_ms) VALUES (?, ?, ?, ?)
        ON CONFLICT (name) DO UPDATE
        SET owner = excluded.owner, token = excluded.token, expires_at_ms = excluded.expires_at_ms
    """
    connection.execute(sql, (write.name, write.owner, write.expected_token + 1, write.expires_at_ms))


def _seal_secret(connection: apsw.Connection, write: SealSecret) -> None:
    """Seals a secret. Sealing it again replaces it: the same value sealed twice has two forms, and either opens."""
    sql = """
        INSERT INTO sealed_secrets (run_id, secret_id, sealed) VALUES (?, ?, ?)
        ON CONFLICT (run_id, secret_id) DO UPDATE SET sealed = excluded.sealed
    """
    connection.execute(sql, (write.run_id, write.secret_id, write.sealed))


def _link_artifact(connection: apsw.Connection, write: LinkArtifact) -> None:
    """Links an artifact.

    The first link of a tape stands, because the same name means the same bytes; its trust may only fall.
    """
    sql = """
        INSERT INTO artifact_links (artifact_id, stream, bytes, media_type, at_ms, trust, source)
        VALUES (?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (artifact_id, stream) DO UPDATE SET trust = excluded.trust, source = excluded.source
        WHERE instr('external local operator system', excluded.trust)
            < instr('external local operator system', artifact_links.trust)
    """
    cells = (write.artifact_id, write.stream, write.bytes, write.media_type, write.at_ms)
    connection.execute(sql, (*cells, write.trust.value, write.source))
