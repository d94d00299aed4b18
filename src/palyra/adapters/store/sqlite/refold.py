"""Makes projection rows from their events again.

Owns: reading a tape's events for the fold, and replacing the rows that differ.
Does not own: the fold itself (core.projections).
An erasure and the offline rebuild both end in these functions, so they cannot disagree.
"""

from contextlib import closing
from typing import Any

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import fetch, on_failure
from palyra.adapters.store.sqlite.memory_index import rebuild_items
from palyra.adapters.store.sqlite.rows import TABLES, store_rows
from palyra.adapters.store.sqlite.search_index import rebuild_index
from palyra.adapters.store.sqlite.tape_reads import read_event
from palyra.core.ids import StreamId
from palyra.core.projections.project import PROJECTED_TYPES, RowKey, fold_rows
from palyra.core.projections.rows import Row, tape_field

_PROJECTED_TYPES = msgspec.json.encode(sorted(PROJECTED_TYPES)).decode()


def refold(connection: apsw.Connection, stream: StreamId) -> dict[RowKey, Row]:
    """Returns the rows that the tape's events give as they are now."""
    sql = """
        SELECT tapes.stream, events.* FROM tapes JOIN events ON events.tape_id = tapes.id
        WHERE tapes.stream = ? AND events.type IN (SELECT value FROM json_each(?))
        ORDER BY events.seq
    """
    with closing(connection.execute(sql, (stream, _PROJECTED_TYPES))) as cursor:
        return fold_rows(read_event(cells) for cells in cursor)


def replace_rows(connection: apsw.Connection, stream: StreamId) -> int:
    """Makes the tables agree with the tape, and returns the number of rows that differed.

    The caller holds the transaction.
    """
    differing_count = _drop_differing(connection, stream)
    _insert_missing(connection, stream)
    return differing_count


def rebuild_projections(connection: apsw.Connection) -> int:
    """Folds every tape again and replaces the rows that differ, in one transaction; returns their number.

    All wrong rows are deleted before any right one is written: a wrong row may hold the unique key of a right one.
    """
    connection.execute("BEGIN IMMEDIATE")
    with on_failure(lambda: _roll_back(connection)):
        streams = [stream for (stream,) in connection.execute("SELECT stream FROM tapes ORDER BY id")]
        counts = {stream: _drop_differing(connection, stream) for stream in streams}
        stray_count = _drop_rows_without_tape(connection)
        for stream, count in counts.items():
            if count:
                _insert_missing(connection, stream)
        texts_count = rebuild_index(connection) + rebuild_items(connection)
        connection.execute("COMMIT")
    return sum(counts.values()) + stray_count + texts_count


def _drop_differing(connection: apsw.Connection, stream: StreamId) -> int:
    """Removes the rows that the tape does not give. The count includes missing rows."""
    stored, folded = _stored_cells(connection, stream), refold(connection, stream)
    wanted = {key: TABLES[key.row_type].cells(row) for key, row in folded.items()}
    differing = [key for key in stored.keys() | wanted.keys() if stored.get(key) != wanted.get(key)]
    for key in differing:
        sql = f"DELETE FROM {TABLES[key.row_type].name} WHERE id = ?"  # noqa: S608 - our names
        connection.execute(sql, (key.id,))
    return len(differing)


def _insert_missing(connection: apsw.Connection, stream: StreamId) -> None:
    stored = _stored_cells(connection, stream)
    folded = refold(connection, stream)
    store_rows(connection, [(None, row) for key, row in folded.items() if key not in stored])


def _stored_cells(connection: apsw.Connection, stream: StreamId) -> dict[RowKey, list[Any]]:
    """Returns the tape's rows as the tables have them, uninterpreted: a damaged row must not prevent its repair."""
    stored: dict[RowKey, list[Any]] = {}
    for row_type, table in TABLES.items():
        sql = f"SELECT * FROM {table.name} WHERE {tape_field(row_type)} = ?"  # noqa: S608 - our names
        for cells in fetch(connection, sql, (stream,)):
            stored[RowKey(row_type, str(cells[0]))] = list(cells)
    return stored


def _drop_rows_without_tape(connection: apsw.Connection) -> int:
    before = connection.total_changes()
    for row_type, table in TABLES.items():
        sql = f"DELETE FROM {table.name} WHERE {tape_field(row_type)} NOT IN (SELECT stream FROM tapes)"  # noqa: S608
        connection.execute(sql)
    return connection.total_changes() - before


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
