"""Projection rows in SQL: a table's columns, made from its record's fields, and writes of what changed.

Does not own: queries (views).
Invariants: a record's fields are its table's columns, in the same order (a test compares them). An update names only
the columns that changed, so that SQLite leaves the indexes over the others alone.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import compress
from operator import is_not, itemgetter
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import apsw
import msgspec

from palyra.adapters.store.sqlite.connection import Bindings, fetch
from palyra.core.errors import Corrupt
from palyra.core.projections.rows import (
    ApprovalRow,
    FileRow,
    GrantRow,
    IncidentRow,
    MarkRow,
    Row,
    RunRow,
    SessionRow,
    TaintRow,
    UsageRow,
)

RowT = TypeVar("RowT", bound=Row)


def _enum_of(annotation: Any) -> type[Enum] | None:
    """Returns the enumeration in a field's type, optional or not."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind
    return None


class _Update(NamedTuple):
    """An update of certain columns of one row."""

    sql: str
    pick: Callable[[tuple[Any, ...]], Sequence[Any]]
    has_enum: bool


class ProjectionTable(Generic[RowT]):
    def __init__(self, name: str, row_type: type[RowT]) -> None:
        fields = msgspec.structs.fields(row_type)
        self.name = name
        self.columns = tuple(field.name for field in fields)
        self._row_type = row_type
        self._enums = tuple((index, kind) for index, field in enumerate(fields) if (kind := _enum_of(field.type)))
        self._booleans = tuple(index for index, field in enumerate(fields) if field.type is bool)
        self._updates: dict[tuple[bool, ...], _Update] = {}
        places = ", ".join("?" * len(self.columns))
        self._insert_sql = f"INSERT INTO {name} ({', '.join(self.columns)}) VALUES ({places})"  # noqa: S608 - our names
        self.select_sql = f"SELECT * FROM {name} WHERE id = ?"  # noqa: S608 - our names

    def read(self, values: Iterable[Any]) -> RowT:
        """Returns the record of one `SELECT *` row."""
        cells = list(values)
        try:
            for index, enum in self._enums:
                cells[index] = None if cells[index] is None else enum(cells[index])
        except ValueError as cause:
            raise Corrupt(
                "row_unreadable", f"{self.name} row {cells[0]} is damaged; rebuild the projections"
            ) from cause
        for index in self._booleans:
            cells[index] = bool(cells[index])
        return self._row_type(**dict(zip(self.columns, cells, strict=True)))

    def select(self, connection: apsw.Connection, sql: str, bindings: Bindings) -> tuple[RowT, ...]:
        """Returns the records of a query over whole rows."""
        return tuple([self.read(cells) for cells in fetch(connection, sql, bindings)])

    def cells(self, row: RowT) -> list[Any]:
        cells = list(msgspec.structs.astuple(row))
        for index, _ in self._enums:
            cells[index] = None if cells[index] is None else cells[index].value
        return cells

    def insert(self, row: RowT) -> tuple[str, Sequence[Any]]:
        return self._insert_sql, self.cells(row)

    def update(self, before: RowT, after: RowT) -> tuple[str, Sequence[Any]]:
        """Returns the statement that makes the stored row `before` into `after`, and its bindings.

        An unchanged field is the very same object, because records are changed by making new ones from old.
        """
        values = msgspec.structs.astuple(after)
        differs = tuple(map(is_not, values, msgspec.structs.astuple(before)))
        update = self._updates.get(differs) or self._make_update(differs)
        bindings = update.pick(values)
        if update.has_enum:
            bindings = [value.value if isinstance(value, Enum) else value for value in bindings]
        return update.sql, bindings

    def _make_update(self, differs: tuple[bool, ...]) -> _Update:
        indexes = list(compress(range(len(differs)), differs))
        places = ", ".join(f"{self.columns[index]} = ?" for index in indexes)
        sql = f"UPDATE {self.name} SET {places} WHERE id = ?"  # noqa: S608 - our names
        has_enum = any(index in indexes for index, _ in self._enums)
        update = self._updates[differs] = _Update(sql, itemgetter(*indexes, self.columns.index("id")), has_enum)
        return update


SESSIONS = ProjectionTable("sessions", SessionRow)
RUNS = ProjectionTable("runs", RunRow)
APPROVALS = ProjectionTable("approvals", ApprovalRow)
GRANTS = ProjectionTable("grants", GrantRow)
USAGE = ProjectionTable("usage", UsageRow)
TAINTS = ProjectionTable("taints", TaintRow)
FILES = ProjectionTable("files", FileRow)
INCIDENTS = ProjectionTable("incidents", IncidentRow)
MARKS = ProjectionTable("marks", MarkRow)
TABLES: dict[type[Row], ProjectionTable[Any]] = {
    SessionRow: SESSIONS,
    RunRow: RUNS,
    ApprovalRow: APPROVALS,
    GrantRow: GRANTS,
    UsageRow: USAGE,
    TaintRow: TAINTS,
    FileRow: FILES,
    IncidentRow: INCIDENTS,
    MarkRow: MARKS,
}


def store_rows(connection: apsw.Connection, changes: Iterable[tuple[Row | None, Row]]) -> None:
    """Writes the changes. Each is the stored row (None: there is none yet) and what it becomes."""
    batches: dict[str, list[Sequence[Any]]] = {}
    for before, after in changes:
        table = TABLES[type(after)]
        sql, bindings = table.insert(after) if before is None else table.update(before, after)
        batches.setdefault(sql, []).append(bindings)
    for sql, bindings_list in batches.items():
        connection.executemany(sql, bindings_list)
