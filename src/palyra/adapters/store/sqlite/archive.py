"""Raw, read-only access to a journal file: one snapshot of its rows as they are stored.

Does not own: judging them (core.verification).
It works beside a running daemon, on a journal whose daemon was killed, and on a copy without the files beside it.
Invariants: nothing is ever written. All answers come from one snapshot. Text is read as bytes first, so that a row
whose text was damaged is still a row.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from types import NoneType, TracebackType
from typing import Self

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import BUSY_TIMEOUT_MS, as_our_error, on_failure, our_errors
from palyra.adapters.store.sqlite.memory_index import find_misindexed
from palyra.adapters.store.sqlite.migrations import known_migrations, migrate, schema_version
from palyra.core.errors import Corrupt, NotFound, Unavailable
from palyra.core.ids import NodeId, StreamId, derive_node_id
from palyra.core.projections.rows import tape_field
from palyra.core.verification.evidence import Evidence, Misindexed, StoredEvent, StoredRow, StrayEvents
from palyra.core.verification.projections import TABLES, printable
from palyra.ports.signer import SignatureCheck

_EVENTS = """
    SELECT position, seq, CAST(run_id AS BLOB), CAST(type AS BLOB), at_ms, CAST(actor AS BLOB), CAST(trust AS BLOB),
           data, salt, digest, hash
    FROM events WHERE tape_id = ? ORDER BY seq
"""
_CELLS: dict[str, tuple[type, ...]] = {
    "position": (int,),
    "seq": (int,),
    "run_id": (bytes, NoneType),
    "type": (bytes,),
    "at_ms": (int,),
    "actor": (bytes,),
    "trust": (bytes,),
    "data": (bytes,),
    "salt": (bytes, NoneType),
    "digest": (bytes,),
    "hash": (bytes,),
}
# These are all the kinds of a row at once: four tuples to compare with.
_ROW_TYPES = frozenset(product(*_CELLS.values()))
_SCHEMA = """
    SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
    FROM sqlite_schema ORDER BY type DESC, name
"""
_DIFFERENCES_SHOWN_MAX = 3  # So many are enough to see what was done.
_KEYS_NAME = "keys"  # Public keys lie here beside a journal.
_STRAY_EVENTS = """
    SELECT tape_id, min(seq), count(*) FROM events
    WHERE tape_id NOT IN (SELECT id FROM tapes) GROUP BY tape_id
"""
_TABLES_SINCE = {"incidents": 5, "marks": 6}  # The version of the schema that brought the table.
_INDEXED_SINCE = 3  # This version of the schema brought the index of words.
_MEMORY_SINCE, _MEMORY = 8, "memory"  # This version brought the index of remembered items, which are on no tape.
_MISINDEXED = """
    SELECT CAST(tapes.stream AS BLOB), events.seq, 0 FROM search_texts
    JOIN events ON events.position = search_texts.position JOIN tapes ON tapes.id = events.tape_id
    WHERE search_texts.position NOT IN (SELECT id FROM search_docsize)
    UNION ALL
    SELECT CAST(coalesce(tapes.stream, 'search') AS BLOB), coalesce(events.seq, 0), 1 FROM search_docsize
    LEFT JOIN events ON events.position = search_docsize.id LEFT JOIN tapes ON tapes.id = events.tape_id
    WHERE search_docsize.id NOT IN (SELECT position FROM search_texts)
