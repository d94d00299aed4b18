"""The outline of a page: turns what the script saw into bounded text with short refs.

Does not own: reading the page (outline_script).
All of the text is content from outside. Refs are numbers that no two pages share, in any session. A ref of another page
is stale. A page cannot forge a ref, because text that looks like one is rewritten.
"""

import re
import secrets
from collections import deque

import msgspec

from palyra.core.spelling import strip_unseen

TEXT_BYTES_MAX = 64 * 1024
TITLE_LENGTH_MAX = 200
URL_LENGTH_MAX = 2000
REFS_FROM, REFS_COUNT = 100_000, 900_000
PAGES_REMEMBERED = 256  # All their refs together are a small part of the range, so a random draw soon fits.

_LOOKALIKE = re.compile(r"\[(e\d+)\]")
_MARKED = re.compile("\x00(e\\d+)\x01")  # Marks real refs until the end; no text of a page holds such characters.
_BLANKS = re.compile(r"[ \t]+")


class Control(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that can be clicked or typed into, as the script reports it."""

    role: str
    name: str
    value: str | None = None
    checked: bool | None = None
    disabled: bool = False
    options: tuple[str, ...] = ()
    href: str | None = None


class PageContent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that the script reports.

    A piece is text, a control, or the address of another site's frame, which is not read.
    """

    title: str = ""
    pieces: tuple[str | dict[str, object], ...] = ()
    is_cut: bool = False
    count: int = 0


class Refs:
    """Issues refs for all sessions.

    The refs of a page begin at a random number, so nobody guesses another session's refs or later ones.
    """

    def __init__(self) -> None:
        self._given: deque[range] = deque(maxlen=PAGES_REMEMBERED)

    def take(self, count: int) -> range:
        """Returns as many numbers as one look at a page needs, none of them given lately."""
        while True:
            first = REFS_FROM + secrets.randbelow(REFS_COUNT)
            drawn = range(first, first + count)
            if all(drawn.stop <= other.start or other.stop <= drawn.start for other in self._given):
                self._given.append(drawn)
                return drawn


def number_of(ref: object) -> int | None:
    """Returns the number of a ref such as e410233; None if it is none."""
    if not isinstance(ref, str):
        return None
    matched = re.fullmatch(r"\[?e([1-9][0-9]{0,9})\]?", ref.strip())
    return int(matched[1]) if matched else None


def read_seen(raw: object) -> PageContent:
    """Reads the script's result; a page that spoils it gets an empty outline."""
    try:
        return msgspec.convert(raw, PageContent)
    except msgspec.ValidationError:
        return PageContent(is_cut=True)


def controls_of(seen: PageContent) -> tuple[Control, ...]:
    """Returns the controls in the order of their refs; a spoiled one keeps its place."""
    told = (piece for piece in seen.pieces if isinstance(piece, dict) and "frame" not in piece)
    return tuple(_read_control(piece) for piece in told)[: max(0, seen.count)]


def render(seen: PageContent, numbers: range) -> str:
    """Returns the text, at most TEXT_BYTES_MAX bytes; whole lines are cut from its end."""
    waiting = iter(numbers)
    parts: list[str] = []
    for piece in seen.pieces:
        if isinstance(piece, str):
            parts.append(cleaned(piece))
        elif "frame" in piece:
            parts.append(f" [frame of another site, not read: {one_line(str(piece['frame']), URL_LENGTH_MAX)}] ")
        else:
            parts.append(_told(_read_control(piece), next(waiting, None)))
    lines = (_BLANKS.sub(" ", line).strip() for line in "".join(parts).split("\n"))
    text = "\n".join(f"\n{line}" if line.startswith("#") else line for line in lines if line)
    # This happens after joining: a page could write the halves of a ref into two pieces.
    marked = _LOOKALIKE.sub(r"(\1)", text.strip())
    return _bounded(_MARKED.sub(r"[\1]", marked), is_cut=seen.is_cut)


def cleaned(text: str) -> str:
    """Without control characters and characters that have no shape: they hide text from people."""
    return strip_unseen(text).replace("\t", " ")


def one_line(text: str, length_max: int) -> str:
    line = _LOOKALIKE.sub(r"(\1)", " ".join(cleaned(text).split()))
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


def quoted(text: str) -> str:
    line = one_line(text, TITLE_LENGTH_MAX).replace('"', "'")
    return f'"{line}"'


def _read_control(piece: dict[str, object]) -> Control:
    try:
        return msgspec.convert(piece, Control)
    except msgspec.ValidationError:
        return Control(role="control", name="")


def _told(control: Control, number: int | None) -> str:
    words = [f"\x00e{number}\x01" if number is not None else "", one_line(control.role, 20), quoted(control.name)]
    if control.value is not None:
        words.append(f"value {quoted(control.value)}")
    if control.options:
        words.append(f"options {', '.join(quoted(each) for each in control.options)}")
    if control.checked is not None:
        words.append("checked" if control.checked else "not checked")
    if control.disabled:
        words.append("disabled")
    if control.href:
        words.append(f"<{one_line(control.href, URL_LENGTH_MAX)}>")
    return f" {' '.join(word for word in words if word)} "


def _bounded(text: str, *, is_cut: bool) -> str:
    body = text.encode("utf-8", "replace")
    if len(body) > TEXT_BYTES_MAX:
        text = body[:TEXT_BYTES_MAX].decode("utf-8", "ignore").rpartition("\n")[0] or text[: TEXT_BYTES_MAX // 4]
        is_cut = True
    if not text:
        return "[the page shows no text]"
    return f"{text}\n[the page is longer than what is shown here]" if is_cut else text
