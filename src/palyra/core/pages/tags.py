"""Reads HTML in pieces: text, tags and their attributes, one after another.

Does not own: what a page looks like (readable).
No tree is built. Its rules cost a hostile page the square of its length, in a library that cannot be stopped. Every
step here moves forward, so a page costs its length. Comments and the contents of scripts are never returned.
"""

import html
import re
from collections.abc import Iterator, Mapping

import msgspec

_COMMENT_END = re.compile(r"--!?>")
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)")
_ATTRIBUTE = re.compile(
    r"""[\s/]*+(?:(>)|([^\s/>][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|(?!["'])([^\s>]*+)))?+)"""
)
_UNCLOSED = re.compile(r"\s*+=")  # Only a value whose quote is never closed is left over.
_RAW = frozenset({"script", "style", "title", "textarea", "noscript", "iframe", "noembed", "noframes", "xmp"})
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}
ATTRIBUTES_MAX = 64  # Further attributes are skipped.


class Tag(msgspec.Struct, frozen=True):
    name: str
    is_end: bool
    attributes: Mapping[str, str]
    is_self_closing: bool = False


class Title(msgspec.Struct, frozen=True):
    text: str


Token = str | Tag | Title


def read_tokens(page: str) -> Iterator[Token]:
    """Yields the tokens. Anything left open at the end of the page is not yielded, as a browser would not show it."""
    position = 0
    while position < len(page):
        opening = page.find("<", position)
        if opening < 0:
            yield unescape(page[position:])
            return
        if opening > position:
            yield unescape(page[position:opening])
        found = _TAG.match(page, opening)
        if found is None:
            text, position = _read_other(page, opening)
            if text:
                yield text
            continue
        tag, position = _read_tag(page, found)
        if tag is None:
            return
        if tag.name in _RAW and not tag.is_end:
            raw, position = _read_raw(page, position, tag.name)
            if tag.name == "title":
                yield Title(unescape(raw))
            continue
        yield tag


def unescape(text: str) -> str:
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:
        return text  # The number of a character has thousands of digits.


def _read_other(page: str, opening: int) -> tuple[str, int]:
    """Reads a comment of any kind, or a plain sign."""
    if page.startswith("<!--", opening):
        end = _COMMENT_END.search(page, opening + 2)
        return "", end.end() if end else len(page)
    if page.startswith(("<!", "<?", "</"), opening):
        closing = page.find(">", opening)
        return "", closing + 1 if closing >= 0 else len(page)
    return "<", opening + 1


def _read_tag(page: str, found: re.Match[str]) -> tuple[Tag | None, int]:
    attributes: dict[str, str] = {}
    position = found.end()
    while True:
        part = _ATTRIBUTE.match(page, position)
        if part is None:
            return None, len(page)
        position = part.end()
        if part[1]:
            is_self_closing = page[position - 2] == "/"
            return Tag(found[2].lower(), bool(found[1]), attributes, is_self_closing), position
        if _UNCLOSED.match(page, position):
            return None, len(page)
        if len(attributes) < ATTRIBUTES_MAX:
            value = next((each for each in part.group(3, 4, 5) if each is not None), "")
            attributes.setdefault(part[2].lower(), unescape(value))


def _read_raw(page: str, position: int, name: str) -> tuple[str, int]:
    end = _RAW_ENDS[name].search(page, position)
    if end is None:
        return "", len(page)
    closing = page.find(">", end.end())
    return page[position : end.start()], closing + 1 if closing >= 0 else len(page)
