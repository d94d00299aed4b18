"""Tables for people: with colours on a terminal, plain columns elsewhere.

Does not own: their content.
Invariant: on a terminal no line is wider than it, and no word is split that fits into a line.
"""

import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest

from palyra.cli.output import print_line, print_styled
from palyra.cli.terminal.style import Style, cells, shown, style_for
from palyra.cli.terminal.word_wrap import wrap

NOTHING = "–"
GAP = "  "


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Prints rows as a table, or `empty` if there are none."""
    texts = [[" ".join(shown(str(NOTHING if value in (None, "") else value)).split()) for value in row] for row in rows]
    style = style_for(sys.stdout)
    if not texts:
        print_line(empty)
    elif sys.stdout.isatty():
        _print_fitted(columns, texts, style)
    else:
        _print_plain(columns, texts)


def _print_fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> None:
    room = shutil.get_terminal_size().columns
    widths = _fitted_widths(columns, rows, room)
    if widths is None:
        _print_blocks(columns, rows, style, room)
        return
    for place, row in enumerate([columns, *rows]):
        parts = [wrap(value, width, "") for value, width in zip(row, widths, strict=True)]
        for line in zip_longest(*parts, fillvalue=""):
            padded = _padded(line, widths)
            print_styled(padded if place else style.dim(padded))


def _fitted_widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Returns the widths of the columns, or None if a word would have to be split.

    The widest column gives way first. The first column is never wrapped.
    """
    table = list(zip(*[columns, *rows], strict=True))
    widths = [max(cells(text) for text in column) for column in table]
    longest_words = [max(cells(word) for text in column for word in text.split()) for column in table]
    least = [widths[0], *longest_words[1:]]
    while sum(widths) + len(GAP) * (len(widths) - 1) > room:
        spare = [place for place, width in enumerate(widths) if width > least[place]]
        if not spare:
            return None
        widths[max(spare, key=lambda place: widths[place])] -= 1
    return widths


def _print_blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], style: Style, room: int) -> None:
    """Prints each row as lines of its own, for a terminal that is too narrow for the table."""
    title_width = max(cells(column) for column in columns)
    margin = " " * (title_width + 2 * len(GAP))
    for place, row in enumerate(rows):
        if place:
            print_line("")
        print_styled(style.bold(row[0]))
        for column, value in zip(columns[1:], row[1:], strict=True):
            if value == NOTHING:
                continue
            title = f"{GAP}{column}".ljust(len(margin))
            first, *rest = wrap(title + value, room, margin)
            print_styled(first.replace(column, style.dim(column), 1))
            for line in rest:
                print_line(line)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [list(columns), *rows]
    widths = [max(cells(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        print_line(_padded(line, widths))


def _padded(values: Sequence[str], widths: Sequence[int]) -> str:
    padded = (value + " " * (width - cells(value)) for value, width in zip(values, widths, strict=True))
    return GAP.join(padded).rstrip()
