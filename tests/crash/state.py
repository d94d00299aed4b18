"""State tables as they should be. Owns: what writes come to, told again in plain dictionaries. Not: SQL (the store).

It is a second telling on purpose: the audit compares the store's tables with it, row for row.
"""

from collections.abc import Iterable
from typing import Any, assert_never

import apsw

from palyra.core.writes import (
    ClaimJob,
    ClearHeartbeat,
    DropJobs,
    DropRoutines,
    EndJob,
    EnqueueJob,
    EraseSecrets,
    LinkArtifact,
    PutRoutine,
    RecordFire,
    ReleaseLease,
    RenewHeartbeat,
    RenewJob,
    RequeueCause,
    RequeueJob,
    SealSecret,
    SetHeartbeat,
    TakeLease,
    Write,
)
from tests.crash.ledger import Attempt

Row = tuple[object, ...]
Tables = dict[str, dict[Row, Row]]

KEY_LENGTHS = {
    "heartbeats": 1,
    "leases": 1,
    "sealed_secrets": 2,
    "artifact_links": 2,
    "jobs": 1,
    "routines": 1,
    "routine_fires": 2,
}
SELECTS = {
    "heartbeats": "SELECT run_id, node, at_ms, progress_at_ms FROM heartbeats",
    "leases": "SELECT name, owner, token, expires_at_ms FROM leases",
    "sealed_secrets": "SELECT run_id, secret_id, sealed FROM sealed_secrets",
    "jobs": "SELECT id, state, token, attempts, losses, owner, not_before_ms, error FROM jobs",
    "routines": "SELECT id, principal, name, next_at_ms, is_removed, revision, updated_at_ms FROM routines",
    "routine_fires": "SELECT routine_id, due_at_ms, reason, count, at_ms FROM routine_fires",
    "artifact_links": "SELECT artifact_id, stream, bytes, media_type, at_ms FROM artifact_links",
}


def read_tables(connection: apsw.Connection) -> Tables:
    return {table: _keyed(table, connection.execute(select)) for table, select in SELECTS.items()}


def fold(attempts: Iterable[Attempt]) -> Tables:
    """What these attempts leave, in their order."""
    tables: Tables = {table: {} for table in KEY_LENGTHS}
    for attempt in attempts:
        for write in attempt.writes:
            _apply(tables, write)
        if attempt.erasing is not None and attempt.erasing.is_whole:
            links = tables["artifact_links"]
            for key in [key for key in links if key[1] == attempt.erasing.stream]:
                del links[key]
    return tables


def key_of(write: Write) -> tuple[str, Row]:
    """The table and key a write makes or changes, by which a commit without events is found."""
    match write:
        case SetHeartbeat(run_id=run_id) | RenewHeartbeat(run_id=run_id) | ClearHeartbeat(run_id=run_id):
            return "heartbeats", (run_id,)
        case TakeLease(name=name) | ReleaseLease(name=name):
            return "leases", (name,)
        case SealSecret(run_id=run_id, secret_id=secret_id):
            return "sealed_secrets", (run_id, secret_id)
        case EraseSecrets(run_id=run_id):
            return "sealed_secrets", (run_id,)
        case LinkArtifact(artifact_id=artifact_id, stream=stream):
            return "artifact_links", (artifact_id, stream)
        case EnqueueJob(job=job):
            return "jobs", (job.id,)
        case ClaimJob(job_id=job_id) | RenewJob(job_id=job_id) | RequeueJob(job_id=job_id) | EndJob(job_id=job_id):
            return "jobs", (job_id,)
        case DropJobs():
            return "jobs", ()
        case PutRoutine(routine=routine):
            return "routines", (routine.id,)
        case RecordFire(fire=fire):
            return "routine_fires", (fire.routine_id, fire.due_at_ms)
        case DropRoutines():
            return "routines", ()
        case _:
            assert_never(write)


def _apply(tables: Tables, write: Write) -> None:
    table, key = key_of(write)
    rows = tables[table]
    match write:
        case SetHeartbeat(node=node, at_ms=at_ms):
            rows[key] = (node, at_ms, at_ms)
        case RenewHeartbeat(at_ms=at_ms, progress_at_ms=progress_at_ms):
            if key in rows:
                rows[key] = (rows[key][0], at_ms, progress_at_ms)
        case ClearHeartbeat():
            rows.pop(key, None)
        case TakeLease(owner=owner, expected_token=expected, expires_at_ms=expires_at_ms):
            rows[key] = (owner, expected + 1, expires_at_ms)
        case ReleaseLease(token=token):
            rows[key] = (rows[key][0], token, 0)
        case SealSecret(sealed=sealed):
            rows[key] = (sealed,)
        case EraseSecrets(run_id=run_id):
            for erased in [key for key in rows if key[0] == run_id]:
                del rows[erased]
        case LinkArtifact(bytes=size, media_type=media_type, at_ms=at_ms):
            rows[key] = (size, media_type, at_ms)
        case EnqueueJob(job=job):
            rows[key] = ("queued", 1, 0, 0, None, job.not_before_ms, None)
        case ClaimJob(owner=owner, expected_token=expected):
            _, _, attempts, losses, _, not_before_ms, error = _numbers(rows[key])
            rows[key] = ("running", expected + 1, attempts + 1, losses, owner, not_before_ms, error)
        case RenewJob():
            return
        case RequeueJob(cause=cause, token=token):
            _, _, attempts, losses, *_ = _numbers(rows[key])
            attempts -= cause in (RequeueCause.LOST, RequeueCause.POSTPONED)
            losses += cause is RequeueCause.LOST
            counted = (0, 0) if cause is RequeueCause.ASKED else (attempts, losses)
            rows[key] = ("queued", token + 1, *counted, None, write.not_before_ms, write.error)
        case EndJob(token=token, state=state, error=error):
            _, _, attempts, losses, owner, not_before_ms, _ = _numbers(rows[key])
            rows[key] = (state.value, token + 1, attempts, losses, owner, not_before_ms, error)
        case DropJobs():
            for ended in [key for key, row in rows.items() if row[0] not in ("queued", "running")]:
                del rows[ended]
        case PutRoutine(routine=routine):
            named = (routine.principal, routine.definition.name, routine.next_at_ms)
            rows[key] = (*named, int(routine.is_removed), routine.revision, routine.updated_at_ms)
        case RecordFire(fire=fire, kept_max=kept_max):
            rows[key] = (fire.reason, fire.count, fire.at_ms)
            own = sorted((one for one in rows if one[0] == key[0]), key=lambda one: _numbers((rows[one][2], one[1])))
            for dropped in own[: max(0, len(own) - kept_max)]:
                del rows[dropped]
        case DropRoutines(before_ms=before_ms):
            for removed in [one for one, row in rows.items() if row[3] and _numbers(row)[5] < before_ms]:
                del rows[removed]
                for fired in [one for one in tables["routine_fires"] if one[0] == removed[0]]:
                    del tables["routine_fires"][fired]
        case _:
            assert_never(write)


def _numbers(row: Row) -> tuple[Any, ...]:
    return row


def _keyed(table: str, rows: Iterable[Row]) -> dict[Row, Row]:
    length = KEY_LENGTHS[table]
    return {row[:length]: row[length:] for row in rows}
