"""Reads CSV and TSV as a table of lines, one row each.

A cell is one line; a bar in it gets a backslash, so that it is told apart from the bars between cells.
Invariant: all rows are counted, however many are shown.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator

from palyra.core.plurals import counted
from palyra.core.spelling import strip_unseen
from palyra.ports.readable import ReadableText

DELIMITERS = ",;\t|"
_LOOK_CHARS = 16 * 1024  # The beginning that tells which sign stands between cells.
_LOOK_ROWS = 20
_CELL_CHARS_MAX = 64 * 1024 * 1024  # No cell is longer than a whole document; the module's own limit is far lower.


def read_table(text: str, media_type: str, chars_max: int) -> ReadableText:
    csv.field_size_limit(_CELL_CHARS_MAX)
    delimiter = "\t" if "tab-separated" in media_type else _find_delimiter(text)
    lines: list[str] = []
    rows_count = columns_count = length = 0
    is_full = False
    for row in _rows(text, delimiter):
        rows_count += 1
        columns_count = max(columns_count, len(row))
        if is_full:
            continue
        line = " | ".join(map(_cell, row))
        length += len(line) + 1
        is_full = length > chars_max + 1
        if not is_full or not lines:
            lines.append(line[:chars_max])
    shown_count = len(lines) - (is_full and len(lines) == 1)
    detail = f"{counted(rows_count, 'row')} of {counted(columns_count, 'column')}"
    if is_full:
        detail += f"; the first {shown_count} fit here" if shown_count else "; not even the first fits here"
    return ReadableText(text="\n".join(lines), is_cut=is_full, detail=detail)


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yields the rows that are not empty."""
    return (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row)


def _cell(cell: str) -> str:
    return " ".join(strip_unseen(cell).split()).replace("|", "\\|")


def _find_delimiter(text: str) -> str:
    """Returns the sign that gives most of the first rows the same number of columns, more than one."""
    start = text[:_LOOK_CHARS]
    scored = {sign: _agreement(start, sign) for sign in DELIMITERS}
    return max(DELIMITERS, key=lambda sign: scored[sign])


def _agreement(start: str, delimiter: str) -> tuple[int, int]:
    widths = [len(row) for row, _ in zip(_rows(start, delimiter), range(_LOOK_ROWS), strict=False)]
    wide = Counter(width for width in widths if width > 1)
    if not wide:
        return 0, 0
    width, count = wide.most_common(1)[0]
    return count, width
