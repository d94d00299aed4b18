"""Reads pages for references, through the guard.

Does not own: which addresses may be reached (adapters.net.guard), nor how a document becomes text (ports.readable).
A redirect that leaves the host is not followed, as with http.fetch: another host was not what the person wrote.
"""

import re

from palyra.adapters.net.guard import Guard
from palyra.adapters.net.guard_exchange import FetchedResponse, FetchRequest, GuardedExchange
from palyra.core.errors import Invalid, Unavailable
from palyra.core.spelling import strip_unseen
from palyra.core.taint import label
from palyra.ports.readable import DocumentReader
from palyra.ports.references import ReadScope, ReferenceText, TextPart

TOTAL_S = 15.0
BODY_BYTES_MAX = 5 * 1024 * 1024
TITLE_LENGTH_MAX = 200
_FAILED_FROM = 400
_HTML_START = re.compile(rb"\s*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)


class GuardedPages:
    def __init__(self, guard: Guard, documents: DocumentReader, total_s: float = TOTAL_S) -> None:
        self._exchange = GuardedExchange(guard, total_s, BODY_BYTES_MAX)
        self._documents = documents

    async def read_page(self, url: str, scope: ReadScope) -> ReferenceText:
        """Raises Invalid `address_refused`, and Unavailable for whatever keeps a page from coming."""
        answer = await self._exchange.perform(FetchRequest(url=url))
        _require_page(answer)
        page = await self._documents.read(answer.body, _media_type(answer), scope.chars_max)
        title = " ".join(strip_unseen(page.title).split())[:TITLE_LENGTH_MAX]
        text = f"Title: {title}\n\n{page.text}" if title else page.text
        part = TextPart(text=text, has_more=page.is_cut or bool(answer.note))
        return ReferenceText(parts=(part,), source=label("http", answer.target.endpoint.host))


def _require_page(answer: FetchedResponse) -> None:
    host = answer.target.endpoint.host
    if answer.elsewhere:
        raise Invalid("redirects_elsewhere", f"{host} redirects to {answer.elsewhere}; refer to that address instead")
    if answer.status >= _FAILED_FROM:
        raise Unavailable("http_status", f"{host} answered with status {answer.status}")
    if not answer.body:
        raise Invalid("empty_page", f"{host} answered with an empty body")


def _media_type(answer: FetchedResponse) -> str:
    """Returns the whole header, which may name a charset. Without one, the beginning of the body decides."""
    said = answer.header("content-type").strip()
    if said:
        return said
    return "text/html" if _HTML_START.match(answer.body) else "text/plain"