"""
_Schema = dict[tuple[str, str], tuple[bytes | None, bytes | None]]


class ArchiveTotals(msgspec.Struct, frozen=True, kw_only=True):
    schema_version: int
    tapes_count: int
    events_count: int
    last_position: int


class Archive:
    """A journal at one moment. Closing it ends the snapshot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _open(path)
        with on_failure(self._connection.close), _reading(path):
            self._schema = self._require_journal()
            self._tape_ids = self._read_tape_ids()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close(True)

    @property
    def connection(self) -> apsw.Connection:
        """The connection, for copying the whole snapshot. Only this package uses it."""
        return self._connection

    def totals(self) -> ArchiveTotals:
        with _reading(self._path):
            count, last = next(self._connection.execute("SELECT count(*), coalesce(max(position), 0) FROM events"))
        return ArchiveTotals(
            schema_version=self._schema, tapes_count=len(self._tape_ids), events_count=count, last_position=last
        )

    def require_structure(self) -> None:
        """Raises Corrupt if the schema is not its version's, or pages, indexes or constraints do not agree."""
        with _reading(self._path):
            found, expected = _schema_of(self._connection), _schema_of_version(self._schema, self._path)
            if found != expected:
                raise _altered(self._path, "; ".join(_differences(found, expected)))
            said = self._connection.execute("PRAGMA integrity_check(1)").get
        if said != "ok":
            message = f"{self._path}: its pages or indexes do not hold together; restore it from a backup"
            raise Corrupt("journal_damaged", message)

    def evidence(self, keys: SignatureCheck, key_directory: Path | None = None) -> Evidence:
        """Returns what a verifier reads. `key_directory` is where `keys` lie, if not beside the journal."""
        directory = self._path.parent / _KEYS_NAME if key_directory is None else key_directory
        return Evidence(
            streams=self.streams,
            events=self.events,
            rows=self.rows,
            stray_rows=self.stray_rows,
            stray_events=self.stray_events,
            hash_at=self.hash_at,
            public_key=keys.public_key,
            is_valid=keys.is_valid,
            node_ids=lambda: _node_ids(directory, keys),
            begun_ids=lambda: _begun_ids(directory, keys),
            misindexed=self.misindexed,
        )

    def streams(self) -> tuple[StreamId, ...]:
        return tuple(self._tape_ids)

    def events(self, stream: StreamId) -> Iterator[StoredEvent]:
        """Yields the events in order of seq; none for a tape that does not exist."""
        with _reading(self._path):
            for row in self._connection.execute(_EVENTS, (self._tape_ids.get(stream),)):
                if tuple(map(type, row)) not in _ROW_TYPES:
                    raise _wrong_cell(stream, row)
                position, seq, run_id, type_name, at_ms, actor, trust, data, salt, digest, event_hash = row
                yield StoredEvent(
                    position=position,
                    seq=seq,
                    run_id=None if run_id is None else _text(run_id),
                    type=_text(type_name),
                    at_ms=at_ms,
                    actor=_text(actor),
                    trust=_text(trust),
                    data=data,
                    salt=salt,
                    digest=digest,
                    hash=event_hash,
                )

    def rows(self, stream: StreamId) -> Iterator[StoredRow]:
        """Yields the projection rows that say they belong to this tape."""
        for table in TABLES:
            yield from self._rows(table, "= ?", (stream,))

    def stray_rows(self) -> Iterator[StoredRow]:
        """Yields the projection rows whose tape does not exist."""
        for table in TABLES:
            yield from self._rows(table, "NOT IN (SELECT stream FROM tapes)", ())

    def stray_events(self) -> Iterator[StrayEvents]:
        with _reading(self._path):
            for tape_id, first_seq, count in self._connection.execute(_STRAY_EVENTS):
                yield StrayEvents(tape_id, first_seq, count)

    def misindexed(self) -> Iterator[Misindexed]:
        """Yields texts that are not in the index of words, and entries of the index without a text."""
        if self._schema < _INDEXED_SINCE:
            return
        with _reading(self._path):
            for stream, seq, is_stray in self._connection.execute(_MISINDEXED):
                yield Misindexed(_text(stream), seq, bool(is_stray))
            if self._schema >= _MEMORY_SINCE:
                for number, is_stray_item in find_misindexed(self._connection):
                    yield Misindexed(_MEMORY, number, is_stray_item)

    def hash_at(self, stream: StreamId, seq: int) -> bytes | None:
        with _reading(self._path):
            found = self._connection.execute(
                "SELECT hash FROM events WHERE tape_id = ? AND seq = ?", (self._tape_ids.get(stream), seq)
            ).get
        return found if isinstance(found, bytes) else None

    def _rows(self, table: str, condition: str, bindings: tuple[str, ...]) -> Iterator[StoredRow]:
        if self._schema < _TABLES_SINCE.get(table, 0):
            return
        later = self._later_fields(table)
        fields = [field for field in TABLES[table].__struct_fields__ if field not in later]
        columns = ", ".join(f"iif(typeof({field}) = 'text', CAST({field} AS BLOB), {field})" for field in fields)
        owner = tape_field(TABLES[table])
        query = f"SELECT {columns} FROM {table} WHERE {owner} {condition} ORDER BY id"  # noqa: S608 - our names
        with _reading(self._path):
            for row in self._connection.execute(query, bindings):
                values = (_text(value) if isinstance(value, bytes) else value for value in row)
                yield StoredRow(table, {**dict(zip(fields, values, strict=True)), **later})

    def _later_fields(self, table: str) -> dict[str, int | str | None]:
        """Returns what this release added to the table after the journal was written, with the values it has there."""
        if self._is_newest:
            return {}
        known = {name for _, name, *_ in self._connection.execute(f"PRAGMA table_info({table})")}
        added = [field for field in msgspec.structs.fields(TABLES[table]) if field.name not in known]
        defaults = {field.name: field.default for field in added if field.default is not msgspec.NODEFAULT}
        return {name: int(value) if value is True or value is False else value for name, value in defaults.items()}

    def _require_journal(self) -> int:
        """Starts the snapshot with its first read."""
        self._connection.execute("BEGIN")
        version = schema_version(self._connection)
        newest = known_migrations()[-1].number
        if version > newest:
            raise Unavailable(
                "schema_newer",
                f"{self._path} has schema {version}, this release knows {newest}; "
                "run the release that wrote it, or a newer one",
            )
        self._is_newest = version == newest
        if version == 0:
            raise Corrupt("not_a_journal", f"{self._path} is a database, but not a journal; choose another path")
        return version

    def _read_tape_ids(self) -> dict[StreamId, int]:
        rows = self._connection.execute("SELECT CAST(stream AS BLOB), id FROM tapes ORDER BY stream")
        tape_ids: dict[StreamId, int] = {}
        for stream, tape_id in rows:
            if not isinstance(stream, bytes) or not isinstance(tape_id, int):
                raise Corrupt(
                    "cell_invalid", f"{self._path}: a tape has no name or no number; restore it from a backup"
                )
            tape_ids[StreamId(_text(stream))] = tape_id
        return tape_ids


