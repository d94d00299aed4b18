"""Finds the charset of bytes that should be text, and decodes them.

Does not own: what is done with bytes that are no text.
A byte order mark decides first, then the charset that is declared, then the bytes themselves. Codecs in which plain
letters can hide other letters are never used.
"""

import codecs
import re

LOOK_BYTES = 8 * 1024  # A NUL byte within these bytes shows that a body is no text, unless it is UTF-16 or UTF-32.
_META_BYTES = 2 * 1024
_CONTROLS_SHARE_MAX = 0.005  # Text holds hardly any control characters; a compressed file holds many.
_ZEROS_SHARE_MIN = 0.4  # In Western text in UTF-16, nearly every second byte is zero.

_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_CONTROLS = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# These codecs of Python are no charsets of the web, or plain letters can hide others in them.
_NO_CHARSETS = frozenset(
    {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem"}
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # It begins with the mark of UTF-16, so it is looked for first.
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def find_charset(body: bytes, content_type: str) -> str | None:
    """Returns the charset by the byte order mark, the content type, or the page itself; None if none is named.

    An unknown one is read as UTF-8.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    said = _CHARSET.search(content_type)
    if said is None and "html" in content_type:
        said = _CHARSET.search(body[:_META_BYTES].decode("latin-1"))
    if said is None:
        return None
    try:
        name = codecs.lookup(said[1]).name
    except LookupError:
        return "utf-8"
    return "utf-8" if name.replace("_", "-") in _NO_CHARSETS else "cp1252" if name in ("iso8859-1", "ascii") else name


def decode(body: bytes, charset: str) -> str:
    """Decodes bytes; what does not fit the charset becomes the replacement character."""
    try:
        return body.decode(charset, "replace")
    except (LookupError, ValueError):  # ValueError comes from a codec that cannot replace what it does not know.
        return body.decode("utf-8", "replace")


def decode_text(body: bytes, content_type: str) -> tuple[str, str] | None:
    """Returns the text and its charset; None if the bytes are no text in any charset that is in use."""
    charset = find_charset(body, content_type)
    if charset is not None and charset.startswith(("utf-16", "utf-32")):
        return decode(body, charset), charset
    if b"\x00" in body[:LOOK_BYTES]:
        wide = _guess_wide(body[:LOOK_BYTES])
        return None if wide is None else (decode(body, wide), wide)
    if charset is None and _is_utf8(body):
        charset = "utf-8"
    if len(_CONTROLS.findall(body[:LOOK_BYTES])) > len(body[:LOOK_BYTES]) * _CONTROLS_SHARE_MAX + 1:
        return None
    charset = charset or "cp1252"
    return decode(body, charset), charset


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _guess_wide(start: bytes) -> str | None:
    """Returns which UTF-16 this is, by where the zeros stand; None if it is none."""
    low, high = start[0::2], start[1::2]
    for zeros, others, name in ((high, low, "utf-16-le"), (low, high, "utf-16-be")):
        is_wide = zeros.count(0) >= len(zeros) * _ZEROS_SHARE_MIN and others.count(0) == 0
        if is_wide and zeros:
            return name
    return None
