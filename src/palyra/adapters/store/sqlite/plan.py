"""A group of commits before it is written. Owns: every precondition of a commit, and the rows the group will leave.

A commit is checked against what is known, overlaid by the commits of the group before it. Invariant: one that is
refused leaves no trace in the plan, so the others are untouched. Not: the transaction itself (recorder).
"""

from typing import Any

import apsw

from palyra.adapters.store.sqlite.preparation import Commit, PreparedAppend
from palyra.adapters.store.sqlite.rows import store_rows
from palyra.adapters.store.sqlite.search_index import INDEXED_TYPES, index_texts
from palyra.adapters.store.sqlite.state_writes import apply_write
from palyra.adapters.store.sqlite.writer_cache import TapeHead, WriterCache
from palyra.core.chain import Prepared, link, recorded
from palyra.core.errors import Conflict, Invalid, PalyraError
from palyra.core.events import Event
from palyra.core.events.session import Parent
from palyra.core.ids import StreamId, is_system_stream, parse_stream
from palyra.core.projections.project import PROJECTED_TYPES, RowKey, keys_of, project
from palyra.core.projections.rows import Row, RunRow, SessionRow
from palyra.core.projections.sessions import FIRST_TYPES
from palyra.core.writes import ReleaseLease, TakeLease, Write

EventCells = tuple[int, int, int, str | None, str, int, str, str, bytes, bytes | None, bytes, bytes]