def count_memory(archive: Archive) -> tuple[int, int]:
    """Returns how many items are remembered, and in how many places they and their index do not agree."""
    if archive.totals().schema_version < _MEMORY_SINCE:
        return 0, 0
    count = archive.connection.execute("SELECT count(*) FROM memory_items").get
    return (count if isinstance(count, int) else 0), len(find_misindexed(archive.connection))


def _open(path: Path) -> apsw.Connection:
    if not path.is_file():
        raise NotFound(
            "journal_missing", f"there is no journal at {path}; check --home, or start palyra serve once to create it"
        )
    try:
        return _connect(path, "mode=ro")
    except Unavailable:
        # A log can be neither read nor made in a directory we may not write. Without a log the file is complete in
        # itself.
        if path.with_name(path.name + "-wal").exists():
            raise
        return _connect(path, "mode=ro&immutable=1")


def _connect(path: Path, parameters: str) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with our_errors(path):
        connection = apsw.Connection(f"{path.resolve().as_uri()}?{parameters}", flags=flags)
        with on_failure(connection.close):
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # Opening is lazy: this query does it.
    return connection


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into ours. Our own statements fit the schema.

    If SQLite does not understand one of them, the schema is another.
    """
    try:
        yield
    except apsw.SQLError as cause:
        raise _altered(path, printable(str(cause))) from cause
    except apsw.Error as cause:
        raise as_our_error(cause, path) from cause


def _altered(path: Path, what: str) -> Corrupt:
    return Corrupt("schema_altered", f"{path}: its schema is not what it was made with ({what}); restore a backup")


def _schema_of(connection: apsw.Connection) -> _Schema:
    """Returns each object's kind and name, with the table it belongs to and its SQL."""
    schema: _Schema = {}
    for cells in connection.execute(_SCHEMA):
        kind, name, table, sql = (cell if isinstance(cell, bytes) else None for cell in cells)
        schema[_text(kind or b""), _text(name or b"")] = (table, sql)
    return schema


def _schema_of_version(version: int, path: Path) -> _Schema:
    """Returns the schema that the migrations give on a fresh database."""
    with closing(apsw.Connection(":memory:")) as connection:
        migrate(connection, path, known_migrations()[:version])
        return _schema_of(connection)


def _differences(found: _Schema, expected: _Schema) -> list[str]:
    """Returns the first objects that differ."""
    differing = [key for key in expected | found if found.get(key) != expected.get(key)]
    said: list[str] = []
    for kind, name in differing[:_DIFFERENCES_SHOWN_MAX]:
        is_kept = (kind, name) in found and (kind, name) in expected
        what = "was altered" if is_kept else "is missing" if (kind, name) in expected else "was added"
        said.append(f"{printable(kind)} {printable(name)} {what}")
    return said


def _wrong_cell(stream: StreamId, row: Sequence[object]) -> Corrupt:
    cells = dict(zip(_CELLS, row, strict=True))
    column = next(name for name, types in _CELLS.items() if type(cells[name]) not in types)
    seq = cells["seq"] if isinstance(cells["seq"], int) else "?"
    message = (
        f"session {printable(stream)} seq {seq}: its column {column} holds another kind of value; restore a backup"
    )
    return Corrupt("cell_invalid", message)


def _begun_ids(directory: Path, keys: SignatureCheck) -> frozenset[NodeId]:
    """Returns the nodes of which the directory says that they have signed a journal."""
    found = (keys.public_key(path.stem) for path in directory.glob("*.begun"))
    return frozenset(derive_node_id(public_key) for public_key in found if public_key is not None)


def _node_ids(directory: Path, keys: SignatureCheck) -> frozenset[NodeId]:
    """Returns the nodes whose public keys lie in the directory and match their names."""
    found = (keys.public_key(path.stem) for path in directory.glob("*.pub"))
    return frozenset(derive_node_id(public_key) for public_key in found if public_key is not None)
