"""Reads the text of a PDF with pypdf, page by page.

Runs in a process of its own (child), because a PDF can ask for any amount of time and memory.
A page that cannot be read is counted and left out. A document of pictures has no text, which `detail` says.
"""

import io
import time

from pypdf import PageObject, PdfReader
from pypdf.errors import DeprecationError, PyPdfError

from palyra.adapters.readable.cut import cut_at_line
from palyra.core.documents import unreadable
from palyra.core.plurals import counted
from palyra.core.spelling import strip_unseen
from palyra.ports.readable import ReadableText

PAGES_MAX = 1000
PAGES_S = 8.0  # Pages that are not read after so much CPU time are left out; the process itself gets more.
TITLE_LENGTH_MAX = 300
# What pypdf raises for damaged documents, besides its own errors.
_FAULTS = (
    PyPdfError,
    DeprecationError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


def read_pdf(body: bytes, chars_max: int) -> ReadableText:
    try:
        document = PdfReader(io.BytesIO(body), strict=False)
        if document.is_encrypted and not document.decrypt(""):
            raise unreadable("the PDF is encrypted; attach a copy without a password")
        pages_count = len(document.pages)
    except _FAULTS as cause:
        raise unreadable("the PDF is damaged") from cause
    pages, unread_count = _read_pages(document, min(pages_count, PAGES_MAX), chars_max)
    whole = "\n\n".join(f"[page {number}]\n{text}" for number, text in pages if text)
    text = cut_at_line(whole, chars_max)
    read_count = len(pages) + unread_count
    detail = counted(pages_count, "page")
    if not whole:
        detail += ", no text in them; perhaps they are pictures"
    if unread_count:
        detail += f", {unread_count} of them could not be read"
    if read_count < pages_count:
        detail += f"; the first {read_count} were read"
    is_cut = len(text) < len(whole) or read_count < pages_count
    return ReadableText(text=text, title=_title(document), is_cut=is_cut, detail=detail)


def _read_pages(document: PdfReader, count: int, chars_max: int) -> tuple[list[tuple[int, str]], int]:
    """Returns the pages that could be read, and how many could not."""
    pages: list[tuple[int, str]] = []
    unread_count = length = 0
    end_s = time.process_time() + PAGES_S
    for at in range(count):
        if length > chars_max or time.process_time() > end_s:
            break
        text = _text_of(document, at)
        if text is None:
            unread_count += 1
        else:
            pages.append((at + 1, text))
            length += len(text)
    return pages, unread_count


def _text_of(document: PdfReader, at: int) -> str | None:
    try:
        page: PageObject = document.pages[at]
        return strip_unseen(page.extract_text()).strip()
    except _FAULTS:
        return None


def _title(document: PdfReader) -> str:
    try:
        title = document.metadata.title if document.metadata is not None else None
    except _FAULTS:
        return ""
    return " ".join(strip_unseen(title).split())[:TITLE_LENGTH_MAX] if isinstance(title, str) else ""