_INSERT_EVENT = """
    INSERT INTO events (position, tape_id, seq, run_id, type, at_ms, actor, trust, data, salt, digest, hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class CommitPlan:
    def __init__(self, known: WriterCache) -> None:
        known.load_numbers()
        self._known = known
        self._events: list[EventCells] = []
        self._texts: list[int] = []  # Positions of what the index of words takes up.
        self._tapes: list[tuple[int, StreamId]] = []
        self._writes: list[Write] = []
        self._heads: dict[StreamId, TapeHead] = {}
        self._leases: dict[str, int] = {}
        self._unique_keys: dict[tuple[str, str, str], bool] = {}
        self._stored: dict[RowKey, Row | None] = {}
        self._rows: dict[RowKey, Row | None] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def add(self, commit: Commit) -> tuple[Event, ...]:
        """The events as they will be recorded; raises if the commit must be refused."""
        self._undo.clear()
        counts = (len(self._events), len(self._tapes), len(self._writes), len(self._texts))
        try:
            if commit.fence is not None:
                self._require_token(commit.fence.lease, commit.fence.token)
            events: list[Event] = []
            for append in commit.appends:
                self._append(append, events)
            for write in commit.writes:
                self._add_write(write)
        except PalyraError:
            self._take_back(*counts)
            raise
        return tuple(events)

    def execute(self, connection: apsw.Connection) -> None:
        """Writes the whole plan; the caller holds the transaction."""
        if self._tapes:
            connection.executemany("INSERT INTO tapes (id, stream) VALUES (?, ?)", self._tapes)
        connection.executemany(_INSERT_EVENT, self._events)
        if self._texts:
            index_texts(connection, self._texts)
        stored = self._stored
        changes = [(stored[key], row) for key, row in self._rows.items() if row is not None and row is not stored[key]]
        store_rows(connection, changes)
        for write in self._writes:
            apply_write(connection, write)

    def settle(self) -> None:
        """After COMMIT: what was planned is now known."""
        known = self._known
        known.position += len(self._events)
        known.tape_id += len(self._tapes)
        known.heads.update(self._heads)
        known.rows.update({key: row for key, row in self._rows.items() if row is not None})
        known.leases.update(self._leases)

    def _append(self, append: PreparedAppend, events: list[Event]) -> None:
        stream = append.stream
        head = self._heads.get(stream) or self._known.head(stream)
        tape_id, seq, event_hash = head
        if seq != append.expected_seq:
            message = f"tape {stream} is at seq {seq}, not {append.expected_seq}; read on, then decide again"
            raise Conflict("seq_stale", message)
        if not append.events:
            return
        tape_id = tape_id or self._begin_tape(append)
        position = self._known.position + len(self._events)
        for prepared in append.events:
            position += 1
            event_hash = link(event_hash, prepared.header_bytes, prepared.digest)
            event = recorded(prepared, position, event_hash)
            if event.type in PROJECTED_TYPES:
                self._project(event)
            if event.type in INDEXED_TYPES:
                self._texts.append(position)
            self._events.append(_cells(tape_id, position, prepared, event_hash))
            events.append(event)
        self._set(self._heads, stream, TapeHead(tape_id, seq + len(append.events), event_hash))

    def _begin_tape(self, append: PreparedAppend) -> int:
        """A session's tape begins with its owner, or nobody could ever be shown it (L11)."""
        stream = parse_stream(append.stream)
        first = append.events[0].header.type
        if not is_system_stream(stream) and first not in FIRST_TYPES:
            raise Invalid("session_unknown", f"{first} on tape {stream}, which has no session yet")
        tape_id = self._known.tape_id + len(self._tapes) + 1
        self._tapes.append((tape_id, stream))
        return tape_id

    def _project(self, event: Event) -> None:
        rows = self._rows
        before: dict[RowKey, Row] = {}
        for key in keys_of(event):
            row = rows[key] if key in rows else self._load(key)
            if row is not None:
                before[key] = row
        self._require_alive(event, before)
        for row in project(event, before):
            key = RowKey(type(row), row.id)
            if key not in before:
                self._require_unique(row)
            self._set(rows, key, row)

    def _require_alive(self, event: Event, before: dict[RowKey, Row]) -> None:
        """An erased session takes nothing more, and nothing branches off it: its words would come back without a past."""
        session = before.get(RowKey(SessionRow, event.stream))
        parent = getattr(event.data, "parent", None)
        if isinstance(parent, Parent):
            key = RowKey(SessionRow, parent.session_id)
            session = self._rows[key] if key in self._rows else self._load(key)
        if isinstance(session, SessionRow) and session.is_erased:
            raise Conflict("session_erased", f"session {session.id} was erased; begin another", is_retryable=False)

    def _load(self, key: RowKey) -> Row | None:
        row = self._stored[key] = self._rows[key] = self._known.row(key)
        return row

    def _require_unique(self, row: Row) -> None:
        """Asked of new rows only: a key never changes."""
        if isinstance(row, RunRow):
            code, owner, key = "idempotency_key_taken", row.principal, row.idempotency_key
            sql = "SELECT 1 FROM runs WHERE principal = ? AND idempotency_key = ?"
        elif isinstance(row, SessionRow):
            code, owner, key = "session_key_taken", row.owner, row.key
            sql = "SELECT 1 FROM sessions WHERE owner = ? AND key = ?"
        else:
            return
        if key is None:
            return
        unique_key = (code, owner, key)
        if unique_key in self._unique_keys or self._known.connection.execute(sql, (owner, key)).fetchone() is not None:
            raise Conflict(code, f"{owner} already uses the key that {row.id} was to have; read what has it")
        self._set(self._unique_keys, unique_key, True)

    def _add_write(self, write: Write) -> None:
        match write:
            case TakeLease(name=name, expected_token=token):
                self._require_token(name, token)
                self._set(self._leases, name, token + 1)
            case ReleaseLease(name=name, token=token):
                self._require_token(name, token)
        self._writes.append(write)

    def _require_token(self, name: str, token: int) -> None:
        now = self._leases.get(name) or self._known.lease_token(name)
        if now != token:
            raise Conflict("lease_lost", f"lease {name} has token {now}, not {token}; someone else took it")

    def _set(self, overlay: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((overlay, key, overlay.get(key)))
        overlay[key] = value

    def _take_back(self, events_count: int, tapes_count: int, writes_count: int, texts_count: int) -> None:
        del self._events[events_count:]
        del self._tapes[tapes_count:]
        del self._writes[writes_count:]
        del self._texts[texts_count:]
        for overlay, key, value in reversed(self._undo):
            if value is None and overlay is not self._rows:
                del overlay[key]
            else:
                overlay[key] = value


def _cells(tape_id: int, position: int, prepared: Prepared, event_hash: bytes) -> EventCells:
    header = prepared.header
    return (
        position,
        tape_id,
        header.seq,
        header.run_id,
        header.type,
        header.at_ms,
        header.actor,
        header.trust.value,
        prepared.data_bytes,
        prepared.salt,
        prepared.digest,
        event_hash,
    )
