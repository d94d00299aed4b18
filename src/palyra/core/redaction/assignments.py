"""Reads assignments: a name that sounds secret, a separator and its value, in every common syntax.

Does not own: where to look (scan).
One pattern reads what follows a name. Examples: `PASSWORD=x`, `"token": "x"`, `key => 'x'`, `<apiKey>x</apiKey>`,
`--token x`, `var key string = "x"`, `setProperty("TOKEN", "x")`, `Authorization: Bearer x`, `name: TOKEN` then
`value: x`, "password is x".
Everything is matched inside a window that ends where a run of text ends. A reading that reaches the window's end
without a whole value is OPEN: the scanner then widens the window by one run and reads again. So a stream and a whole
text give the same result.
Invariant: all quantifiers are bounded.
"""

import re
from typing import NamedTuple

from palyra.core.redaction.names import Belief, Name, classify_name
from palyra.core.redaction.spans import Reading, Span
from palyra.core.redaction.values import Look, is_code, is_placeholder, look_of

QUOTED_CHARS_MAX = 1024  # A longer quoted text is prose or data; its first part is judged as it is.
JUDGED_CHARS_MAX = 256  # A value shows within this length whether it is secret (values).
_NAME_CHARS_MAX = 96
_SHORT_TOKEN_CHARS = 8  # A token shorter than this is a word or a number unless it was called a password.
_HINT_OPAQUE_CHARS = 12

# A name ends with one of the words that names are made of, an optional tail, and no further letter.
NAME_END = (
    r"(?:pass(?:word|wd|phrase|code|wort|w|key)?|pwd|psw|secrets?|token|jwt|key|credentials?|creds?|auth|authorization|bearer|tkn"
    r"|login|cookies?|mnemonic|accessid|access_id|keyid|key_id|bundle_\w{1,60}__[a-z]{2,12}(?:_?token)?|signature|kennwort|senha|contraseña|пароль)"
    r"(?:[_\-.]?(?:value|string|str|plain|raw|prod|production|dev|test|staging|live|old|new|current|default|b64|base64|hex|id))?"
    r"[_\-]?\d{0,3}(?![a-z])"
)
# These two read backwards from where the name ends or starts, so they match reversed text.
_NAME_BACK = re.compile(r"[\w$.\-]*")
_WORD_BACK = re.compile(r"[ \-]([A-Za-z]{2,24})(?![A-Za-z])")
_NETRC = re.compile(r"\blogin\s{1,8}\S{1,80}\s{1,8}\Z")

