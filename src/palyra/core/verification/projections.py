"""Checks projection tables: folds a tape again and compares each row, field by field.

Invariant: a difference names table, row and field. It shows the two values only if neither can hold a person's text.
"""

from collections.abc import Iterable, Iterator

import msgspec

from palyra.core.events import Event
from palyra.core.ids import StreamId
from palyra.core.projections.project import RowKey, keys_of, project
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
    tape_field,
)
from palyra.core.verification.evidence import Misindexed, StoredRow, VerifyFinding

TABLES: dict[str, type[Row]] = {
    "sessions": SessionRow,
    "runs": RunRow,
    "approvals": ApprovalRow,
    "grants": GrantRow,
    "usage": UsageRow,
    "taints": TaintRow,
    "files": FileRow,
    "incidents": IncidentRow,
    "marks": MarkRow,
}
_TABLE_OF = {row_type: table for table, row_type in TABLES.items()}

# Words of a closed set. Any other text could be one that a person, a client or a model chose.
_WORD_FIELDS = frozenset({"state", "reason", "kind", "status", "scope", "domain", "severity", "resolution"})
_SHOWN_LENGTH_MAX = 80  # An edited row may hold anything, at any length.


class TapeFold:
    """The rows of one tape as its events give them."""

    def __init__(self) -> None:
        self._rows: dict[RowKey, Row] = {}

    def add(self, event: Event) -> None:
        keys = keys_of(event)
        if not keys:
            return
        for row in project(event, {key: self._rows[key] for key in keys if key in self._rows}):
            self._rows[RowKey(type(row), row.id)] = row

    def differences(self, stream: StreamId, stored_rows: Iterable[StoredRow]) -> Iterator[VerifyFinding]:
        expected = dict(self._rows)
        for stored in stored_rows:
            row = expected.pop(RowKey(TABLES[stored.table], str(stored.values["id"])), None)
            if row is None:
                yield stray_row(stored)
            else:
                yield from _unequal_fields(stream, stored, row)
        for row in expected.values():
            yield VerifyFinding(stream, row.seq, f"{_named(_TABLE_OF[type(row)], row.id)} is missing", is_of_row=True)


def stray_row(stored: StoredRow) -> VerifyFinding:
    """A row that no event gave."""
    owner = stored.values[tape_field(TABLES[stored.table])]
    seq = stored.values["seq"]
    what = f"{_named(stored.table, str(stored.values['id']))} comes from no event"
    return VerifyFinding(StreamId(printable(str(owner))), seq if isinstance(seq, int) else 0, what, is_of_row=True)


def misindexed_text(text: Misindexed) -> VerifyFinding:
    what = "the index has words of a text that is not there" if text.is_stray else "the index lacks its text"
    return VerifyFinding(StreamId(printable(text.stream)), text.seq, what, is_of_row=True)


def _unequal_fields(stream: StreamId, stored: StoredRow, row: Row) -> Iterator[VerifyFinding]:
    expected = msgspec.to_builtins(row)
    if stored.values == expected:  # A boolean equals the integer it is stored as.
        return
    place = _named(stored.table, row.id)
    for field, value in expected.items():
        found = stored.values.get(field)
        if found != value:
            yield VerifyFinding(stream, row.seq, f"{place}: {_difference(field, found, value)}", is_of_row=True)


def _difference(field: str, found: object, expected: object) -> str:
    is_number = all(value is None or isinstance(value, int) for value in (found, expected))
    if is_number or field in _WORD_FIELDS:
        return f"{field} is {_shown(found)}, its events say {_shown(expected)}"
    return f"{field} is not what its events say"


def _shown(value: object) -> str:
    if value is None:
        return "null"
    return printable(str(int(value) if isinstance(value, bool) else value))


def _named(table: str, row_id: str) -> str:
    # The id of a usage row ends in the name of a model, which is configuration and no one's secret.
    return f"{table} row {printable(row_id)}"


def printable(text: str) -> str:
    """Removes what could move the reader's cursor or fill the screen: an edited row may hold anything."""
    shown = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= _SHOWN_LENGTH_MAX else shown[:_SHOWN_LENGTH_MAX] + "…"
