"""Shows what tools print while they run, line by line, each line once.

Does not own: how a call ended (transcript).
A frame repeats what was sent before if its offset is lower, so only what is new is taken. After LINES_MAX lines of a
call its output goes on unseen, and the end of the call shows the last of it.
"""

from collections.abc import Callable

from palyra.cli.terminal.style import shown

LINES_MAX = 200
LINE_CHARS_MAX = 500


class LiveOutput:
    """The calls of one run. `print_line` gets whole lines, cleaned."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._taken: dict[tuple[object, object], int] = {}
        self._open: dict[tuple[object, object], str] = {}
        self._lines: dict[object, int] = {}

    def take(self, call_id: object, stream: object, offset: object, text: object) -> None:
        key = (call_id, stream)
        taken = self._taken.get(key, 0)
        if not isinstance(text, str) or not isinstance(offset, int) or offset > taken:
            return
        new = text[taken - offset :]
        self._taken[key] = taken + len(new)
        *whole, rest = (self._open.get(key, "") + new).split("\n")
        for line in whole:
            self._show(call_id, line)
        self._open[key] = rest[:LINE_CHARS_MAX]

    def end(self, call_id: object) -> bool:
        """Shows lines that did not end. Returns whether all the call printed was shown, if it printed anything."""
        for key in [each for each in self._open if each[0] == call_id]:
            rest = self._open.pop(key)
            if rest:
                self._show(call_id, rest)
        return 0 < self._lines.pop(call_id, 0) <= LINES_MAX

    def clear(self) -> None:
        for known in (self._taken, self._open, self._lines):
            known.clear()

    def _show(self, call_id: object, line: str) -> None:
        count = self._lines[call_id] = self._lines.get(call_id, 0) + 1
        if count <= LINES_MAX:
            self._print_line(shown(line[:LINE_CHARS_MAX].rstrip("\r")))
        elif count == LINES_MAX + 1:
            self._print_line("…")
