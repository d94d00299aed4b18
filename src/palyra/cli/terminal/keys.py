"""Keys. Owns: what a terminal sends to the keys that were pressed, however it was cut on the way. Not: acting on them."""

import re
from enum import Enum

import msgspec

_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])")
_PARTIAL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?\Z")
PASTE_LENGTH_MAX = 1_000_000


class Press(Enum):
    TEXT = "text"
    ENTER = "enter"
    BACKSPACE = "backspace"
    DELETE = "delete"
    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"
    HOME = "home"
    END = "end"
    WORD_BACK = "word_back"
    LINE_BACK = "line_back"
    REDRAW = "redraw"
    INTERRUPT = "interrupt"
    LEAVE = "leave"


class TypedKey(msgspec.Struct, frozen=True):
    press: Press
    text: str = ""


_CONTROLS = {
    "\r": Press.ENTER,
    "\n": Press.ENTER,
    "\x7f": Press.BACKSPACE,
    "\x08": Press.BACKSPACE,
    "\x01": Press.HOME,
    "\x05": Press.END,
    "\x02": Press.LEFT,
    "\x06": Press.RIGHT,
    "\x0e": Press.DOWN,
    "\x10": Press.UP,
    "\x03": Press.INTERRUPT,
    "\x04": Press.LEAVE,
    "\x0c": Press.REDRAW,
    "\x15": Press.LINE_BACK,
    "\x17": Press.WORD_BACK,
}
_SEQUENCES = {
    "A": Press.UP,
    "B": Press.DOWN,
    "C": Press.RIGHT,
    "D": Press.LEFT,
    "H": Press.HOME,
    "F": Press.END,
    "1~": Press.HOME,
    "7~": Press.HOME,
    "4~": Press.END,
    "8~": Press.END,
    "3~": Press.DELETE,
}


class KeyReader:
    """Fed with what arrives, gives the keys that are complete. Pasted text is text, line ends and all."""

    def __init__(self) -> None:
        self._rest = ""
        self._pasted: str | None = None

    def feed(self, arrived: str) -> list[TypedKey]:
        self._rest += arrived
        keys: list[TypedKey] = []
        while self._rest and not self._is_waiting():
            key = self._take() if self._pasted is None else self._take_pasted()
            keys += [] if key is None else [key]
        return keys

    def _is_waiting(self) -> bool:
        """Whether the rest may be the beginning of something longer."""
        if self._pasted is not None:
            return any(_PASTE_END.startswith(self._rest[place:]) for place in range(len(self._rest)) if place == 0)
        return _PARTIAL.match(self._rest) is not None

    def _take(self) -> TypedKey | None:
        if self._rest.startswith(_PASTE_START):
            self._rest, self._pasted = self._rest[len(_PASTE_START) :], ""
            return None
        sequence = _SEQUENCE.match(self._rest)
        if sequence is not None:
            self._rest = self._rest[sequence.end() :]
            press = _SEQUENCES.get(sequence[0][2:])
            return None if press is None else TypedKey(press)
        return self._take_letters()

    def _take_letters(self) -> TypedKey | None:
        """Letters that arrived together are one key's text."""
        count = next((place for place, letter in enumerate(self._rest) if not letter.isprintable()), len(self._rest))
        letters = self._rest[: max(1, count)]
        self._rest = self._rest[len(letters) :]
        if count:
            return TypedKey(Press.TEXT, letters)
        if letters == "\t":
            return TypedKey(Press.TEXT, " ")
        press = _CONTROLS.get(letters)
        return None if press is None else TypedKey(press)

    def _take_pasted(self) -> TypedKey | None:
        assert self._pasted is not None
        end = self._rest.find(_PASTE_END)
        if end < 0:
            keep = max(0, len(self._rest) - len(_PASTE_END) + 1) or len(self._rest)
            self._pasted = (self._pasted + self._rest[:keep])[:PASTE_LENGTH_MAX]
            self._rest = self._rest[keep:]
            return None
        pasted = (self._pasted + self._rest[:end])[:PASTE_LENGTH_MAX]
        self._rest, self._pasted = self._rest[end + len(_PASTE_END) :], None
        lines = pasted.replace("\r\n", "\n").replace("\r", "\n")
        return TypedKey(Press.TEXT, "".join(letter for letter in lines if letter.isprintable() or letter == "\n"))
