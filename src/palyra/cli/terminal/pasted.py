"""Which characters of the line being typed were pasted, however the line is edited around them.

Owns: a mark for each character, kept through every change. Does not own: keys (edited_prompt), what follows (conversation).
Invariants: a change of more than one character that nobody explains counts as a paste. Where a change could be read in
two ways, a character counts as pasted if it does so in either. So a pasted character never becomes a typed one.
"""

from collections.abc import Sequence
from itertools import groupby

STATES_MAX = 400  # Earlier states of the line that an undo, a yank or an earlier line may bring back.
STATE_CHARS_MAX = 4_096


class PastedMarks:
    def __init__(self) -> None:
        self._text = ""
        self._marks = b""
        self._states: dict[str, bytes] = {}

    def clear(self) -> None:
        self._text, self._marks = "", b""

    def change(self, text: str, cursor: int, *, is_paste: bool, is_known: bool, is_key: bool = False) -> None:
        """Follows one change. `is_known` says that a person typed it, or chose it: a completion, an earlier line.

        `is_key` says that it is one key, so that it brings no earlier state back, even where the text is the same.
        """
        marks = None if is_paste or is_key else self._states.get(text)
        self._marks = marks if marks is not None else self._changed(text, cursor, is_paste, is_known)
        self._text = text
        if len(text) <= STATE_CHARS_MAX:
            self._states.pop(text, None)
            self._states[text] = self._marks
        while len(self._states) > STATES_MAX:
            del self._states[next(iter(self._states))]

    def has_paste(self) -> bool:
        return 1 in self._marks

    def typed(self) -> str | None:
        """Returns the typed pieces of the line without the blanks around it, one a line; None if all of it was typed."""
        start = len(self._text) - len(self._text.lstrip())
        stop = len(self._text.rstrip())
        if 1 not in self._marks[start:stop]:
            return None
        return "\n".join(piece for mark, piece in self._runs(start, stop) if not mark and piece.strip())

    def head(self) -> str:
        """Returns the typed piece with which the line begins."""
        start = len(self._text) - len(self._text.lstrip())
        mark, piece = next(iter(self._runs(start, len(self._text))), (1, ""))
        return "" if mark else piece

    def _runs(self, start: int, stop: int) -> Sequence[tuple[int, str]]:
        runs: list[tuple[int, str]] = []
        for mark, places in groupby(range(start, stop), key=self._marks.__getitem__):
            first, *others = places
            runs.append((mark, self._text[first : (others or [first])[-1] + 1]))
        return runs

    def _changed(self, text: str, cursor: int, is_paste: bool, is_known: bool) -> bytes:
        old, grown = self._text, len(text) - len(self._text)
        mark = b"\0" if is_known or (not is_paste and grown <= 1) else b"\1"
        if grown > 0 and text[: cursor - grown] + text[cursor:] == old and cursor >= grown:
            place = cursor - grown
            return self._marks[:place] + mark * grown + self._marks[place:]
        if grown < 0 and old[:cursor] + old[cursor - grown :] == text:
            return self._marks[:cursor] + self._marks[cursor - grown :]
        mark = b"\0" if is_known else b"\1"
        first, second = self._from_left(text, mark), self._from_right(text, mark)
        return bytes(one | other for one, other in zip(first, second, strict=True))

    def _from_left(self, text: str, mark: bytes) -> bytes:
        """Reads the change as one behind as many equal characters as there are."""
        before = _shared(self._text, text, min(len(self._text), len(text)))
        behind = _shared(self._text[::-1], text[::-1], min(len(self._text), len(text)) - before)
        return self._put(text, before, behind, mark)

    def _from_right(self, text: str, mark: bytes) -> bytes:
        behind = _shared(self._text[::-1], text[::-1], min(len(self._text), len(text)))
        before = _shared(self._text, text, min(len(self._text), len(text)) - behind)
        return self._put(text, before, behind, mark)

    def _put(self, text: str, before: int, behind: int, mark: bytes) -> bytes:
        end = self._marks[len(self._marks) - behind :]
        return self._marks[:before] + mark * (len(text) - before - behind) + end


def _shared(one: str, other: str, most: int) -> int:
    count = 0
    while count < most and one[count] == other[count]:
        count += 1
    return count
