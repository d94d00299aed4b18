"""The DocumentReader port: makes the readable text of a document.

Does not own: where the bytes came from, nor what trust they have (engine).
"""

from typing import Protocol

import msgspec

from palyra.core.errors import Invalid


class ReadableText(msgspec.Struct, frozen=True, kw_only=True):
    """`title` is the document's own, or empty. `is_cut` says that the document holds more text than this."""

    text: str
    title: str = ""
    is_cut: bool = False


class DocumentReader(Protocol):
    async def read(self, body: bytes, media_type: str, chars_max: int) -> ReadableText:
        """Returns at most `chars_max` characters of text. Raises Invalid `unreadable` with the reason in plain words."""
        ...


class NoDocumentReader:
    """Reads nothing."""

    async def read(self, body: bytes, media_type: str, chars_max: int) -> ReadableText:
        raise Invalid("unreadable", "this daemon reads no documents")
