"""Bounded buffers for output: the beginning and end of a text of any length, and a window that moves along it.

Does not own: cleaning the text (text).
Lengths count characters.
Invariant: no buffer ever holds more than its constant says.
"""

from collections import deque

KEPT_LENGTH_MAX = 1024 * 1024  # Half of it is for the beginning, half for the end.
WINDOW_LENGTH_MAX = 256 * 1024
PIECES_MAX = 1024  # A program may print letter by letter, and each piece costs more than its letter.


class OutputWindow:
    """The last part of a text that goes on."""

    def __init__(self, length_max: int) -> None:
        self._length_max = length_max
        self._pieces: deque[str] = deque()
        self._length = 0
        self.end = 0  # Counts all characters so far.

    @property
    def start(self) -> int:
        return self.end - self._length

    def add(self, text: str) -> None:
        self.end += len(text)
        text = text[-self._length_max :]
        self._pieces.append(text)
        self._length += len(text)
        while self._length - len(self._pieces[0]) >= self._length_max:
            self._length -= len(self._pieces.popleft())
        if self._length > self._length_max:
            over = self._length - self._length_max
            self._pieces[0] = self._pieces[0][over:]
            self._length -= over
        if len(self._pieces) > PIECES_MAX:
            self._pieces = deque(["".join(self._pieces)])

    def read(self, offset: int) -> str:
        """Returns the text from this offset on, or from where the window begins."""
        return "".join(self._pieces)[max(0, offset - self.start) :]


class HeadAndTail:
    """The beginning and the end of a text."""

    def __init__(self, length_max: int = KEPT_LENGTH_MAX) -> None:
        self._head: list[str] = []
        self._head_left = length_max // 2
        self._tail = OutputWindow(length_max - self._head_left)

    def add(self, text: str) -> None:
        if self._head_left > 0:
            self._head.append(text[: self._head_left])
            if len(self._head) > PIECES_MAX:
                self._head = ["".join(self._head)]
            text, self._head_left = text[self._head_left :], max(0, self._head_left - len(text))
        if text:
            self._tail.add(text)

    def text(self) -> str:
        head, tail = "".join(self._head), self._tail.read(0)
        left_out = self._tail.start
        if not left_out:
            return head + tail
        return f"{head}\n[{left_out} characters are left out here]\n{tail}"
