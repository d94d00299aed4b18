"""Terminals for tests. Owns: a command in a pseudo-terminal, what it shows, and the keys it is given."""

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
WAIT_S = 10.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """`seen` is all it showed, without codes and carriage returns."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._main, inner = os.openpty()
        self._place = 0
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "palyra", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,  # Else a hidden question would go to the terminal that the tests were started from.
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": "100", **environment},
        )
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._main)

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def mode(self) -> list[object]:
        return list(termios.tcgetattr(self._main)[:4])

    def expect(self, text: str) -> str:
        """Waits until the text is shown after what was expected before; gives what came in between."""
        end_s = time.monotonic() + WAIT_S
        while (found := self.seen.find(text, self._place)) < 0:
            if not self._read(end_s - time.monotonic()):
                raise AssertionError(f"{text!r} was never shown after {self.seen[self._place :]!r}")
        between, self._place = self.seen[self._place : found], found + len(text)
        return between

    def wait(self) -> int:
        """The exit code."""
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
        except OSError:  # On Linux the end of a pseudo-terminal.
            return False
        self.seen += _CODES.sub("", arrived.decode("utf-8", "replace"))
        return bool(arrived)
