"""Tables for people: with colours on a terminal, plain columns elsewhere.

Does not own: their content.
"""

import sys
from collections.abc import Sequence

from palyra.cli.output import print_line
from palyra.cli.terminal.style import cells, shown, style_for

NOTHING = "–"
GAP = "  "


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

    console = Console()
    widths = _least_widths(columns, rows)
    if sum(widths) + len(GAP) * (len(widths) - 1) > console.width:
        _print_blocks(columns, rows)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        table.add_column(column, no_wrap=index == 0, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    console.print(table)


def _least_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns the widths at which no word is split. The first column is never wrapped."""
    first, *others = zip(*[columns, *rows], strict=True)
    longest_words = [max(cells(word) for text in column for word in text.split()) for column in others]
    return [max(cells(text) for text in first), *longest_words]


def _print_blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints each row as lines of its own, for a terminal that is too narrow for the table."""
    style, title_width = style_for(sys.stdout), max(cells(column) for column in columns)
    for place, row in enumerate(rows):
        if place:
            print_line("")
        print_line(style.bold(row[0]))
        for column, value in zip(columns[1:], row[1:], strict=True):
            if value != NOTHING:
                print_line(f"{GAP}{style.dim(column)}{' ' * (title_width - cells(column))}{GAP}{value}")


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [list(columns), *rows]
    widths = [max(cells(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        padded = (value + " " * (width - cells(value)) for value, width in zip(line, widths, strict=True))
        print_line(GAP.join(padded).rstrip())
