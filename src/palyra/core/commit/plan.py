"""Plans a group of commits: checks every precondition and works out the rows the group leaves.

Owns: expected seqs, fences and leases, unique keys, erased sessions, the hash chain's next links, changed projections.
Does not own: the rules of projections (core.projections), look-ups (lookup), the transaction that writes the plan (a store).

A commit is checked against the store, overlaid by the commits of the group before it.
Invariant: a refused commit leaves no trace in the plan, so the others of its group are untouched.
"""

from collections.abc import Iterable
from typing import Any

from palyra.core.chain import Prepared, link, recorded
from palyra.core.commit.lookup import StoreLookup
from palyra.core.commit.model import (
    KEYED_TYPES,
    Commit,
    EventRow,
    LastNumbers,
    PreparedAppend,
    TapeHead,
    UniqueKey,
    parent_of,
    unique_key_of,
)
from palyra.core.errors import Conflict, Invalid, PalyraError
from palyra.core.events import Event
from palyra.core.ids import StreamId, is_system_stream, parse_stream
from palyra.core.projections.project import PROJECTED_TYPES, RowKey, keys_of, project
from palyra.core.projections.rows import Row, RunRow, SessionRow
from palyra.core.projections.sessions import FIRST_TYPES
from palyra.core.search import INDEXED_TYPES
from palyra.core.writes import Fence, Write, fence_of, token_after

CommitOutcome = tuple[Event, ...] | PalyraError

_CODE_OF_TAKEN_KEY = {RunRow: "idempotency_key_taken", SessionRow: "session_key_taken"}


