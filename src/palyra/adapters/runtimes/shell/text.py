"""Turns a program's bytes into text that cannot control a terminal.

Does not own: how much of the text is kept (output_buffer).
Escape sequences are removed whole, and carriage returns become line ends. Every other control character but the tab
becomes U+FFFD, and so do the marks that change the direction of writing.
Invariants: the text is the same however the bytes are cut into pieces. Cleaning clean text changes nothing. What is
held back at the end of a piece is bounded.
"""

import codecs
import re

_STRING_MAX = 2048  # Limits what a sequence carries, such as a window's title. A longer one is no sequence but text.
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
    """The text of one stream, fed piece by piece."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, piece: bytes) -> str:
        return self._clean(self._held + self._decoder.decode(piece))

    def finish(self) -> str:
        """Returns what was held back, as it reads if nothing follows."""
        rest = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        return _neutral(rest)

    def _clean(self, text: str) -> str:
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _HELD_MAX))
        cut = unfinished.start() if unfinished is not None else len(text)
        self._held = text[cut:]
        return _neutral(text[:cut])


def _neutral(text: str) -> str:
    if _UNFIT.search(text) is None:
        return text
    return _UNFIT.sub("\ufffd", _LINE_END.sub("\n", _SEQUENCE.sub("", text)))
