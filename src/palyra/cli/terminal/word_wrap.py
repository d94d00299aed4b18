"""Breaks text into lines between words, for a terminal of a given width.

Owns: whole texts (`wrap`), and an answer that streams (`WordWrap`).
Does not own: colours (style), where text is written (prompt, run_view).
Invariants: a word goes to the next line only if it fits there. Streamed text is never changed otherwise: with the line
breaks and spaces taken out, what comes out is what went in. Lines of code blocks are left to the terminal, so that
code can be copied as it is.
"""

import re
import shutil
import unicodedata
from collections.abc import Callable, Iterable
from typing import TextIO

from palyra.cli.terminal.style import cells, shown

TAB_CELLS = 8
LINE_START_MAX = 40  # Enough of a line to tell a code fence and a list.
_SYMBOLS = re.compile(r"\x1b\[[0-9;]*m|.", re.DOTALL)
_FENCE = re.compile(r"\s{0,3}(```|~~~)(?!.*\1)")
_CODES = re.compile(r"\x1b\[[0-9;]*m")
_MARKS = re.compile(r"[-*+•·▸✓✗!?›]|\d{1,3}[.)]")  # What begins an item of a list, or a line of ours.
_ZERO_WIDTH_JOINER = "\u200d"


def wrap(text: str, columns: int, indent: str) -> list[str]:
    """Wraps text to lines of at most `columns` columns. Further lines are indented, and overlong words are broken."""
    lines: list[str] = []
    line = ""
    for word in _pieces(shown(text).replace("\n", " "), columns - cells(indent)):
        joined = f"{line}{word}"
        if line.strip() and cells(joined.rstrip()) > columns:
            lines.append(line.rstrip())
            joined = f"{indent}{word.lstrip()}"
        line = joined
    return [*lines, line.rstrip()]


def _pieces(text: str, room: int) -> Iterable[str]:
    """Yields words with the spaces before them, none wider than `room`."""
    word = ""
    for character in text:
        is_next = character == " " and word.strip()
        if is_next or cells(word + character) > max(1, room):
            yield word
            word = ""
        word += character
    yield word


def fit(text: str, stream: TextIO) -> str:
    """Returns text of several lines, wrapped if the stream is a terminal. A pipe takes lines of any length."""
    return wrap_lines(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def wrap_lines(text: str, columns: int) -> str:
    """Wraps text of several lines, which may have our own colours."""
    lines = WordWrap(lambda: columns)
    return lines.add(text) + lines.end()


class WordWrap:
    """Breaks lines of text that arrives in pieces.

    `held` is the end of what was added: a word that may go on. It fits into the line, or there is no line it fits into.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._is_code = False
        self._begin_line()

    def add(self, text: str) -> str:
        """Returns what can be written now."""
        return "".join(map(self._take, _SYMBOLS.findall(text)))

    def end_line(self) -> str:
        """Returns what is held. What is added next begins a line of its own."""
        held = self.held
        self._begin_line()
        return held

    def end(self) -> str:
        """Ends the text: returns what is held. The next text is outside any code block."""
        self._is_code = False
        return self.end_line()

    @property
    def held(self) -> str:
        return self._gap + self._word

    def _begin_line(self) -> None:
        self._start = ""  # The beginning of the line, as it was added.
        self._indent: int | None = None  # Where further lines of the paragraph begin; None before the first word.
        self._column = 0
        self._gap = ""
        self._word = ""
        self._is_overlong = False

    def _take(self, symbol: str) -> str:
        if symbol == "\n":
            return self._break_line()
        if len(self._start) < LINE_START_MAX:
            self._start += symbol
        if self._is_code:
            return symbol
        if symbol in " \t":
            written = self._write_word()
            self._is_overlong = False
            self._gap += symbol
            return written
        is_break = bool(self._word) and _is_break(self._word[-1], symbol)
        written = self._write_word() if is_break or self._is_overlong else ""
        self._word += symbol
        return written + self._break()

    def _break_line(self) -> str:
        held, is_fence = self.held, _FENCE.match(self._start) is not None
        self._is_code = self._is_code is not is_fence
        self._begin_line()
        return f"{held}\n"

    def _write_word(self) -> str:
        if not self._word:
            return ""
        written = self.held
        if self._indent is None:
            self._indent = _indent_below(self._gap, self._word)
        self._column += _width(written, self._column)
        self._gap = self._word = ""
        return written

    def _break(self) -> str:
        """Goes to the next line if the word does not fit into this one. A word that fits nowhere is written as it is:
        the terminal breaks it, and it can be copied whole.
        """
        columns = max(1, self._columns())
        indent = self._indent if self._indent is not None and self._indent <= columns // 2 else 0
        if self._column + _width(self.held, self._column) <= columns:
            return ""
        is_begun = self._indent is not None and self._column > indent
        if is_begun and not self._is_overlong and indent + _width(self._word, indent) <= columns:
            self._column, self._gap = indent, ""
            return "\n" + " " * indent
        self._is_overlong = True
        written = self._write_word()
        self._column = (self._column - 1) % columns + 1
        return written


def _indent_below(gap: str, word: str) -> int:
    """Returns where the further lines of a paragraph begin: below its first word, or below the text of a list item."""
    mark = _CODES.sub("", word)
    return _width(gap, 0) + (cells(mark) + 1 if _MARKS.fullmatch(mark) else 0)


def _is_break(before: str, symbol: str) -> bool:
    """Tells whether a line may be broken between two characters of a script that is written without spaces."""
    if not cells(symbol) or symbol.startswith("\x1b") or before == _ZERO_WIDTH_JOINER:
        return False
    if unicodedata.category(symbol) in ("Pe", "Pf", "Po") or unicodedata.category(before) in ("Ps", "Pi"):
        return False
    return cells(symbol) == 2 or cells(before) == 2


def _width(text: str, column: int) -> int:
    """Returns how many columns the text takes if it begins at this one."""
    start = column
    for symbol in _SYMBOLS.findall(text):
        if symbol == "\t":
            column += TAB_CELLS - column % TAB_CELLS
        elif not symbol.startswith("\x1b"):
            column += cells(symbol)
    return column - start
