"""Judges how much a text looks like a secret by itself, and what only stands in for one.

Does not own: judging its name (names).
"""

import enum
import math
import re
import string
from collections import Counter
from itertools import pairwise


class Look(enum.IntEnum):
    """How much a value looks like a secret, from nothing to certain. The rules compare it with the name's belief."""

    NOTHING = 0  # A placeholder, a reference to something elsewhere, or too short.
    WORD = 1  # Letters only, as people write words and identifiers.
    MIXED = 2  # Letters with digits or signs.
    OPAQUE = 3  # Holds no word: a machine made it, but it is short or of few kinds of characters.
    STRONG = 4  # Long and random.


CHARS_MIN = 4
_GIBBERISH_CHARS_MIN = 16
_OPAQUE_CHARS_MIN = 8
_STRONG_CHARS_MIN = 20
_LOOKED_AT_CHARS_MAX = 128
_STAND_IN_CHARS_MAX = 64  # A template or a mask shows itself within this length.
_DIGITS_OPAQUE_MIN = 12  # Shorter numbers are counts, ports and years.
_ENTROPY_SHORT_MIN_BITS = 1.6
_ENTROPY_MIN_BITS = 2.2  # A text with less repeats a few characters, as xxxx and 0000 do.
_TRANSITIONS_MIN = 0.24  # Changes between lower, upper and digit per character; words and versions have fewer.

_PLACEHOLDER = re.compile(
    r"""[$%\#]\{|\$\(|\A\W?\$[A-Za-z_]\w*\W?\Z|\A\$\d+\Z|\{\{|<[A-Za-z/!?%][^<>]{0,80}>?|%[sdr]|%\(|\[[A-Z_ ]+\]|\{[\w.:!]*\}
      | \A(?:env|file|vault|ref|secret|ssm|arn|op|keyring)[:/]
      | (?:process\.|os\.)env|getenv|environ\b|ENV\[|secrets\.[A-Za-z]|vars\.
      | \.\.\.|…|\*{3}|_here\b|-here\b|YOUR_|PUT_|INSERT_|REPLACE|\#{4}
      | (?i:redacted|changeme|change[_-]me|placeholder|example|insert[_-]|\byour[_-]?|dummy|x{4}|\bfoo\b|\bbar\b|todo\b|sample
        |hidden|masked|removed|omitted)
      """,
    re.VERBOSE,
)
_PLAIN_WORDS = frozenset(
    "null none nil true false undefined string str bytes text char varchar integer int number bool boolean object any void"
    " auto yes no on off empty required optional default unset unknown password passwd pass pwd secret token key apikey"
    " api_key user username login value test value1 n/a na password1 string1 private public basic bearer self this sha1 sha256"
    " sha512 md5 utf8 utf-8 base64 oauth oauth2 jwt rs256 hs256 es256 ascii latin1 latin-1 enabled"
    " disabled mypassword my_password secretstr".split()
)
_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)+\Z")
_CALL = re.compile(r"[A-Za-z_][\w.:]*[(\[]")
_PATH = re.compile(r"(?:[a-z]{2,10}://(?![^/\s]*@)|~?/[\w.\-]+/|\.{1,2}/|[A-Z]:\\)")
_FILE = re.compile(
    r"\.(?:pem|key|json|txt|ya?ml|toml|ini|cfg|conf|py|js|ts|go|rs|java|html?|md|crt|cer|p12|pfx|jks|png|svg)\Z"
)
_VERSION = re.compile(r"v?\d+(?:\.\d+)+[\w.\-+]*\Z|\d{4}-\d\d-\d\d|[A-Za-z][\w.\-]*[-_:@]v?\d+(?:\.\d+)+[\w.\-]*\Z")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
# Our own ids have this form, wherever they are named.
_ULID = re.compile(r"(?:[0-9A-HJKMNP-TV-Z]{26}|[0-7][0-9a-hjkmnp-tv-z]{25})\Z")
_SEPARATORS = re.compile(r"[-_./:,;|+=~!@\s]+")
# The letters that follow a letter in nearly all words and identifiers (95 of 100 pairs in Python's own sources and
# documentation). In a random word only about a third of the pairs are among these.
_FOLLOWERS = dict(
    pair.split(":")
    for pair in (
        "a:bcdgiklmnprstuvy b:aeijlouy c:aehiklortu d:adeiorsu e:acdefglmnpqrstvwxy f:aefiloru g:einsu h:aeio"
        " i:abcdefglmnoprstvxz j:e k:e l:adefilostuy m:abeimopsu n:acdefgilnostuv o:bcdilmnoprstuvw p:aeiloprtu q:u"
        " r:acdegimnorstuy s:acehiopstuy t:acehilorstuy u:befilmnprst v:aei w:aehior x:cpt y:pst z:e"
    ).split()
)
_PAIRS_MIN = 8  # Fewer pairs of letters say nothing.
_USUAL_PAIRS_MAX = 0.5
_CLASSES = str.maketrans(
    string.ascii_lowercase + string.ascii_uppercase + string.digits, "a" * 26 + "A" * 26 + "0" * 10
)


