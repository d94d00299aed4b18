"""Turns HTML into the plain text that a person would read, with marks for its structure.

Does not own: fetching the page (adapters.net).
Headings, lists, links, code and tables keep their form. Invisible content (scripts, comments, hidden elements,
characters without a shape) is left out, because orders to a model hide there. Content of every page (navigation,
footers, forms) is left out too. Style sheets are not followed, so text that only a style sheet hides is read.
Invariants: the text is bounded in size, and the work is linear in time.
"""

import re
from collections.abc import Callable
from urllib.parse import quote, urljoin

import msgspec

from palyra.core.pages.skip import Skip, is_unseen
from palyra.core.pages.tags import Tag, Title, read_tokens
from palyra.core.spelling import strip_unseen

PAGE_LENGTH_MAX = 2 * 1024 * 1024  # The worst case takes about two seconds, in a thread of its own.
TEXT_LENGTH_MAX = 256 * 1024
TITLE_LENGTH_MAX = 300
LINK_LENGTH_MAX = 2048
_LISTS_MAX = 12  # Deeper lists are not indented further.
_STOP_EVERY = 2000

_SPACES = re.compile(r"\s+")
_HEADING_SIGN = re.compile(r"^#+ ")
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS = frozenset(
    "address article aside blockquote body center dd details div dl dt fieldset figcaption figure form header hgroup"
    " html legend main menu p section summary table tbody tfoot thead".split()
)
_CELLS = frozenset({"td", "th"})


