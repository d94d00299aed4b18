"""The DocumentReader port: makes the readable text of a document.

Does not own: where the bytes came from, nor what trust they have (engine).
"""

from typing import Protocol

import msgspec

from palyra.core.documents import unreadable


class ReadableText(msgspec.Struct, frozen=True, kw_only=True):
    """`title` is the document's own, or empty. `detail` says what it holds, as in `12 pages`, and how much was read.

    `is_cut` says that the document holds more text than this.
    """

    text: str
    title: str = ""
    is_cut: bool = False
    detail: str = ""


class DocumentReader(Protocol):
    async def read(self, body: bytes, media_type: str, chars_max: int) -> ReadableText:
        """Returns at most `chars_max` characters of text. Nothing in it is invisible to people.

        Raises Invalid `unreadable` with the reason in plain words: a type without text, bytes that contradict their
        type, a damaged or encrypted document, or one that takes too long.
        """
        ...


class NoDocumentReader:
    """Reads nothing."""

    async def read(self, body: bytes, media_type: str, chars_max: int) -> ReadableText:
        raise unreadable("this daemon reads no documents")
