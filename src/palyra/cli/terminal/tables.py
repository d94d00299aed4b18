"""Tables for people: with colours on a terminal, plain columns elsewhere.

Does not own: their content.
"""

import sys
from collections.abc import Sequence

from palyra.cli.output import print_line
from palyra.cli.terminal.style import cells, shown, style_for

NOTHING = "–"


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Prints rows as a table, or `empty` if there are none."""
    texts = [[" ".join(shown(str(NOTHING if value in (None, "") else value)).split()) for value in row] for row in rows]
    if not texts:
        print_line(empty)
    elif style_for(sys.stdout).is_coloured:
        _print_table(columns, texts)
    else:
        _print_plain(columns, texts)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, no_wrap=index == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    Console().print(table)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [list(columns), *rows]
    widths = [max(cells(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        padded = (value + " " * (width - cells(value)) for value, width in zip(line, widths, strict=True))
        print_line("  ".join(padded).rstrip())
