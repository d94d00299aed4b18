"""Readable texts of attached documents: read once, when the message is accepted.

Does not own: reading a kind of document (ports.readable), how the text is shown (core.attachments).
Invariants: a text that is kept holds markers in place of secrets (L5). The part that is shown is the beginning of the
text that is kept, so `artifact.read` goes on exactly where it ends.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from palyra.core.attachments import SHOWN_BYTES_MAX, SHOWN_TOGETHER_BYTES_MAX, cut_to_show, encoded_bytes
from palyra.core.events.codec import DATA_BYTES_MAX
from palyra.core.events.run import AttachedText
from palyra.core.fences import FENCE_ID_LENGTH
from palyra.ports.artifacts import Artifacts
from palyra.ports.readable import DocumentReader, ReadableText

READ_CHARS_MAX = 400_000  # Of one document: some 200 pages. More would make reading and redacting it take seconds.
EVENT_RESERVE_BYTES = (
    40 * 1024
)  # What names, titles and hashes of all attachments take at most, and markers of secrets.
_EARLIER_CUTS_MAX = 8  # How many lines are given up to end outside of a secret that covers several lines.


class PreparedText(msgspec.Struct, frozen=True):
    """A text that was read, with markers in place of its secrets, and the text as it was."""

    read: ReadableText
    clean: str


@dataclass(frozen=True, slots=True)
class TextIntake:
    """`clean` replaces the secrets of a text by markers."""

    reader: DocumentReader
    artifacts: Artifacts
    clean: Callable[[str], str]

    async def read(self, body: bytes, media_type: str) -> PreparedText:
        """Reads one document. Raises Invalid `unreadable`."""
        read = await self.reader.read(body, media_type, READ_CHARS_MAX)
        return PreparedText(read, await asyncio.to_thread(self.clean, read.text))

    async def show(self, texts: Sequence[PreparedText | None], message: str) -> tuple[AttachedText | None, ...]:
        """Returns what is shown of each text. Texts that are not shown whole are stored.

        The event also holds the message. So a long message leaves less room.
        """
        event_bytes = DATA_BYTES_MAX - EVENT_RESERVE_BYTES - encoded_bytes(message)
        room_bytes = max(0, min(SHOWN_TOGETHER_BYTES_MAX, event_bytes))
        shown: list[AttachedText | None] = []
        for text in texts:
            attached = None if text is None else await asyncio.to_thread(self._cut, text, room_bytes)
            if text is not None and attached is not None and attached.is_cut:
                # Its name is that of the stored bytes, which are others if the store sealed them.
                stored = await self.artifacts.put(text.clean.encode("utf-8", "replace"))
                attached = msgspec.structs.replace(attached, sha256=stored)
            shown.append(attached)
            if attached is not None:
                room_bytes -= encoded_bytes(attached.shown)
        return tuple(shown)

    def _cut(self, text: PreparedText, room_bytes: int) -> AttachedText:
        shown = self._beginning(text, min(room_bytes, SHOWN_BYTES_MAX))
        whole = text.clean.encode("utf-8", "replace")
        return AttachedText(
            shown=shown,
            sha256=hashlib.sha256(whole).hexdigest(),
            bytes=len(whole),
            fence_id=secrets.token_hex(FENCE_ID_LENGTH // 2),
            title=text.read.title,
            detail=text.read.detail,
            is_cut=self.clean(shown) != text.clean,
            is_partial=text.read.is_cut,
        )

    def _beginning(self, text: PreparedText, room_bytes: int) -> str:
        """Returns the beginning as it was read, secrets included, so that the event seals them for its run.

        A cut inside a secret would show a part of it. Then the cut moves to earlier lines. As a last resort the clean
        text is cut instead, whose secrets nobody can use.
        """
        shown = cut_to_show(text.read.text, room_bytes)
        for _ in range(_EARLIER_CUTS_MAX):
            clean = self.clean(shown)
            if text.clean.startswith(clean) and encoded_bytes(clean) <= room_bytes:
                return shown
            shown = shown[: max(0, shown.rfind("\n"))]
        return cut_to_show(text.clean, room_bytes)