def look_of(value: str) -> Look:
    """Returns how much the value looks like a secret, whatever its name. The start of a long value tells enough."""
    value = value[:_LOOKED_AT_CHARS_MAX]
    if len(value) < CHARS_MIN or is_placeholder(value):
        return Look.NOTHING
    if value.isdigit():
        return Look.OPAQUE if len(value) >= _DIGITS_OPAQUE_MIN else Look.WORD
    if _REFERENCE.match(value) or _VERSION.match(value) or _FILE.search(value) or _PATH.match(value):
        return Look.STRONG if has_random_part(value, _STRONG_CHARS_MIN) else Look.NOTHING
    if _UUID.match(value) or _ULID.match(value):
        return Look.OPAQUE
    if has_random_part(value, _STRONG_CHARS_MIN):
        return Look.STRONG
    if has_random_part(value, _OPAQUE_CHARS_MIN):
        return Look.OPAQUE
    letters = "".join(_SEPARATORS.split(value))
    return Look.WORD if letters.isalpha() and ":" not in value and "@" not in value and "!" not in value else Look.MIXED


def is_placeholder(value: str) -> bool:
    """Tells whether the value only stands for one: a template, a variable, a mask, a word such as `changeme`."""
    if value.lower().strip("\"'`.,;") in _PLAIN_WORDS or _PLACEHOLDER.search(value, 0, _STAND_IN_CHARS_MAX):
        return True
    chars = len(value)
    return chars >= _OPAQUE_CHARS_MIN and entropy_bits(value) < (
        _ENTROPY_MIN_BITS if chars >= 16 else _ENTROPY_SHORT_MIN_BITS
    )


def is_code(value: str) -> bool:
    """Tells whether unquoted text is an expression rather than a literal: a call, a subscript, a member."""
    return bool(_CALL.match(value) or _REFERENCE.match(value))


def has_random_part(value: str, chars_min: int) -> bool:
    """Tells whether the value, cut at punctuation, is long enough and has a part that no person would write."""
    if len(value) < chars_min:
        return False
    return any(_is_random(part) for part in _SEPARATORS.split(value) if len(part) >= _OPAQUE_CHARS_MIN)


def is_gibberish(part: str) -> bool:
    """Tells whether the letters of a word follow each other as in no word that people write."""
    lowered = part.lower()
    pairs = [
        pair
        for pair, (left, right) in zip(pairwise(lowered), pairwise(part), strict=True)
        if left.isalpha() and right.isalpha() and left.islower() == right.islower()
    ]
    usual = sum(second in _FOLLOWERS.get(first, "") for first, second in pairs)
    return len(pairs) >= _PAIRS_MIN and usual < _USUAL_PAIRS_MAX * len(pairs)


def entropy_bits(text: str) -> float:
    """Returns the Shannon entropy per character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values())


def _is_random(part: str) -> bool:
    if _ULID.match(part):
        return False
    classes = part.translate(_CLASSES)
    changes = sum(1 for left, right in pairwise(classes) if left != right)
    if len(part) >= 32 and classes.count("0") >= 6 and classes.strip("0") and entropy_bits(part) >= 3.3:
        return True
    if changes < max(2, len(part) * _TRANSITIONS_MIN):
        return len(part) >= _GIBBERISH_CHARS_MIN and "0" in classes and is_gibberish(part)
    # Camel case changes often too; without digits only a long part of very varied letters counts.
    if "0" in classes:
        return entropy_bits(part) >= _ENTROPY_MIN_BITS
    return len(part) >= _STRONG_CHARS_MIN and entropy_bits(part) >= 4.0 and changes >= len(part) * 0.4
