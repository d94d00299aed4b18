"""Writes to the tables of routines: the SQL of each member of core.writes.RoutineWrite.

Does not own: whether a write may happen. core.commit.plan has compared the revision before any of these runs.
"""

from typing import assert_never

import apsw
import msgspec

from palyra.core.routines.model import Routine, RoutineFire
from palyra.core.writes import DropRoutines, PutRoutine, RecordFire, RoutineWrite


def apply_routine_write(connection: apsw.Connection, write: RoutineWrite) -> None:
    match write:
        case PutRoutine(routine=routine):
            _put(connection, routine)
        case RecordFire(fire=fire, kept_max=kept_max):
            _record(connection, fire, kept_max)
        case DropRoutines(before_ms=before_ms):
            sql = """
                DELETE FROM routine_fires
                WHERE routine_id IN (SELECT id FROM routines WHERE is_removed = 1 AND updated_at_ms < ?)
            """
            connection.execute(sql, (before_ms,))
            connection.execute("DELETE FROM routines WHERE is_removed = 1 AND updated_at_ms < ?", (before_ms,))
        case _:
            assert_never(write)


def _put(connection: apsw.Connection, routine: Routine) -> None:
    sql = """
        INSERT INTO routines (
            id, principal, name, definition, is_configured, is_paused, is_removed, next_at_ms, last_due_ms,
            fired_count, skipped_count, revision, created_at_ms, updated_at_ms
        ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (id) DO UPDATE SET
            principal = excluded.principal, name = excluded.name, definition = excluded.definition,
            is_configured = excluded.is_configured, is_paused = excluded.is_paused, is_removed = excluded.is_removed,
            next_at_ms = excluded.next_at_ms, last_due_ms = excluded.last_due_ms, fired_count = excluded.fired_count,
            skipped_count = excluded.skipped_count, revision = excluded.revision,
            created_at_ms = excluded.created_at_ms, updated_at_ms = excluded.updated_at_ms
    """
    definition = msgspec.json.encode(routine.definition).decode()
    named = (routine.id, routine.principal, routine.definition.name, definition)
    flags = (routine.is_configured, routine.is_paused, routine.is_removed)
    times = (routine.next_at_ms, routine.last_due_ms)
    counts = (routine.fired_count, routine.skipped_count, routine.revision)
    cells = (*named, *map(int, flags), *times, *counts, routine.created_at_ms, routine.updated_at_ms)
    connection.execute(sql, cells)


def _record(connection: apsw.Connection, fire: RoutineFire, kept_max: int) -> None:
    """Keeps what was recorded last: the times of a clock that was ahead would outlive all that come after them."""
    sql = """
        INSERT INTO routine_fires (routine_id, due_at_ms, principal, reason, count, is_manual, job_id, at_ms)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (routine_id, due_at_ms) DO UPDATE SET
            reason = excluded.reason, count = excluded.count, is_manual = excluded.is_manual,
            job_id = excluded.job_id, at_ms = excluded.at_ms
    """
    said = (fire.reason, fire.count, int(fire.is_manual), fire.job_id, fire.at_ms)
    connection.execute(sql, (fire.routine_id, fire.due_at_ms, fire.principal, *said))
    drop = """
        DELETE FROM routine_fires WHERE routine_id = :id AND due_at_ms NOT IN (
            SELECT due_at_ms FROM routine_fires WHERE routine_id = :id ORDER BY rowid DESC LIMIT :kept
        )
    """
    connection.execute(drop, {"id": fire.routine_id, "kept": kept_max})
