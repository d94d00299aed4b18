"""Terminals for tests: a command in a pseudo-terminal, what it shows, and the keys it receives."""

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

from tests.support.waiting import WAIT_S

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 100, 30
# Without gRPC, whose usual port only one of the daemons that tests run side by side could have.
_OWN = {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": str(COLUMNS), "PALYRA_SERVER__GRPC": "off"}
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """`raw` is all output, `seen` the same without codes and carriage returns, `screen` what a person would see."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._main, inner = os.openpty()
        self._place = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._emulator = pyte.HistoryScreen(COLUMNS, ROWS, history=1000)
        self._stream = pyte.Stream(self._emulator)
        self._set_size(COLUMNS, ROWS)
        self.seen = ""
        self.raw = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palyra", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,  # Otherwise a hidden question would go to the terminal that started the tests.
            env={**os.environ, **_OWN, **environment},
        )
        self._name = os.ttyname(inner)
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        if self._main >= 0:
            os.close(self._main)

    def hang_up(self) -> None:
        """Closes the terminal, as closing its window does."""
        os.close(self._main)
        self._main = -1

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def type_apart(self, *pieces: str) -> None:
        """Types each piece after the one before was read."""
        inner = os.open(self._name, os.O_RDWR | os.O_NOCTTY)
        try:
            for piece in pieces:
                self.type(piece)
                end_s = time.monotonic() + WAIT_S
                while struct.unpack("i", fcntl.ioctl(inner, termios.FIONREAD, b"\0" * 4))[0]:
                    assert time.monotonic() < end_s, "nobody reads what was typed"
                    self._read(0.005)
        finally:
            os.close(inner)

    def resize(self, columns: int, rows: int) -> None:
        self._emulator.resize(rows, columns)
        self._set_size(columns, rows)
        self.process.send_signal(signal.SIGWINCH)  # The kernel signals only the controlling process, and here is none.

    @property
    def screen(self) -> str:
        """Returns every line, scrolled ones first, without the blanks at their ends."""
        above = ["".join(line[column].data for column in sorted(line)) for line in self._emulator.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self._emulator.display]).rstrip("\n")

    def expect_screen(self, text: str) -> str:
        """Waits until the text is on the screen, and returns the screen."""
        end_s = time.monotonic() + WAIT_S
        while text not in self.screen:
            if not self._read(end_s - time.monotonic()):
                raise AssertionError(f"{text!r} was never on the screen:\n{self.screen}")
        return self.screen

    def expect_last_line(self, line: str) -> None:
        """Waits until the last line that is not empty is this one."""
        end_s = time.monotonic() + WAIT_S
        while self.screen.rpartition("\n")[2] != line:
            if not self._read(end_s - time.monotonic()):
                raise AssertionError(f"{line!r} was never the last line of:\n{self.screen}")

    def expect_blank_prompt(self) -> None:
        self.expect_last_line("›")

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def mode(self) -> list[object]:
        return list(termios.tcgetattr(self._main)[:4])

    def expect(self, text: str) -> str:
        """Waits until the text appears after what was expected before, and returns the text in between."""
        end_s = time.monotonic() + WAIT_S
        while (found := self.seen.find(text, self._place)) < 0:
            if not self._read(end_s - time.monotonic()):
                raise AssertionError(f"{text!r} was never shown after {self.seen[self._place :]!r}")
        between, self._place = self.seen[self._place : found], found + len(text)
        return between

    def wait(self) -> int:
        """Waits for the end, and returns the exit code."""
        end_s = time.monotonic() + WAIT_S
        while self._read(end_s - time.monotonic()):
            pass
        return self.process.wait(WAIT_S)

    def _read(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], max(0.0, timeout_s))
        if not ready:
            return False
        try:
            arrived = os.read(self._main, 65_536)
        except OSError:  # Linux reports the end of a pseudo-terminal this way.
            return False
        text = self._decoder.decode(arrived)
        self._stream.feed(text)
        self.raw += text
        self.seen += _CODES.sub("", text)
        return bool(arrived)