class CommitPlan:
    """`tapes`, `events`, `indexed_positions`, `row_changes()` and `writes` are what a store writes, in that order.

    `heads`, `leases`, `rows` and `numbers()` are what holds once they are durable.
    """

    def __init__(self, stored: StoreLookup) -> None:
        self._stored = stored
        self._first = stored.numbers()
        self.events: list[EventRow] = []
        self.indexed_positions: list[int] = []
        self.tapes: list[tuple[int, StreamId]] = []
        self.writes: list[Write] = []
        self.heads: dict[StreamId, TapeHead] = {}
        self.leases: dict[str, int] = {}
        self.rows: dict[RowKey, Row | None] = {}
        self._rows_before: dict[RowKey, Row | None] = {}
        self._unique_keys: dict[UniqueKey, bool] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def add_all(self, commits: Iterable[Commit]) -> list[CommitOutcome]:
        """One outcome for each commit, in order: its events, or why it is refused."""
        return [self._outcome(commit) for commit in commits]

    def add(self, commit: Commit) -> tuple[Event, ...]:
        """The events as they will be recorded; raises if the commit must be refused."""
        self._undo.clear()
        counts = (len(self.events), len(self.tapes), len(self.writes), len(self.indexed_positions))
        try:
            if commit.fence is not None:
                self._require_token(commit.fence)
            events: list[Event] = []
            for append in commit.appends:
                self._append(append, events)
            for write in commit.writes:
                self._add_write(write)
        except PalyraError:
            self._take_back(*counts)
            raise
        return tuple(events)

    def row_changes(self) -> list[tuple[Row | None, Row]]:
        """Each row that differs from the stored one, after what is stored (None: no row yet)."""
        before = self._rows_before
        return [(before[key], row) for key, row in self.rows.items() if row is not None and row is not before[key]]

    def numbers(self) -> LastNumbers:
        return LastNumbers(self._first.position + len(self.events), self._first.tape_id + len(self.tapes))

    def _outcome(self, commit: Commit) -> CommitOutcome:
        try:
            return self.add(commit)
        except PalyraError as refusal:
            return refusal

    def _append(self, append: PreparedAppend, events: list[Event]) -> None:
        stream = append.stream
        tape_id, seq, event_hash = self.heads.get(stream) or self._stored.head(stream)
        if seq != append.expected_seq:
            message = f"tape {stream} is at seq {seq}, not {append.expected_seq}; read on, then decide again"
            raise Conflict("seq_stale", message)
        if not append.events:
            return
        tape_id = tape_id or self._begin_tape(append)
        position = self._first.position + len(self.events)
        for prepared in append.events:
            position += 1
            event_hash = link(event_hash, prepared.header_bytes, prepared.digest)
            event = recorded(prepared, position, event_hash)
            if event.type in PROJECTED_TYPES:
                self._project(event)
            if event.type in INDEXED_TYPES:
                self.indexed_positions.append(position)
            self.events.append(_event_row(position, tape_id, prepared, event_hash))
            events.append(event)
        self._set(self.heads, stream, TapeHead(tape_id, seq + len(append.events), event_hash))

    def _begin_tape(self, append: PreparedAppend) -> int:
        """A session's tape begins with its owner, or nobody could ever be shown it (L11)."""
        stream = parse_stream(append.stream)
        first = append.events[0].header.type
        if not is_system_stream(stream) and first not in FIRST_TYPES:
            raise Invalid("session_unknown", f"{first} on tape {stream}, which has no session yet")
        tape_id = self._first.tape_id + len(self.tapes) + 1
        self.tapes.append((tape_id, stream))
        return tape_id

    def _project(self, event: Event) -> None:
        rows = self.rows
        before: dict[RowKey, Row] = {}
        for key in keys_of(event):
            row = rows[key] if key in rows else self._load(key)
            if row is not None:
                before[key] = row
        self._require_not_erased(event, before)
        changed = project(event, before)
        if event.type in KEYED_TYPES:
            self._require_unique(event)
        for row in changed:
            self._set(rows, RowKey(type(row), row.id), row)

    def _load(self, key: RowKey) -> Row | None:
        row = self._rows_before[key] = self.rows[key] = self._stored.row(key)
        return row

    def _require_not_erased(self, event: Event, before: dict[RowKey, Row]) -> None:
        """An erased session takes nothing more, and nothing branches off it: its words would come back without a past."""
        parent = parent_of(event) if event.type in FIRST_TYPES else None
        key = RowKey(SessionRow, event.stream if parent is None else parent)
        session = before.get(key) if parent is None else self.rows.get(key) or self._load(key)
        if isinstance(session, SessionRow) and session.is_erased:
            raise Conflict("session_erased", f"session {session.id} was erased; begin another", is_retryable=False)

    def _require_unique(self, event: Event) -> None:
        key = unique_key_of(event)
        if key is None:
            return
        if key in self._unique_keys or self._stored.is_taken(key):
            name = event.run_id if key.row_type is RunRow else event.stream
            message = f"{key.owner} already uses the key that {name} was to have; read what has it"
            raise Conflict(_CODE_OF_TAKEN_KEY[key.row_type], message)
        self._set(self._unique_keys, key, True)

    def _add_write(self, write: Write) -> None:
        fence = fence_of(write)
        if fence is not None:
            self._require_token(fence)
        changed = token_after(write)
        if changed is not None:
            self._set(self.leases, changed.lease, changed.token)
        self.writes.append(write)

    def _require_token(self, fence: Fence) -> None:
        token = self.leases.get(fence.lease) or self._stored.lease_token(fence.lease)
        if token != fence.token:
            message = f"lease {fence.lease} has token {token}, not {fence.token}; someone else took it"
            raise Conflict("lease_lost", message)

    def _set(self, overlay: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((overlay, key, overlay.get(key)))
        overlay[key] = value

    def _take_back(self, events_count: int, tapes_count: int, writes_count: int, indexed_count: int) -> None:
        del self.events[events_count:]
        del self.tapes[tapes_count:]
        del self.writes[writes_count:]
        del self.indexed_positions[indexed_count:]
        for overlay, key, value in reversed(self._undo):
            # A row of None is known to be absent, and stays known.
            if value is None and overlay is not self.rows:
                del overlay[key]
            else:
                overlay[key] = value


def _event_row(position: int, tape_id: int, prepared: Prepared, event_hash: bytes) -> EventRow:
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
