"""The DocumentFiles port: text files of a workspace that the daemon itself changes.

Does not own: what is written (core.managed_blocks), recording the change (engine.api.workspace_documents).
"""

from typing import Protocol

import msgspec

from palyra.core.errors import Unavailable


class FoundDocument(msgspec.Struct, frozen=True, kw_only=True):
    """`root` and `path` name the file as the journal does. `text` is None if there is no such file."""

    root: str
    path: str
    text: str | None


class DocumentFiles(Protocol):
    async def read(self, root: str, path: str) -> FoundDocument:
        """Reads a file below the root. Links, devices, binary files and files that hold keys are refused."""
        ...

    async def replace(self, root: str, path: str, text: str, before_sha256: str | None) -> None:
        """Makes the file hold the text, durably, if its bytes still have that hash. None means that there is no file.

        Raises Conflict `document_changed`, and changes nothing, if they have not.
        """
        ...


class NoDocumentFiles:
    """Used where the daemon writes no documents."""

    async def read(self, root: str, path: str) -> FoundDocument:
        raise _nothing()

    async def replace(self, root: str, path: str, text: str, before_sha256: str | None) -> None:
        raise _nothing()


def _nothing() -> Unavailable:
    return Unavailable("unavailable", "this daemon writes no workspace documents")