class Readable(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    text: str
    is_cut: bool = False


def make_readable(page: str, address: str, is_stopped: Callable[[], bool] = lambda: False) -> Readable:
    """Makes a page readable. Its links are resolved against `address`."""
    writer = _Writer(address)
    skip: Skip | None = None
    for count, token in enumerate(read_tokens(page[:PAGE_LENGTH_MAX])):
        if writer.length > TEXT_LENGTH_MAX or (count % _STOP_EVERY == 0 and is_stopped()):
            break
        if skip is not None:
            if not isinstance(token, Tag) or skip.covers(token):
                continue
            is_own_end = token.is_end and token.name == skip.name
            skip = None
            if is_own_end:
                continue
        match token:
            case str():
                writer.say(token)
            case Title(text=text):
                writer.entitle(text)
            case Tag() if not token.is_end and is_unseen(token):
                skip = Skip(token.name)
            case Tag():
                writer.mark(token)
    text = strip_unseen(writer.finished())
    is_cut = len(page) > PAGE_LENGTH_MAX or len(text) > TEXT_LENGTH_MAX
    return Readable(title=strip_unseen(writer.title), text=text[:TEXT_LENGTH_MAX], is_cut=is_cut)


class _Writer:
    """Takes words and marks in the order of the page. Line ends are postponed until there is more text."""

    def __init__(self, address: str) -> None:
        self.title = ""
        self.length = 0
        self._base = address
        self._pieces: list[str] = []
        self._owed = ""  # Holds the space or the line ends before the next text.
        self._lists: list[int] = []  # Holds the number of the last item of each open list; -1 if its items have none.
        self._link: tuple[int, str] | None = None
        self._preformatted_count = 0
        self._cells_count = 0
        self._is_fresh = False  # A sign such as that of an item was written, and its words still have to come.

    def say(self, text: str) -> None:
        if self._preformatted_count:
            self._put(text)
            return
        words = _SPACES.sub(" ", text)
        if words.startswith(" ") and not self._is_fresh:
            self._owed = self._owed or " "
        body = words.strip(" ")
        if body:
            self._put(body)
            self._owed = " " if words.endswith(" ") else ""

    def entitle(self, text: str) -> None:
        self.title = self.title or _SPACES.sub(" ", text).strip()[:TITLE_LENGTH_MAX]

    def mark(self, tag: Tag) -> None:
        name = tag.name
        if name in _HEADINGS:
            self._break("\n\n")
            if not tag.is_end:
                self._sign(_HEADINGS[name])
        elif name in _BLOCKS:
            self._cells_count = 0 if name == "table" else self._cells_count
            self._break("\n\n")
        elif name in ("ul", "ol"):
            self._mark_list(tag)
        elif name in _CELLS or name == "tr":
            self._mark_cell(tag)
        elif name in ("pre", "listing"):
            self._mark_pre(is_end=tag.is_end)
        elif name in ("code", "samp", "kbd") and not self._preformatted_count:
            self._put("`")
        elif name == "a":
            self._mark_link(tag)
        elif not tag.is_end:
            self._mark_single(tag)

    def finished(self) -> str:
        self._close_link()
        return "".join(self._pieces).strip()

    def _mark_single(self, tag: Tag) -> None:
        match tag.name:
            case "br":
                self._break("\n")
            case "hr":
                self._break("\n\n")
                self._put("---")
                self._break("\n\n")
            case "li":
                self._begin_item()
            case "img" if tag.attributes.get("alt", "").strip():
                self.say(f"[image: {tag.attributes['alt'][:TITLE_LENGTH_MAX]}]")
            case "base" if tag.attributes.get("href"):
                self._base = _resolved(self._base, tag.attributes["href"]) or self._base

    def _mark_list(self, tag: Tag) -> None:
        self._break("\n" if self._lists else "\n\n")
        if not tag.is_end:
            self._lists.append(0 if tag.name == "ol" else -1)
        elif self._lists:
            self._lists.pop()
            self._break("\n" if self._lists else "\n\n")

    def _begin_item(self) -> None:
        self._is_fresh = False
        self._break("\n")
        sign = "- "
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] += 1
            sign = f"{self._lists[-1]}. "
        self._sign("  " * min(max(len(self._lists) - 1, 0), _LISTS_MAX) + sign)

    def _mark_cell(self, tag: Tag) -> None:
        """Begins or ends a cell. A row is one line, so nothing inside a cell begins a new line."""
        if tag.name == "tr":
            self._cells_count = 0
            self._break("\n")
        elif not tag.is_end:
            if self._cells_count:
                self._owed = ""
                self._put(" |")
            self._cells_count += 1
            self._owed = self._owed or " "

    def _mark_pre(self, *, is_end: bool) -> None:
        if is_end and not self._preformatted_count:
            return
        if self._preformatted_count == int(is_end):
            self._break("\n" if is_end else "\n\n")
            self._put("```\n" if not is_end else "```")
            self._break("\n\n" if is_end else "")
        self._preformatted_count += -1 if is_end else 1

    def _mark_link(self, tag: Tag) -> None:
        """Begins or ends a link. An end without a beginning does nothing, and a beginning ends the link before it."""
        self._close_link()
        address = "" if tag.is_end else _resolved(self._base, tag.attributes.get("href", ""))
        if address:
            self._pay()
            self._link = (len(self._pieces), address)

    def _close_link(self) -> None:
        if self._link is None:
            return
        start, address = self._link
        self._link = None
        raw = "".join(self._pieces[start:])
        del self._pieces[start:]
        words = _HEADING_SIGN.sub("", _SPACES.sub(" ", raw).strip())
        if words:
            after, self._owed = self._owed, "\n\n" if raw.startswith("\n") else ""
            self._put(f"[{words}]({address})" if words != address else address)
            self._owed = after

    def _break(self, ends: str) -> None:
        """Postpones at least so many line ends; inside a cell only a space."""
        if self._is_fresh:
            return
        if self._cells_count and not self._preformatted_count:
            self._owed = self._owed or " "
        else:
            self._owed = max(self._owed.strip(" "), ends, key=len)

    def _sign(self, text: str) -> None:
        self._put(text)
        self._is_fresh = True

    def _put(self, text: str) -> None:
        self._pay()
        self._pieces.append(text)
        self.length += len(text)
        self._is_fresh = False

    def _pay(self) -> None:
        if self._owed and self._pieces:
            self._pieces.append(self._owed)
            self.length += len(self._owed)
        self._owed = ""


def _resolved(base: str, reference: str) -> str:
    """Returns a whole http(s) address in letters that cannot end the mark of a link; "" if it leads nowhere else."""
    reference = reference.strip()
    if not reference or reference.startswith("#") or len(reference) > LINK_LENGTH_MAX:
        return ""
    try:
        address = urljoin(base, reference)
    except ValueError:
        return ""
    if not address.lower().startswith(("http://", "https://")) or len(address) > LINK_LENGTH_MAX:
        return ""
    return quote(strip_unseen(address), safe="%/?:@!$&'*+,;=-._~#")
