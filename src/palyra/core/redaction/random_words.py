"""Finds random words that are secrets by what stands beside them, whoever's keys they are.

Owns: secrets of vendors that no list names. Does not own: keys of a known shape (formats), named values (assignments).
A word is a run of letters, digits, `_` and `-`; behind a name, other signs may stand in it. Four things make it a
secret: it is so random that nobody wrote it; it is quoted or parted behind any name that is not one of a hash or an id;
it is a quoted argument of a call; or it stands in an element such as <secret>.
Only text up to LOOK_BACK_CHARS before a word is read, so a stream decides as the whole text does.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from palyra.core.redaction.spans import Span
from palyra.core.redaction.values import Look, entropy_bits, is_code, is_gibberish, is_placeholder, look_of

LOOK_BACK_CHARS = 120
_WILD_CHARS_MIN = 24  # Shorter mixed words are ids of pages and builds.
_WILD_CHARS_MAX = 56  # Lines of encoded data are longer.
_WILD_LOWER_CHARS_MAX = 128  # Encoded data is never of small letters and digits alone.
_WILD_ENTROPY_MIN_BITS = 3.8
_WILD_CHANGES_MIN = 0.34

# A digit within the first letters: a word of letters alone is an identifier.
_WORD = re.compile(r"(?<![\w/+.=›@#$%‹\-])(?=[A-Za-z_\-]{0,40}[0-9])[A-Za-z0-9_\-]{16,256}(?:={1,2})?(?![\w/+.@‹(])")
# The same with the signs that some keys hold. Only a name right before it makes such a value a secret.
_SIGNED_WORD = re.compile(
    r"(?<![\w/+.=›@#$%‹~^!*?\-])(?=[A-Za-z0-9_\-]{0,80}[+/.~^!#*?%])[\w+/.~^!#*?%$\-]{20,512}={0,2}(?![\w/+.@‹(:=])",
    re.ASCII,
)
_WILD_BEFORE = re.compile(r"(?:\A|[\s\"'`=:,;|(\[{<>])\Z")
# Names whose values look random and are public: hashes, ids, versions.
_PUBLIC_NAME = re.compile(
    r"(?:sha|md|hash|digest|checksum|crc|integrity|commit|revision|rev|ref|refs|tree|blob|object|etag|uuid|guid|ids?"
    r"|version|build|fingerprint|nonce|cursor|expected|actual|result|image|layer|artifact|node|seq|position|boundary|name"
    r"|path|file|url|uri|href|src|class|style|color|colour|public|cert|certificate|marker|effect|call|run|session|tape"
    r"|input|output|content|data|body|payload|html|base|salt|index|slug|branch|tag|trace|span|request|correlation)\Z",
    re.IGNORECASE,
)
_NAME_BEFORE = re.compile(
    r"([A-Za-z][\w.\-]{0,40})[\"'\])]{0,3}(?:\s{0,3}(?:=>|:=|[=:])\s{0,3}[\"'`]?|\s{0,3}(?:\||-)\s{0,3}[\"'`])\Z"
)
# A word for secrets on the same line: `key of acme 'f00…'`, "the secret f00… of acme".
_STEM_NEAR = re.compile(r"(?:key|token|secret|passw(?:or)?d|pwd|auth|credential)s?\b[^\n]{0,48}\Z", re.IGNORECASE)
_OPEN_WORDS = frozenset(("public", "pub", "publishable"))
# An argument of a call: `Client("f00…")`, `init('f00…')`.
_CALL_BEFORE = re.compile(r"([A-Za-z_]\w{1,40})\([^()\n]{0,60}[\"'`]\Z")
_SPEAKS = re.compile(r"client|connect|init|setup|auth|login|session|sdk|api\Z", re.IGNORECASE)
_AUTHORIZATION = re.compile(r"authori[sz]ation[\"']?\s{0,3}[:=]\s{0,3}[\"']?[\w\-]{2,24}\s{1,3}\Z", re.IGNORECASE)
_IN_BLOCK = re.compile(r"(?:PUBLIC KEY|CERTIFICATE|SIGNATURE|MESSAGE)-----\s*\Z")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ELEMENT = re.compile(
    r"<(?:\w{0,20}[:_\-])?(?:\w{0,20}(?:secret|token|password|passphrase|apikey|api_key|key|credential))>[^<>]*\Z",
    re.IGNORECASE,
)
_QUERY = re.compile(
    r"[?&;](?:amp;)?(?:sig|signature|code|auth|auth_?key|session_?id|sessionid|sid|ticket|hmac|otp|pin|access|jwt|assertion"
    r"|x-(?:amz|goog)-(?:signature|credential|security-token))=([^\s&\"'<>#;‹›]{8,512})",
    re.IGNORECASE,
)
# Parameters that say by themselves that they open what the address leads to. What their value looks like counts no more.
_KEY_QUERY = re.compile(
    r"[?&;](?:amp;)?(?:sig|signature|auth|auth_?(?:key|token)|session_?(?:id|token|key)|[a-z]{0,12}sess(?:ion)?_?id|sid|ticket"
    r"|token|(?:access|refresh|id|api|bearer)_?token|api_?key|access_?key|jwt|hmac"
    r"|x-(?:amz|goog)-(?:signature|security-token))=([^\s&\"'<>#;‹›(){}\[\]$`\\]{12,2048})",
    re.IGNORECASE,
)
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")  # Our own ids stand in our own addresses, and open nothing.
_HEX = re.compile(r"[0-9a-f]+\Z|[0-9A-F]+\Z")


def find_random_words(text: str, start: int, end: int, floor: int) -> Iterator[Span]:
    """Yields the random words of this part that are secrets. `floor` is how far back the text may be read."""
    for match in _WORD.finditer(text, start, end):
        word = match.group()
        if look_of(word) is not Look.STRONG and len(word) < _WILD_CHARS_MIN and not _is_hex(word):
            continue
        # A marker's own words, such as `secret`, name nothing.
        before = text[max(floor, match.start() - LOOK_BACK_CHARS) : match.start()].rpartition("›")[2]
        if _is_secret(word, before):
            yield Span(match.start(), match.end(), "random_token")
    for match in _SIGNED_WORD.finditer(text, start, end):
        before = text[max(floor, match.start() - LOOK_BACK_CHARS) : match.start()].rpartition("›")[2]
        if _is_signed_secret(match.group(), before):
            yield Span(match.start(), match.end(), "random_token")
    if "=" in text[start:end]:
        yield from _find_query_values(text, start, end)


def _find_query_values(text: str, start: int, end: int) -> Iterator[Span]:
    """Yields values of parameters that open what an address leads to."""
    for match in _QUERY.finditer(text, start, end):
        if look_of(match.group(1)) >= Look.OPAQUE:
            yield Span(match.start(1), match.end(1), "query_token")
    for match in _KEY_QUERY.finditer(text, start, end):
        value = match.group(1)
        is_address = "/" in text[start : match.start()]
        if is_address and not is_placeholder(value) and _ULID.fullmatch(value) is None:
            yield Span(match.start(1), match.end(1), "query_token")


def _is_secret(word: str, before: str) -> bool:
    if _ELEMENT.search(before):
        return look_of(word) >= Look.OPAQUE
    named = _NAME_BEFORE.search(before)
    if named is not None:
        return not _is_public(named.group(1)) and (look_of(word) is Look.STRONG or _is_long_hex(word))
    if _AUTHORIZATION.search(before):
        return look_of(word) >= Look.OPAQUE
    if _is_public_before(before):
        return False
    called = _CALL_BEFORE.search(before)
    if called is not None:
        return _is_secret_argument(called.group(1), word)
    if _STEM_NEAR.search(before) and _WILD_BEFORE.search(before[-1:]):
        return look_of(word) is Look.STRONG
    return _is_wild(word) and _WILD_BEFORE.search(before[-1:]) is not None


def _is_secret_argument(called: str, word: str) -> bool:
    """A hash is an argument of many calls, and a secret only of those that begin to speak to somebody."""
    if _is_hex(word):
        return _is_long_hex(word) and _SPEAKS.search(called) is not None
    return not _is_public(called) and look_of(word) is Look.STRONG


def _is_signed_secret(word: str, before: str) -> bool:
    if word.startswith(("/", "./", "../", "~/")) or "//" in word:
        return False  # A path or an address.
    if is_code(word) and before[-1:] not in "\"'`" and max(map(len, word.split("."))) < _WILD_CHARS_MIN:
        return False  # Names of a program, not quoted, and none of them too long to be one.
    named = _NAME_BEFORE.search(before)
    is_named = named is not None and not _is_public(named.group(1))
    return (is_named or _AUTHORIZATION.search(before) is not None) and look_of(word) is Look.STRONG


def _is_wild(word: str) -> bool:
    """Tells whether a word is of all kinds of letters in no order: no person and no hash looks so."""
    if word.isalnum() and (word.islower() or word.isupper()):
        return _is_wild_in_one_case(word)
    if not _WILD_CHARS_MIN <= len(word) <= _WILD_CHARS_MAX or word.count("-") + word.count("_") > 3:
        return False
    kinds = ["a" if letter.islower() else "A" if letter.isupper() else "0" for letter in word if letter.isalnum()]
    counts = [kinds.count(kind) for kind in "aA0"]
    changes = sum(left != right for left, right in pairwise(kinds))
    is_mixed = min(counts[0], counts[1]) >= 3 and counts[2] >= 2
    return is_mixed and changes >= _WILD_CHANGES_MIN * len(kinds) and entropy_bits(word) >= _WILD_ENTROPY_MIN_BITS


def _is_wild_in_one_case(word: str) -> bool:
    chars_max = _WILD_LOWER_CHARS_MAX if word.islower() else _WILD_CHARS_MAX
    if not _WILD_CHARS_MIN <= len(word) <= chars_max or _is_hex(word):
        return False
    return look_of(word) is Look.STRONG and is_gibberish(word)


def _is_public_before(before: str) -> bool:
    """Tells whether the name right before says that a hash or an id follows, or that a public block begins."""
    if _IN_BLOCK.search(before):
        return True
    names = re.findall(r"[A-Za-z][\w\-]*", before[-40:])
    return bool(names) and _is_public(names[-1])


def _is_public(name: str) -> bool:
    parts = _PART.findall(name)
    return bool(parts) and (
        _PUBLIC_NAME.match(parts[-1]) is not None or not _OPEN_WORDS.isdisjoint(map(str.lower, parts))
    )


def _is_hex(word: str) -> bool:
    return _HEX.match(word) is not None


def _is_long_hex(word: str) -> bool:
    return len(word) in (32, 40, 48, 64) and _is_hex(word) and sum(map(str.isdigit, word)) >= 6
