"""A mail's own words, and those of others in it: what was forwarded, quoted or stands below somebody's header block.

Owns: where the words of others begin, whose they are said to be, and which part of the own words is a command.
Does not own: reading MIME and HTML (adapters.channels.email), the trust that follows (core.channels.model).
Programs mark forwards in many ways and languages. So everything from the first line on that could be a mark is taken for
somebody else's, and a mail that is a forward by its headers has no own words unless such a mark ends them.
"""

import re

import msgspec

from palyra.core.channels.commands import parse_command
from palyra.core.channels.pairing_codes import find_shown_code

MARK_LINES_MAX = 4  # An attribution such as `On … wrote:` may be broken into so many lines.
HEADER_LINES_MAX = 12  # Of a block that names who wrote what follows.
SEPARATOR = "-" * 10  # Stands where a quoted or forwarded element of HTML begins.

_SEPARATOR = re.compile(r"\s*[-_=~*#+\u2010-\u2015\u2500-\u257f\u2022]{4,}.*|\s*[-_\u2010-\u2015\u2500]{2,}\s*\w.*")
_SIGNATURE = re.compile(r"--\s*")
_LABELLED = re.compile(r"\W{0,4}[^\W\d][^:\n\uff1a]{0,30}(?::(?:\s|\*|$)|\uff1a).*")
# Bounded, so that looking for one in a long line takes no more time than the line is long.
_ADDRESS = re.compile(r"[\w.+'-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}")
_DATES = (
    re.compile(r"(?<![\d./-])\d{1,2}[:.h]\d{2}(?![./-]?\d)"),  # No part of a date such as 20.11.2026.
    re.compile(r"\b(?:19|20)\d\d\b"),
    re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d"),
)
_ENDS_WITH_COLON = re.compile(r".*[:\uff1a]\W{0,3}", re.DOTALL)
# A second net for forwards without any other sign: the words that programs put before the subject.
_FORWARD_SUBJECT = re.compile(
    r"\s*\[?\s*(?:fwd?|wg|tr|rv|enc|i|vs|vl|vb|doorst|pd|fs|trs|ilt|yml|wn|\u8f6c\u53d1|\u8f49\u5bc4|\u8ee2\u9001)\s*[:\uff1a\]]",
    re.IGNORECASE,
)
# The elements of HTML in which programs put what others wrote: by the tag, by a word in its class or id, or by its line.
_TAG = re.compile(r"<([a-z]+)\b([^>]{0,2000})", re.IGNORECASE)
_MARK_TAGS = ("blockquote", "hr")
_MARK_NAMES = re.compile(
    r"\b(?:class|id)\s*=[^=]*(?:quot|cite|fwd|forward|reply|rply|original|olk_src|moz-email)", re.IGNORECASE
)
_MARK_LINE = re.compile(r"border(?:-top|-left)?\s*:[^;]*\bsolid", re.IGNORECASE)


class MailWords(msgspec.Struct, frozen=True, kw_only=True):
    """`own` is what the sender typed. `others` is the rest, from the first mark on; `writer` is whom it names."""

    own: str
    others: str = ""
    writer: str | None = None


def split_words(text: str, *, is_continued: bool) -> MailWords:
    """Parts a mail. With `is_continued` it goes on with words of others by its headers: without a mark all are theirs."""
    lines = [line.rstrip() for line in text.splitlines()]
    at = next((number for number in range(len(lines)) if _is_mark(lines, number)), None)
    if at is None and is_continued:
        at = 0
    own = "\n".join(_without_signature(lines[:at])).strip()
    others = "\n".join(lines[at:]).strip() if at is not None else ""
    return MailWords(own=own, others=others, writer=_writer(others))


def command_alone(own: str) -> str:
    """Returns a command or a pairing code without what follows its paragraph, such as the name of a phone."""
    first = own.partition("\n\n")[0]
    return first if parse_command(first) is not None or find_shown_code(first) is not None else own


def is_own_quote(words: MailWords, our_address: str) -> bool:
    """Tells whether what others wrote is one quote of our own mail, to its end: the session has those words already."""
    lines = words.others.splitlines()
    first = next((number for number, line in enumerate(lines) if line.lstrip().startswith(">")), len(lines))
    after = _without_signature([line for line in lines[first:] if line.strip() and not line.lstrip().startswith(">")])
    return not after and (first == 0 or words.writer == our_address.lower())


def is_forward_subject(subject: str) -> bool:
    return _FORWARD_SUBJECT.match(subject) is not None


def mark_html(html: str) -> str:
    """Puts a separator before each element that holds words of others, so that the first that is shown is found.

    One within a comment or a style is not shown, and must not stand for the next.
    """
    return _TAG.sub(lambda tag: f"<p>{SEPARATOR}</p>{tag[0]}" if _is_mark_tag(tag) else tag[0], html)


def _is_mark_tag(tag: re.Match[str]) -> bool:
    return bool(tag[1].lower() in _MARK_TAGS or _MARK_NAMES.search(tag[2]) or _MARK_LINE.search(tag[2]))


def _is_mark(lines: list[str], at: int) -> bool:
    line = lines[at]
    if not line.strip():
        return False
    if line.lstrip().startswith((">", "|")) or _SEPARATOR.fullmatch(line):
        return True
    return _is_header_block(lines, at) or _begins_attribution(lines, at)


def _is_header_block(lines: list[str], at: int) -> bool:
    """Tells whether lines such as `Von: …` begin that say who wrote what follows, and when or by which address.

    The lines of a signature look alike, so one of them alone is none, and those without an address or a date are none.
    """
    block = [line for line in lines[at : at + HEADER_LINES_MAX] if line.strip()]
    count = next((number for number, line in enumerate(block) if not _LABELLED.fullmatch(line)), len(block))
    said = "\n".join(block[:count])
    return count >= 2 and (_ADDRESS.search(block[0]) is not None or any(each.search(said) for each in _DATES[:2]))


def _begins_attribution(lines: list[str], at: int) -> bool:
    """Tells whether a line begins an attribution, which may be broken into some lines. Words above it are none of it."""
    block: list[str] = []
    for line in lines[at : at + MARK_LINES_MAX]:
        if not line.strip():
            return False
        block.append(line)
        if _is_attribution(" ".join(block)):
            return not any(_is_attribution(" ".join(block[start:])) for start in range(1, len(block)))
    return False


def _is_attribution(text: str) -> bool:
    """Tells whether words say who wrote the next ones, and when, in any language: a colon ends them.

    A day alone is none: people head their own lists with one.
    """
    if len(text) > 400 or not _ENDS_WITH_COLON.fullmatch(text):
        return False
    time, *days = (each.search(text) is not None for each in _DATES)
    return _ADDRESS.search(text) is not None or (time and any(days))


def _without_signature(lines: list[str]) -> list[str]:
    """Drops what stands below the line of two dashes: it is the sender's, and says nothing."""
    at = next((number for number, line in enumerate(lines) if _SIGNATURE.fullmatch(line)), len(lines))
    return lines[:at]


def _writer(others: str) -> str | None:
    """Returns the first address that what others wrote begins with, or none. Nobody vouches for it."""
    for line in others.splitlines()[:HEADER_LINES_MAX]:
        if found := _ADDRESS.search(line):
            return found[0].lower().strip(".")
    return None
