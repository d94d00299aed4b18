"""Kinds of documents whose text can be read, by their media type and their bytes.

Does not own: reading them (ports.readable), images (core.images).
Invariant: bytes that contradict their media type are never read as that type. The reason says so in plain words.
"""

import re
from enum import Enum

from palyra.core.charsets import LOOK_BYTES, decode_text
from palyra.core.errors import Invalid
from palyra.core.images import find_type

UNREADABLE = "unreadable"
GENERIC_TYPE = "application/octet-stream"  # Says nothing, so the bytes alone decide.
_PDF_LOOK_BYTES = 1024  # Where readers of PDF look for its sign; some programs write a header before it.


class DocumentKind(Enum):
    TEXT = "text"
    HTML = "HTML"
    JSON = "JSON"
    TABLE = "a table"
    PDF = "PDF"


_KINDS = {
    "text/html": DocumentKind.HTML,
    "application/xhtml+xml": DocumentKind.HTML,
    "application/json": DocumentKind.JSON,
    "text/json": DocumentKind.JSON,
    "text/csv": DocumentKind.TABLE,
    "application/csv": DocumentKind.TABLE,
    "text/x-csv": DocumentKind.TABLE,
    "text/tab-separated-values": DocumentKind.TABLE,
    "application/pdf": DocumentKind.PDF,
    "application/x-pdf": DocumentKind.PDF,
}
_TEXT_TYPE = re.compile(
    r"text/.*|application/(?:(?:x-)?(?:sh|csh|sql|toml|yaml|xml|javascript|ecmascript|typescript|python|perl|ruby|php|"
    r"httpd-php|tex|latex|texinfo|ndjson|www-form-urlencoded|subrip)|jsonl|json5|json-seq|graphql|xml-dtd|rtf|x-tcl)"
    r"|.*\+(?:xml|yaml)"
)


def plain_type(media_type: str) -> str:
    """Returns a media type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


def kind_of_type(media_type: str) -> DocumentKind | None:
    """Returns the kind that a media type promises; None if no text can be read from that type."""
    plain = plain_type(media_type)
    known = _KINDS.get(plain)
    if known is not None:
        return known
    if plain.endswith("+json"):
        return DocumentKind.JSON
    return DocumentKind.TEXT if _TEXT_TYPE.fullmatch(plain) else None


def find_kind(body: bytes, media_type: str) -> DocumentKind:
    """Returns the kind of these bytes. Raises Invalid `unreadable` if their type has no text, or contradicts them."""
    plain = plain_type(media_type)
    kind = _kind_of_bytes(body) if plain == GENERIC_TYPE else kind_of_type(plain)
    if kind is None:
        raise unreadable(f"no text can be read from {plain}; text, HTML, JSON, CSV, TSV and PDF can")
    actual = _other_type(body)
    if kind is DocumentKind.PDF and b"%PDF-" not in body[:_PDF_LOOK_BYTES]:
        raise unreadable(f"its media type is {plain}, but its bytes are {actual or 'no PDF'}")
    if kind is not DocumentKind.PDF and actual is not None:
        raise unreadable(f"its media type is {plain}, but its bytes are {actual}")
    return kind


def unreadable(reason: str) -> Invalid:
    return Invalid(UNREADABLE, reason)


def _kind_of_bytes(body: bytes) -> DocumentKind | None:
    if body.startswith(b"%PDF-"):
        return DocumentKind.PDF
    return DocumentKind.TEXT if find_type(body) is None and decode_text(body[:LOOK_BYTES], "") is not None else None


def _other_type(body: bytes) -> str | None:
    """Returns a type that begins with a sign of its own, if the bytes begin with that sign."""
    if body.startswith(b"%PDF-"):
        return "application/pdf"
    if body.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "application/zip"
    return find_type(body)
