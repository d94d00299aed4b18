"""State tables as they should be. Owns: what writes come to, told again in plain dictionaries. Not: SQL (the store).

It is a second telling on purpose: the audit compares the store's tables with it, row for row.
"""

from collections.abc import Iterable
from typing import Any, assert_never

import apsw

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
from palyra.core.channels.missed import is_later
from palyra.core.learning.model import Candidate
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
    MemoryWrite,
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
    RequeueCause,
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
    "memory_items": 1,
    "memory_mentions": 2,
    "candidates": 1,
    "item_uses": 3,
    "reflections": 1,
    "channel_envelopes": 2,
    "channel_positions": 2,
    "channel_states": 1,
    "channel_links": 1,
    "pairing_codes": 1,
    "pairing_requests": 1,
    "pairing_attempts": 2,
    "outbox": 1,
}
SELECTS = {
    "heartbeats": "SELECT run_id, node, at_ms, progress_at_ms FROM heartbeats",
    "leases": "SELECT name, owner, token, expires_at_ms FROM leases",
    "sealed_secrets": "SELECT run_id, secret_id, sealed FROM sealed_secrets",
    "jobs": "SELECT id, state, token, attempts, losses, owner, not_before_ms, error FROM jobs",
    "routines": "SELECT id, principal, name, next_at_ms, is_removed, revision, updated_at_ms FROM routines",
    "routine_fires": "SELECT routine_id, due_at_ms, reason, count, at_ms FROM routine_fires",
    "memory_items": "SELECT id, owner, content, status, superseded_by, uses_count FROM memory_items",
    "memory_mentions": "SELECT memory_id, stream FROM memory_mentions",
    "candidates": "SELECT id, owner, status, content, revision, updated_at_ms FROM candidates",
    "item_uses": "SELECT kind, item_id, run_id, outcome, at_ms FROM item_uses",
    "reflections": "SELECT run_id, how, found_count, at_ms FROM reflections",
    "channel_envelopes": "SELECT channel, envelope_id, at_ms FROM channel_envelopes",
    "channel_positions": "SELECT channel, conversation_id, message_id, at_ms FROM channel_positions",
    "channel_states": "SELECT channel, is_paused, at_ms FROM channel_states",
    "channel_links": "SELECT id, channel, sender_id, principal, revoked_at_ms FROM channel_links",
    "pairing_codes": "SELECT id, code_hash, used_at_ms FROM pairing_codes",
    "pairing_requests": "SELECT approval_id, channel, sender_id FROM pairing_requests",
    "pairing_attempts": "SELECT channel, sender_id, wrong_count, locked_until_ms FROM pairing_attempts",
    "outbox": "SELECT id, state, attempts, part, not_before_ms, error, updated_at_ms FROM outbox",
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
            for links in (tables["artifact_links"], tables["memory_mentions"]):
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
        case PutMemory(items=items):
            return "memory_items", (items[0].id,)
        case ForgetMemory(memory_ids=memory_ids) | TouchMemory(memory_ids=memory_ids):
            return "memory_items", (memory_ids[0],)
        case SupersedeMemory(memory_id=memory_id) | RestoreMemory(memory_id=memory_id):
            return "memory_items", (memory_id,)
        case (
            MentionMemory(memory_ids=memory_ids, stream=stream) | UnmentionMemory(memory_ids=memory_ids, stream=stream)
        ):
            return "memory_mentions", (memory_ids[0], stream)
        case StoreVectors():
            return "memory_vectors", ()
        case PutCandidate(candidate=candidate) | DecideCandidate(candidate=candidate):
            return "candidates", (candidate.id,)
        case DropCandidates():
            return "candidates", ()
        case RecordUse(use=use):
            return "item_uses", (use.kind.value, use.item_id, use.run_id)
        case RecordReflection(reflection=reflection):
            return "reflections", (reflection.run_id,)
        case RecordEnvelope(envelope=taken):
            return "channel_envelopes", (taken.channel, taken.envelope_id)
        case PutPosition(position=position):
            return "channel_positions", (position.channel, position.conversation_id)
        case SetChannelPaused(channel=channel):
            return "channel_states", (channel,)
        case PutLink(link=link):
            return "channel_links", (link.id,)
        case PutPairingCode(code=code):
            return "pairing_codes", (code.id,)
        case PutPairingRequest(request=request):
            return "pairing_requests", (request.approval_id,)
        case DropPairingRequest(approval_id=approval_id):
            return "pairing_requests", (approval_id,)
        case CountPairingAttempts(attempts=counted):
            return "pairing_attempts", (counted.channel, counted.sender_id)
        case QueueOutbox(item=item) | KeepDeadLetter(item=item) | SetOutbox(item=item):
            return "outbox", (item.id,)
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
        case PutCandidate(candidate=candidate):
            rows.setdefault(key, _candidate(candidate))
        case DecideCandidate(candidate=candidate):
            rows[key] = _candidate(candidate)
        case DropCandidates(owner=owner, kept_max=kept_max):
            own = sorted((one for one, row in rows.items() if row[0] == owner), key=lambda one: _numbers(rows[one])[4])
            spare = max(0, len(own) - kept_max)
            settled = [one for one in own if rows[one][1] not in ("accepted", "pending_review")]
            for one in settled[:spare]:
                del rows[one]
        case RecordUse(use=use):
            rows[key] = (use.outcome.value, use.at_ms)
        case RecordReflection(reflection=reflection):
            rows[key] = (reflection.by, reflection.found_count, reflection.at_ms)
        case StoreVectors():
            return  # The load remembers nothing, so there is no item that a vector could belong to.
        case PutMemory() | SupersedeMemory() | RestoreMemory() | ForgetMemory() | TouchMemory():
            _apply_memory(tables, write)
        case MentionMemory() | UnmentionMemory():
            _apply_memory(tables, write)
        case QueueOutbox() | KeepDeadLetter() | SetOutbox():
            _apply_outbox(rows, key, write)
        case RecordEnvelope() | PutPosition() | SetChannelPaused() | PutLink():
            _apply_channel(rows, key, write)
        case PutPairingCode() | PutPairingRequest() | DropPairingRequest() | CountPairingAttempts():
            _apply_pairing(rows, key, write)
        case _:
            assert_never(write)


def _apply_memory(tables: Tables, write: MemoryWrite) -> None:
    items, mentions = tables["memory_items"], tables["memory_mentions"]
    match write:
        case PutMemory(items=added):
            for item in added:
                items[item.id,] = (item.owner, item.content, item.status.value, item.superseded_by, 0)
        case SupersedeMemory(memory_id=memory_id, superseded_by=superseded_by):
            owner, content, _, _, uses = items[memory_id,]
            items[memory_id,] = (owner, content, "superseded", superseded_by, uses)
        case RestoreMemory(memory_id=memory_id):
            owner, content, _, _, uses = items[memory_id,]
            items[memory_id,] = (owner, content, "active", None, uses)
        case ForgetMemory(memory_ids=memory_ids):
            for memory_id in memory_ids:
                items.pop((memory_id,), None)
        case TouchMemory(memory_ids=memory_ids):
            for memory_id in memory_ids:
                *rest, uses = _numbers(items[memory_id,])
                items[memory_id,] = (*rest, uses + 1)
        case MentionMemory(memory_ids=memory_ids, stream=stream):
            mentions.update({(memory_id, stream): () for memory_id in memory_ids})
        case UnmentionMemory(memory_ids=memory_ids, stream=stream):
            for memory_id in memory_ids:
                mentions.pop((memory_id, stream), None)
        case _:
            assert_never(write)


def _candidate(candidate: Candidate) -> Row:
    named = (candidate.owner, candidate.status.value, candidate.content)
    return (*named, candidate.revision, candidate.updated_at_ms)


def _apply_outbox(rows: dict[Row, Row], key: Row, write: QueueOutbox | KeepDeadLetter | SetOutbox) -> None:
    item = write.item
    said = (item.state.value, item.attempts, item.part, item.not_before_ms, item.error, item.updated_at_ms)
    if isinstance(write, SetOutbox):
        rows[key] = said
        return
    rows.setdefault(key, said)


def _apply_channel(
    rows: dict[Row, Row], key: Row, write: RecordEnvelope | PutPosition | SetChannelPaused | PutLink
) -> None:
    match write:
        case RecordEnvelope(envelope=taken):
            rows.setdefault(key, (taken.at_ms,))
        case PutPosition(position=position):
            if key not in rows or is_later(position.message_id, str(rows[key][0])):
                rows[key] = (position.message_id, position.at_ms)
        case SetChannelPaused(is_paused=is_paused, at_ms=at_ms):
            rows[key] = (int(is_paused), at_ms)
        case PutLink(link=link):
            for other in [each for each, row in rows.items() if row[:2] == (link.channel, link.sender_id)]:
                channel, sender_id, principal, ended = rows[other]
                rows[other] = (channel, sender_id, principal, link.created_at_ms if ended is None else ended)
            rows[key] = (link.channel, link.sender_id, link.principal, link.revoked_at_ms)


def _apply_pairing(
    rows: dict[Row, Row],
    key: Row,
    write: PutPairingCode | PutPairingRequest | DropPairingRequest | CountPairingAttempts,
) -> None:
    match write:
        case PutPairingCode(code=code):
            rows[key] = (code.code_hash, code.used_at_ms)
        case PutPairingRequest(request=request):
            rows[key] = (request.channel, request.sender_id)
        case DropPairingRequest():
            rows.pop(key, None)
        case CountPairingAttempts(attempts=counted):
            rows[key] = (counted.wrong_count, counted.locked_until_ms)


def _numbers(row: Row) -> tuple[Any, ...]:
    return row


def _keyed(table: str, rows: Iterable[Row]) -> dict[Row, Row]:
    length = KEY_LENGTHS[table]
    return {row[:length]: row[length:] for row in rows}
