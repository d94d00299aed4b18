"""A small reader of documents for tests: plain text as it is, anything else refused."""

from palyra.core.errors import Invalid
from palyra.ports.readable import ReadableText


class PlainDocuments:
    async def read(self, body: bytes, media_type: str, chars_max: int) -> ReadableText:
        if "text/" not in media_type and "json" not in media_type:
            raise Invalid("unreadable", f"{media_type} has no text")
        text = body.decode("utf-8", "replace")
        return ReadableText(text=text[:chars_max], title="A page", is_cut=len(text) > chars_max)
