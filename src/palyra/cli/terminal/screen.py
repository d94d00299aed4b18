"""A terminal with a line to type in at its bottom. Owns: raw mode, drawing that line, and what is printed above it.

While someone types during a run, what the run says is held back until the line is sent or cleared, so that the two are
never mixed. Invariant: the terminal gets its own mode back, however the chat ends.
"""

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from palyra.cli.terminal.editor import Editor
from palyra.cli.terminal.style import Style

_CLEAR = "\r\x1b[K"
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
WIDTH_DEFAULT = 80


class Screen:
    def __init__(self, editor: Editor, ink: Style) -> None:
        self._editor = editor
        self._ink = ink
        self._held: list[str] = []
        self._is_within_line = False
        self._is_prompt_drawn = False
        self.prompt = "› "
        self.is_quiet = True  # Nothing is running: the prompt is there to be seen.

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The terminal gives every key at once, Ctrl-C too, until this ends."""
        descriptor = sys.stdin.fileno()
        mode = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor, termios.TCSANOW)
            raw = termios.tcgetattr(descriptor)
            raw[3] &= ~termios.ISIG
            termios.tcsetattr(descriptor, termios.TCSANOW, raw)
            self._write(_PASTE_ON)
            yield
        finally:
            self._hide()
            self._write(_PASTE_OFF)
            termios.tcsetattr(descriptor, termios.TCSANOW, mode)

    def text(self, text: str) -> None:
        """A piece of text that may end within a line."""
        if self._is_holding:
            self._held.append(text)
        elif text:
            self._hide()
            self._write(text)
            self._is_within_line = not text.endswith("\n")
            self.draw()

    def end_line(self) -> None:
        """Goes to a new line, unless it is at one."""
        if not self._is_holding:
            self._break()
        elif not "".join(self._held[-1:]).endswith("\n"):
            self._held.append("\n")

    def line(self, line: str) -> None:
        """A line of its own."""
        if self._is_holding:
            self.end_line()
            self._held.append(f"{line}\n")
            return
        self._hide()
        self._break()
        self._write(f"{line}\n")
        self.draw()

    def draw(self) -> None:
        """The line being typed, where it is to be seen."""
        self._hide()
        if not self._is_prompt_wanted:
            self._release()
            return
        self._break()
        width = self._width() - len(self.prompt)
        visible, column = self._editor.visible(max(8, width))
        back = f"\r\x1b[{len(self.prompt) + column}C"
        self._write(f"{self._ink.cyan(self.prompt)}{visible}{back}")
        self._is_prompt_drawn = True

    def commit(self, line: str) -> None:
        """What was typed becomes part of what is above."""
        self._hide()
        self._break()
        self._write(f"{self._ink.cyan(self.prompt)}{self._ink.bold(line)}\n")
        self._release()

    def clear(self) -> None:
        self._write("\x1b[H\x1b[2J")
        self._is_prompt_drawn = self._is_within_line = False
        self.draw()

    @property
    def _is_holding(self) -> bool:
        return bool(self._editor.text) and not self.is_quiet

    @property
    def _is_prompt_wanted(self) -> bool:
        return self.is_quiet or bool(self._editor.text)

    def _release(self) -> None:
        held, self._held = "".join(self._held), []
        if held:
            self._write(held if self._is_within_line else held.removeprefix("\n"))
            self._is_within_line = not held.endswith("\n")

    def _hide(self) -> None:
        if self._is_prompt_drawn:
            self._write(_CLEAR)
            self._is_prompt_drawn = False

    def _break(self) -> None:
        if self._is_within_line:
            self._write("\n")
            self._is_within_line = False

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _width(self) -> int:
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH_DEFAULT
        except OSError:
            return WIDTH_DEFAULT
