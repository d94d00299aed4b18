"""Writes a commit plan to SQLite. Owns: the order of its statements. Does not own: the transaction (recorder)."""

import apsw

from palyra.adapters.store.sqlite.rows import store_rows
from palyra.adapters.store.sqlite.search_index import index_texts
from palyra.adapters.store.sqlite.state_writes import apply_write
from palyra.core.commit.plan import CommitPlan


def write_plan(connection: apsw.Connection, plan: CommitPlan) -> None:
    """Writes the plan. The caller holds the transaction."""
    if plan.tapes:
        connection.executemany("INSERT INTO tapes (id, stream) VALUES (?, ?)", plan.tapes)
    sql = """
        INSERT INTO events (position, tape_id, seq, run_id, type, at_ms, actor, trust, data, salt, digest, hash)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    """
    connection.executemany(sql, plan.events)
    if plan.indexed_positions:
        index_texts(connection, plan.indexed_positions)
    store_rows(connection, plan.row_changes())
    for write in plan.writes:
        apply_write(connection, write)
