"""Makes the readable text of a document: finds its kind, then calls the reader of that kind.

Does not own: where this runs (reader, child).
"""

from typing import assert_never

from palyra.adapters.readable.cut import cut_at_line
from palyra.adapters.readable.plain import read_json, read_plain
from palyra.adapters.readable.table import read_table
from palyra.core.charsets import decode_text
from palyra.core.documents import DocumentKind, find_kind, unreadable
from palyra.core.pages.readable import make_readable
from palyra.ports.readable import ReadableText


def extract(body: bytes, media_type: str, chars_max: int) -> ReadableText:
    """Raises Invalid `unreadable`."""
    kind = find_kind(body, media_type)
    if kind is DocumentKind.PDF:
        from palyra.adapters.readable.pdf import read_pdf  # Takes a tenth of a second, which other kinds do not need.

        return read_pdf(body, chars_max)
    decoded = decode_text(body, media_type)
    if decoded is None:
        raise unreadable(f"its media type is {media_type}, but its bytes are no text")
    text, charset = decoded
    match kind:
        case DocumentKind.TEXT:
            return read_plain(text, charset, chars_max)
        case DocumentKind.JSON:
            return read_json(text, charset, chars_max)
        case DocumentKind.TABLE:
            return read_table(text, media_type.lower(), chars_max)
        case DocumentKind.HTML:
            return _read_page(text, chars_max)
        case _:
            assert_never(kind)


def _read_page(page: str, chars_max: int) -> ReadableText:
    """A file has no address, so only whole addresses in it are kept as links."""
    made = make_readable(page, "")
    text = cut_at_line(made.text, chars_max)
    detail = "a page" if made.text else "a page without readable text"
    return ReadableText(text=text, title=made.title, is_cut=made.is_cut or len(text) < len(made.text), detail=detail)
