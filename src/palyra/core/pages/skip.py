"""Finds the elements of a page that nobody sees or wants, and where each of them ends."""

import re

from palyra.core.pages.tags import Tag

_NOISE = frozenset(
    "nav footer svg math canvas audio video object select datalist button dialog template applet frameset".split()
)
_FOREIGN = frozenset({"svg", "math"})
_NOISE_ROLES = frozenset({"navigation", "contentinfo", "search", "menu", "menubar", "dialog", "alertdialog"})
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr keygen frame basefont bgsound".split()
)
_OPTIONAL_END = {
    "p": "p",
    "li": "li",
    "dt": "dl",
    "dd": "dl",
    "tr": "tr",
    "td": "cell",
    "th": "cell",
    "thead": "rows",
    "tbody": "rows",
    "tfoot": "rows",
    "option": "option",
}
_P_ENDS = frozenset(
    "address article aside blockquote details div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header"
    " hr main nav ol pre section table ul".split()
)
_UNSEEN_CLASSES = frozenset({"sr-only", "visually-hidden", "visuallyhidden", "screen-reader-text", "sr_only"})
_SPACES = re.compile(r"\s+")
_ZERO = r"(?:0+(?:\.0*)?|\.0+)"
_UNSEEN_STYLE = re.compile(
    rf"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|content-visibility:hidden|color:transparent"
    rf"|opacity:{_ZERO}(?:%|;|!|$)|font-size:{_ZERO}[a-z%]*(?:;|!|$)|(?:max-)?(?:height|width):{_ZERO}[a-z%]*(?:;|!|$)"
    r"|(?:text-indent|left|top|right|margin-left|margin-top):-\d{3,}|clip:rect\(0|clip-path:inset\((?:50|100)%"
    r"|transform:scale\(0\))"
)


def is_unseen(tag: Tag) -> bool:
    """Tells whether an element is hidden from people, or on every page of a site."""
    attributes = tag.attributes
    if tag.name in _VOID or (tag.is_self_closing and tag.name in _FOREIGN):
        return False
    if tag.name in _NOISE or "hidden" in attributes or attributes.get("aria-hidden", "").lower() == "true":
        return True
    if attributes.get("role", "").strip().lower() in _NOISE_ROLES:
        return True
    if not _UNSEEN_CLASSES.isdisjoint(attributes.get("class", "").lower().split()):
        return True
    return _is_unseen_style(attributes.get("style", ""))


def _is_unseen_style(style: str) -> bool:
    """Tells whether a style hides its element. A style with escaped letters is one that does not want to be read."""
    first, *others = style.lower().split("/*")
    uncommented = first + "".join(part.partition("*/")[2] for part in others)
    plain = _SPACES.sub("", uncommented)
    return "\\" in plain or _UNSEEN_STYLE.search(plain) is not None


class Skip:
    """The state of being inside an element that is not read.

    Its name is counted. If its end tag may be left out, its siblings end it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._group = _OPTIONAL_END.get(name)
        self._depth = 0

    def covers(self, tag: Tag) -> bool:
        """Tells whether this tag is still inside. A tag outside that is no end tag is to be read as usual."""
        if self._group is None:
            return self._counts(tag)
        if self._depth == 0 and self._ends_by(tag):
            return False
        if tag.name not in _VOID and tag.name not in _OPTIONAL_END:
            self._depth += -1 if tag.is_end else 1
        return True

    def _counts(self, tag: Tag) -> bool:
        if tag.name != self.name:
            return True
        if not tag.is_end:
            self._depth += 1
            return True
        self._depth -= 1
        return self._depth >= 0

    def _ends_by(self, tag: Tag) -> bool:
        if tag.is_end:
            return tag.name == self.name or tag.name not in _OPTIONAL_END
        if self._group == "p" and tag.name in _P_ENDS:
            return True
        return _OPTIONAL_END.get(tag.name) == self._group or (self._group == "cell" and tag.name == "tr")