_TYPE = r"(?:const\s)?(?:string|str|char\*?|bytes|text|varchar(?:\(\d+\))?|&?(?:'static\s)?str|std::string|\[\]byte|final|any)\??"
_SCHEMES = r"(?:bearer|basic|token|apikey|digest|negotiate|bot|flyv1|key|splunk|genie-?key|sso-key)"
_SCHEME = re.compile(rf"{_SCHEMES}\s{{1,4}}", re.IGNORECASE)
_AFTER = re.compile(
    rf"""
    (?P<close>\\{{0,3}}["'`]?[\])]{{0,2}}["']?)
    (?:\s{{0,2}}:\s{{0,2}}{_TYPE}(?=\s{{0,4}}=)|\s{{1,4}}{_TYPE}(?=\s{{0,4}}[:?]{{0,3}}=))?
    (?P<separator>
        \s{{0,16}}(?:[:?.|+!]{{0,3}}=[>=~]?|:{{1,3}}=?|=>|->|%3[DdAa])\s{{0,120}}
      | \s{{0,4}},\s{{0,8}}(?=\\?["'`]|\Z)
      | </key>(?:\s{{0,40}}<string>|\Z)
      | >\s{{0,120}}
      | ["'\s,;]{{1,120}}["']?(?:secret_?)?value["']?\s{{0,4}}[:=]\s{{0,8}}
      | \s{{1,4}}(?:is|was)(?::|\s|\Z)\s{{0,4}}
      | \s{{1,16}}
    )?
    (?P<opener>[(\[{{]{{0,2}}(?:[A-Za-z_][\w.:]{{0,40}}\()?[bBrRuUfFLN@$]{{0,2}}(?P<quote>\\{{0,3}}["'`]|&quot;|%22))?
    (?P<scheme>{_SCHEMES}(?:\s{{1,4}}|=|%20|$))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Passwords hold punctuation too. So it ends an unquoted value only before another item, a bracket or a blank.
_UNQUOTED = re.compile(
    r"""(?:[^\s"'`<>,;&|(){}\[\]\\]++|[,;&|](?![\s"']|\Z|[\w.\-]{1,64}[=:])|\\(?![nrtu"'\\]|\Z)|[(){}\[\]](?=[^\s"'`,;.(){}\[\]]))+""",
    re.VERBOSE,
)
_PAIR = re.compile(rf"[\w.\-]{{0,40}}{NAME_END}[=:]", re.IGNORECASE)
_BLANK = re.compile(r"\s")
_TEMPLATE = re.compile(r"\$\{?\{|\$\(|\{\{|<|`|\$\{")
_TYPE_ALONE = re.compile(_TYPE + r"\Z", re.IGNORECASE)
_ENV_NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}\Z")


class _Found(NamedTuple):
    name: Name
    is_flag: bool
    is_listed: bool  # `login x password y`, where blanks alone separate.
    is_setting: bool  # An environment variable, or a name at the start of a line, as in configuration files.


def read_assignment(text: str, name_end: tuple[int, int], floor: int, end: int) -> Reading:
    """Judges the name that ends there and the value behind it. `floor` is how far back the text may be read."""
    after = _AFTER.match(text, name_end[1], end)
    if after is None or (after["separator"] is None and after.end() < end):
        return Reading(name_end[1])
    found = _find_name(text, name_end, floor)
    if found is None:
        return Reading(name_end[1])
    if after.end() == end:
        return Reading(name_end[1], is_open=True, line_breaks_max=1)
    if after["quote"]:
        return _read_quoted(text, found, after, end)
    return _read_unquoted(text, found, after, end)


def judge_named(name: Name, value: str) -> bool:
    """Tells whether a whole field of that name holds a secret. Key and value are parsed, with no syntax around them."""
    return _is_secret(name, value, look_floor=Look.WORD)


def strip_scheme(value: str) -> int:
    """Returns how many characters of a header's value only name the scheme, as `Bearer ` does."""
    match = _SCHEME.match(value)
    return match.end() if match else 0


def _find_name(text: str, name_end: tuple[int, int], floor: int) -> _Found | None:
    back = _NAME_BACK.match(text[max(floor, name_end[0] - _NAME_CHARS_MAX) : name_end[0]][::-1])
    start = name_end[0] - (back.end() if back else 0)
    if text.endswith("</", floor, start):
        return None
    written = text[start : name_end[1]]
    before = _WORD_BACK.match(text[max(floor, start - 32) : start][::-1])
    name = classify_name(written, before.group(1)[::-1] if before else "")
    if name is None:
        return None
    is_flag = written.startswith("-") and not written.startswith("---")
    is_listed = "login" in text[floor:start] and _NETRC.search(text, max(floor, start - 120), start) is not None
    is_setting = _ENV_NAME.match(written) is not None or start == 0 or text[start - 1] == "\n"
    return _Found(name, is_flag, is_listed, is_setting)


def _read_quoted(text: str, found: _Found, after: re.Match[str], end: int) -> Reading:
    at, quote = after.end(), after["quote"]
    limit = min(end, at + QUOTED_CHARS_MAX)
    stop = _close_of(text, at, limit, quote)
    is_open = stop < 0 and limit == end
    if stop < 0:
        line_end = text.find("\n", at, limit)
        stop = line_end if line_end >= 0 else limit
        is_open = is_open and line_end < 0
    value = text[at:stop]
    floor = Look.WORD
    if _is_blank(after["separator"]) and not (found.is_flag or found.is_listed):
        floor = Look.OPAQUE
    elif after["scheme"] or after["separator"].strip() == ",":
        floor = Look.MIXED
    if quote == "`" and " " in value:
        floor = Look.STRONG  # A shell runs the text in backticks.
    return _reading_of(after, value, found.name, floor)._replace(is_open=is_open)


def _close_of(text: str, at: int, end: int, quote: str) -> int:
    while True:
        close = text.find(quote, at, end)
        if close < 0:
            return -1
        escapes = len(text[at:close]) - len(text[at:close].rstrip("\\"))
        if quote.startswith(("\\", "&", "%")) or escapes % 2 == 0:
            return close
        at = close + 1


def _read_unquoted(text: str, found: _Found, after: re.Match[str], end: int) -> Reading:
    """Judges a long value by its beginning, and reads it to its end only if that is secret.

    A text of many names in one run would otherwise be read to its end once for each name.
    """
    limit = after.end() + JUDGED_CHARS_MAX
    if limit >= end:
        return _read_unquoted_to(text, found, after, end)
    judged = _read_unquoted_to(text, found, after, limit)
    is_whole = judged.span is not None and judged.span.end < limit
    return judged if judged.span is None or is_whole else _read_unquoted_to(text, found, after, end)


def _read_unquoted_to(text: str, found: _Found, after: re.Match[str], end: int) -> Reading:
    # A value that starts with another secret name and a sign is a separate pair, which is read next.
    is_pair = _PAIR.match(text, after.end(), end) is not None
    match = None if is_pair else _UNQUOTED.match(text, after.end(), end)
    if match is None:
        return Reading(after.start())
    value, separator = match.group(), after["separator"]
    follows = text[match.end() : min(match.end() + 1, end)]
    if _TEMPLATE.match(value) or value.endswith(":") or follows in ("(", "["):
        return Reading(after.start())
    if separator.strip().rstrip(":").lower() in ("is", "was"):
        value = value.rstrip(".!?:")
    reading = _reading_of(after, value, found.name, _floor_of(found, separator, value))
    if match.end() < end:
        return reading
    # A type may stand between name and sign. A run too long for one piece continues right behind the window.
    is_cut = reading.span is not None and end < len(text) and not text[end].isspace()
    return reading._replace(is_open=is_cut or _TYPE_ALONE.match(value) is not None)


def _floor_of(found: _Found, separator: str, value: str) -> Look:
    """Returns how much an unquoted value must look like a secret, by the syntax it stands in."""
    if _is_blank(separator):
        return Look.MIXED if found.is_flag or found.is_listed else Look.STRONG
    if found.is_setting and separator == "=":
        return Look.MIXED if is_code(value) else Look.WORD
    return Look.STRONG if is_code(value) else Look.MIXED


def _reading_of(after: re.Match[str], value: str, name: Name, look_floor: Look) -> Reading:
    """Returns the reading of a whole value. A value that holds a marker was redacted before and is left alone."""
    if not value or "‹" in value or not _is_secret(name, value, look_floor):
        return Reading(after.start())
    start = after.end()
    return Reading(start + len(value), Span(start, start + len(value), name.kind))


def _is_blank(separator: str | None) -> bool:
    return separator is None or not separator.strip()


def _is_secret(name: Name, value: str, look_floor: Look) -> bool:
    if _BLANK.search(value):
        return _is_secret_phrase(name, value, look_floor)
    look = look_of(value)
    if look < look_floor or look is Look.NOTHING:
        return False
    match name.belief:
        case Belief.PASSWORD:
            return True
        case Belief.TOKEN:
            return look >= Look.OPAQUE or (look is Look.MIXED and len(value) >= _SHORT_TOKEN_CHARS)
        case Belief.HINT:
            return look is Look.STRONG or (
                look is Look.OPAQUE and len(value) >= _HINT_OPAQUE_CHARS and "-" not in value
            )


def _is_secret_phrase(name: Name, value: str, look_floor: Look) -> bool:
    """Judges several words. They are help text far more often than a secret, unless one of them is opaque."""
    if is_placeholder(value) or name.belief is Belief.HINT:
        return False
    return any(look_of(word) >= max(Look.OPAQUE, look_floor) for word in value.split())
