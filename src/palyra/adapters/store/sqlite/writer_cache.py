"""What the writer knows without asking SQLite. Owns: bounded caches of heads, rows and leases, and the next numbers.

Invariants: everything here is as the last successful COMMIT left it, since nothing is put in before COMMIT returned; what
is not here is read from the file. Opening reads no more than the two last numbers, however long the journal is.
"""

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

import apsw

from palyra.adapters.store.sqlite.rows import load_row
from palyra.core.chain import GENESIS
from palyra.core.ids import StreamId
from palyra.core.projections.project import RowKey
from palyra.core.projections.rows import Row

HEADS_MAX = 20_000  # About 4 MiB: more tapes than one node writes at a time.
ROWS_MAX = 50_000  # About 30 MiB: the sessions, runs and usage rows of those tapes' latest runs.
LEASES_MAX = 20_000

Key = TypeVar("Key")
Value = TypeVar("Value")


class TapeHead(NamedTuple):
    """The last event of a tape; seq 0 and the genesis hash stand before the first. A tape_id of 0 is not made yet."""

    tape_id: int
    seq: int
    hash: bytes


class Recent(Generic[Key, Value]):
    """What was put of late, at least the last `limit` keys and at most twice as many.

    Two generations instead of an order: a whole group of changes goes in with one call, and dropping costs nothing.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._new: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        value = self._new.get(key)
        return self._old.get(key) if value is None else value

    def update(self, values: Mapping[Key, Value]) -> None:
        if len(self._new) + len(values) > self._limit:
            self._old = self._new
            self._new = {}
        self._new.update(values)

    def clear(self) -> None:
        self._new = {}
        self._old = {}


class WriterCache:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.heads: Recent[StreamId, TapeHead] = Recent(HEADS_MAX)
        self.rows: Recent[RowKey, Row] = Recent(ROWS_MAX)
        self.leases: Recent[str, int] = Recent(LEASES_MAX)
        self.position = 0
        self.tape_id = 0
        self._has_numbers = False
        self.load_numbers()

    def forget(self, connection: apsw.Connection) -> None:
        """Starts over from the file: after a failure, an erasure, or a row that should not have been there.

        Reads nothing yet, so that it cannot fail: what comes next reads, and fails if the disk does.
        """
        self.connection = connection
        self.heads.clear()
        self.rows.clear()
        self.leases.clear()
        self._has_numbers = False

    def load_numbers(self) -> None:
        if not self._has_numbers:
            self.position = _number(self.connection, "SELECT max(position) FROM events")
            self.tape_id = _number(self.connection, "SELECT max(id) FROM tapes")
            self._has_numbers = True

    def head(self, stream: StreamId) -> TapeHead:
        head = self.heads.get(stream)
        if head is None:
            head = load_head(self.connection, stream)
            self.heads.update({stream: head})
        return head

    def row(self, key: RowKey) -> Row | None:
        row = self.rows.get(key)
        if row is None:
            row = load_row(self.connection, key)
            if row is not None:
                self.rows.update({key: row})
        return row

    def lease_token(self, name: str) -> int:
        """The token last given out; 0 if the lease was never taken."""
        token = self.leases.get(name)
        if token is None:
            token = self.connection.execute("SELECT token FROM leases WHERE name = ?", (name,)).get or 0
            self.leases.update({name: token})
        return token


def load_head(connection: apsw.Connection, stream: StreamId) -> TapeHead:
    tape_id = connection.execute("SELECT id FROM tapes WHERE stream = ?", (stream,)).get
    if tape_id is None:
        return TapeHead(0, 0, GENESIS)
    sql = "SELECT seq, hash FROM events WHERE tape_id = ? ORDER BY seq DESC LIMIT 1"
    found = connection.execute(sql, (tape_id,)).fetchone()
    return TapeHead(0, 0, GENESIS) if found is None else TapeHead(tape_id, *found)


def _number(connection: apsw.Connection, sql: str) -> int:
    return connection.execute(sql).get or 0
