"""The look-ups of a commit plan in SQLite.

Owns: their SQL. Does not own: caching (writer_cache), nor rules (core.commit).
"""

import apsw

from palyra.adapters.store.sqlite.rows import TABLES
from palyra.core.commit.model import NO_HEAD, LastNumbers, TapeHead, UniqueKey
from palyra.core.ids import StreamId
from palyra.core.jobs.model import LEASE_PREFIX
from palyra.core.learning.model import LEASE_PREFIX as CANDIDATE_PREFIX
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import Row, RunRow, SessionRow
from palyra.core.routines.model import LEASE_PREFIX as ROUTINE_PREFIX

_SQL_OF_KEY = {
    RunRow: "SELECT 1 FROM runs WHERE principal = ? AND idempotency_key = ?",
    SessionRow: "SELECT 1 FROM sessions WHERE owner = ? AND key = ?",
}


class SqliteLookup:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def numbers(self) -> LastNumbers:
        position = self._connection.execute("SELECT max(position) FROM events").get or 0
        tape_id = self._connection.execute("SELECT max(id) FROM tapes").get or 0
        return LastNumbers(position, tape_id)

    def head(self, stream: StreamId) -> TapeHead:
        return load_head(self._connection, stream)

    def row(self, key: RowKey) -> Row | None:
        table = TABLES[key.row_type]
        cells = self._connection.execute(table.select_sql, (key.id,)).fetchone()
        return None if cells is None else table.read(cells)

    def lease_token(self, name: str) -> int:
        if name.startswith(LEASE_PREFIX):
            job_id = name.removeprefix(LEASE_PREFIX)
            return self._connection.execute("SELECT token FROM jobs WHERE id = ?", (job_id,)).get or 0
        if name.startswith(ROUTINE_PREFIX):
            routine_id = name.removeprefix(ROUTINE_PREFIX)
            return self._connection.execute("SELECT revision FROM routines WHERE id = ?", (routine_id,)).get or 0
        if name.startswith(CANDIDATE_PREFIX):
            candidate_id = name.removeprefix(CANDIDATE_PREFIX)
            return self._connection.execute("SELECT revision FROM candidates WHERE id = ?", (candidate_id,)).get or 0
        return self._connection.execute("SELECT token FROM leases WHERE name = ?", (name,)).get or 0

    def is_taken(self, key: UniqueKey) -> bool:
        found = self._connection.execute(_SQL_OF_KEY[key.row_type], (key.owner, key.key)).fetchone()
        return found is not None


def load_head(connection: apsw.Connection, stream: StreamId) -> TapeHead:
    tape_id = connection.execute("SELECT id FROM tapes WHERE stream = ?", (stream,)).get
    if tape_id is None:
        return NO_HEAD
    sql = "SELECT seq, hash FROM events WHERE tape_id = ? ORDER BY seq DESC LIMIT 1"
    found = connection.execute(sql, (tape_id,)).fetchone()
    return NO_HEAD if found is None else TapeHead(tape_id, *found)
