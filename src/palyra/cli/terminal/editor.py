"""The line being typed. Owns: its text, the cursor, and what was typed before. Not: drawing it (screen)."""

from palyra.cli.terminal.keys import Press, TypedKey
from palyra.cli.terminal.style import cells

HISTORY_MAX = 500
LINE_END_SHOWN = "⏎"


class Editor:
    def __init__(self) -> None:
        self.text = ""
        self._cursor = 0
        self._history: list[str] = []
        self._place = 0

    def press(self, key: TypedKey) -> str | None:
        """The finished line on Enter, else None."""
        match key.press:
            case Press.ENTER:
                return self._finish()
            case Press.TEXT:
                self._put(key.text)
            case Press.BACKSPACE:
                self._cut(max(0, self._cursor - 1), self._cursor)
            case Press.DELETE:
                self._cut(self._cursor, self._cursor + 1)
            case Press.LINE_BACK:
                self._cut(0, self._cursor)
            case Press.WORD_BACK:
                self._cut(self._word_start(), self._cursor)
            case Press.UP | Press.DOWN:
                self._recall(-1 if key.press is Press.UP else 1)
            case _:
                self._move(key.press)
        return None

    def replace(self, text: str) -> None:
        self.text, self._cursor = text, len(text)

    def visible(self, width: int) -> tuple[str, int]:
        """The part around the cursor that fits into `width` columns, and the cursor's column in it."""
        text = self.text.replace("\n", LINE_END_SHOWN)
        start = self._cursor
        while start > 0 and cells(text[start - 1 : self._cursor]) < width:
            start -= 1
        end = start
        while end < len(text) and cells(text[start : end + 1]) < width:
            end += 1
        return text[start:end], cells(text[start : self._cursor])

    def _finish(self) -> str:
        line = self.text
        if line.strip() and self._history[-1:] != [line]:
            self._history = [*self._history, line][-HISTORY_MAX:]
        self._place = len(self._history)
        self.replace("")
        return line

    def _put(self, text: str) -> None:
        self.text = self.text[: self._cursor] + text + self.text[self._cursor :]
        self._cursor += len(text)

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self._cursor = start

    def _word_start(self) -> int:
        before = self.text[: self._cursor].rstrip()
        return max(before.rfind(" "), before.rfind("\n")) + 1

    def _recall(self, step: int) -> None:
        place = self._place + step
        if 0 <= place <= len(self._history):
            self._place = place
            self.replace(self._history[place] if place < len(self._history) else "")

    def _move(self, press: Press) -> None:
        targets = {
            Press.LEFT: self._cursor - 1,
            Press.RIGHT: self._cursor + 1,
            Press.HOME: 0,
            Press.END: len(self.text),
        }
        self._cursor = max(0, min(len(self.text), targets.get(press, self._cursor)))
