"""Writes to the tables of learning: the SQL of each member of core.writes.LearningWrite.

Does not own: whether a write may happen. core.commit.plan has compared the revision before any of these runs.
"""

from typing import assert_never

import apsw
import msgspec

from palyra.core.ids import Principal, StreamId
from palyra.core.learning.documents import DOCUMENT
from palyra.core.learning.identity import content_hash
from palyra.core.learning.model import Candidate, ItemUse, Reflection
from palyra.core.writes import DecideCandidate, DropCandidates, LearningWrite, PutCandidate, RecordReflection, RecordUse


def apply_learning_write(connection: apsw.Connection, write: LearningWrite) -> None:
    match write:
        case PutCandidate(candidate=candidate):
            connection.execute(f"{_INSERT} ON CONFLICT (id) DO NOTHING", _cells(candidate))
        case DecideCandidate(candidate=candidate):
            connection.execute(_INSERT.replace("INSERT", "INSERT OR REPLACE"), _cells(candidate))
        case DropCandidates(owner=owner, kept_max=kept_max):
            _drop(connection, owner, kept_max)
        case RecordUse(use=use, kept_max=kept_max):
            _record_use(connection, use, kept_max)
        case RecordReflection(reflection=reflection, kept_max=kept_max):
            _record_reflection(connection, reflection, kept_max)
        case _:
            assert_never(write)


def drop_learned(connection: apsw.Connection, stream: StreamId) -> None:
    """Deletes what was learned from a session whose tape is erased."""
    for table in ("candidates", "item_uses", "reflections"):
        connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (stream,))  # noqa: S608 - our names


_INSERT = """
    INSERT INTO candidates (
        id, owner, kind, status, session_id, content, content_hash, applied_to, document, record, revision,
        created_at_ms, updated_at_ms
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def _cells(candidate: Candidate) -> tuple[str | int, ...]:
    named = (candidate.id, candidate.owner, candidate.kind.value, candidate.status.value, candidate.session_id)
    words = (candidate.content, content_hash(candidate.content), candidate.applied_to)
    document = candidate.details.get(DOCUMENT, "")
    record = msgspec.json.encode(candidate).decode()
    times = (candidate.created_at_ms, candidate.updated_at_ms)
    return (*named, *words, document, record, candidate.revision, *times)


def _drop(connection: apsw.Connection, owner: Principal, kept_max: int) -> None:
    sql = """
        DELETE FROM candidates WHERE id IN (
            SELECT id FROM candidates WHERE owner = :owner AND status NOT IN ('accepted', 'pending_review')
            ORDER BY updated_at_ms, id
            LIMIT max(0, (SELECT count(*) FROM candidates WHERE owner = :owner) - :kept)
        )
    """
    connection.execute(sql, {"owner": owner, "kept": kept_max})


def _record_use(connection: apsw.Connection, use: ItemUse, kept_max: int) -> None:
    sql = """
        INSERT OR REPLACE INTO item_uses (kind, item_id, run_id, owner, session_id, outcome, at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?)
    """
    named = (use.kind.value, use.item_id, use.run_id, use.owner, use.session_id)
    connection.execute(sql, (*named, use.outcome.value, use.at_ms))
    drop = """
        DELETE FROM item_uses WHERE rowid IN (
            SELECT rowid FROM item_uses WHERE owner = :owner ORDER BY at_ms, rowid
            LIMIT max(0, (SELECT count(*) FROM item_uses WHERE owner = :owner) - :kept)
        )
    """
    connection.execute(drop, {"owner": use.owner, "kept": kept_max})


def _record_reflection(connection: apsw.Connection, reflection: Reflection, kept_max: int) -> None:
    sql = """
        INSERT OR REPLACE INTO reflections (run_id, session_id, owner, how, found_count, junk_count, at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?)
    """
    named = (reflection.run_id, reflection.session_id, reflection.owner, reflection.by)
    connection.execute(sql, (*named, reflection.found_count, reflection.junk_count, reflection.at_ms))
    drop = """
        DELETE FROM reflections WHERE run_id IN (
            SELECT run_id FROM reflections WHERE owner = :owner ORDER BY at_ms, run_id
            LIMIT max(0, (SELECT count(*) FROM reflections WHERE owner = :owner) - :kept)
        )
    """
    connection.execute(drop, {"owner": reflection.owner, "kept": kept_max})
