"""A prompt for terminals that cannot move their cursor: whole lines in, plain text out.

Owns: reading lines from the terminal, and writing the label before them.
Does not own: editing, which the terminal itself does.
"""

import asyncio
import codecs
import os
import sys
from typing import TextIO

from palyra.cli.terminal.inbox import InputEnded, Interrupted, Put, Typed
from palyra.cli.terminal.questions import CardQuestion, label_of

READ_BYTES_MAX = 65_536
LINE_LENGTH_MAX = 1_000_000


class PlainPrompt:
    def __init__(self, put: Put, out: TextIO) -> None:
        self._put = put
        self._out = out
        self._question: CardQuestion | None = None
        self._is_busy = False
        self._is_open = False
        self._is_within_line = False
        self._label = ""  # The label at the end of the output, before the line.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.typed = ""

    def open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        self._show_label()

    async def close(self) -> None:
        self._is_open = False
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    def ask(self, question: CardQuestion | None, hint: str) -> None:
        self._question, self._is_busy = question, question is None and bool(hint)
        self._show_label()

    def replace(self, text: str) -> None:
        """Does nothing: such a terminal cannot take a line back."""

    def interrupt(self) -> None:
        self.typed, self._label = "", ""
        self._put(Interrupted())

    def text(self, text: str) -> None:
        if text:
            self._leave_label()
            self._write(text)

    def end_line(self) -> None:
        if self._is_within_line:
            self._write("\n")

    def line(self, line: str) -> None:
        self._leave_label()
        self.end_line()
        self._write(f"{line}\n")
        self._show_label()

    def _show_label(self) -> None:
        label = label_of(self._question)
        if self._is_open and not self._is_busy and self._label != label:
            self._leave_label()
            self.end_line()
            self._out.write(label)
            self._out.flush()
            self._label = label

    def _leave_label(self) -> None:
        if self._label:
            self._label = ""
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._is_within_line = not text.endswith("\n")

    def _read(self) -> None:
        try:
            arrived = os.read(sys.stdin.fileno(), READ_BYTES_MAX)
        except OSError:  # The terminal was closed.
            arrived = b""
        if not arrived:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._put(InputEnded())
        *lines, rest = (self.typed + self._decoder.decode(arrived)).split("\n")
        self.typed = rest[:LINE_LENGTH_MAX]
        for line in filter(str.strip, lines):
            self._put(Typed(line.strip(), self._question))
        if lines:
            self._label, self._is_within_line = "", False
            self._show_label()
