"""Output as text. Owns: making a program's bytes into text that cannot drive a terminal. Not: how much of it is kept.

Escape sequences are taken out whole; carriage returns become line ends; every other control character but the tab, and the
marks that turn the direction of writing, become U+FFFD. Invariants: however the bytes are cut into pieces, the text is the
same; cleaning clean text changes nothing; what is held back at the end of a piece is bounded.
"""

import codecs
import re

_STRING_MAX = 2048  # Of what a sequence carries, such as a window's title; a longer one is no sequence but text.
_HELD_MAX = _STRING_MAX + 128
_SEQUENCE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]{0,64}[ -/]{0,16}[@-~]"  # Control sequences: colours, cursor, erasing.
    rf"|[\]PX^_][^\x07\x1b\x9c]{{0,{_STRING_MAX}}}(?:\x07|\x1b\\|\x9c)"  # Strings: titles, links, the clipboard.
    r"|[ -/]{1,8}[0-~]"  # Character sets and the like.
    r"|[0-OQ-WYZ\\`-~]"  # Two letters.
    r")?"
)
_UNFINISHED = re.compile(
    rf"(?:\r|\x1b(?:\[[0-?]{{0,64}}[ -/]{{0,16}}|[\]PX^_][^\x07\x1b\x9c]{{0,{_STRING_MAX}}}\x1b?|[ -/]{{0,8}}))\Z"
)
_LINE_END = re.compile(r"\r\n?")
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class OutputText:
    """One stream, fed piece by piece."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, piece: bytes) -> str:
        return self._clean(self._held + self._decoder.decode(piece))

    def finish(self) -> str:
        """What was held back, as it would read if nothing follows."""
        rest = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        return _neutral(rest)

    def _clean(self, text: str) -> str:
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _HELD_MAX))
        cut = unfinished.start() if unfinished is not None else len(text)
        self._held = text[cut:]
        return _neutral(text[:cut])


def clean(text: str) -> str:
    """A whole text."""
    return _neutral(text)


def _neutral(text: str) -> str:
    if _UNFIT.search(text) is None:
        return text
    return _UNFIT.sub("\ufffd", _LINE_END.sub("\n", _SEQUENCE.sub("", text)))
