"""The ports behind references: what reads files, folders, changes of a repository, and pages.

Does not own: whether a reference may be read (engine.session.reference_judge), nor its limits (core.references).
Every reader refuses files that hold keys, and reads nothing outside the workspace. A refusal is an error of
core.errors, whose code and message a person is shown.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from palyra.core.errors import Unavailable
from palyra.core.events.tool import FileBytes
from palyra.core.trust import Trust


class ReadScope(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reader may go. `may_read` judges one more file, by its path in the workspace."""

    workspace: tuple[str, ...]
    chars_max: int
    may_read: Callable[[str], bool]


class TextPart(msgspec.Struct, frozen=True, kw_only=True):
    """A text that is cut by itself. `has_more` says that the reader left something out."""

    text: str
    title: str = ""
    has_more: bool = False


class ReferenceText(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader found. `read` and `named` are those of a tool's result; by them, taint comes back.

    `trust` and `source` are set where the reader knows them better than the tool that the reference stands for, and
    `sources` where there are several. `memory_ids` are the remembered items that the text shows.
    """

    parts: tuple[TextPart, ...]
    read: tuple[FileBytes, ...] = ()
    named: tuple[str, ...] = ()
    trust: Trust | None = None
    source: str | None = None
    sources: tuple[str, ...] = ()
    memory_ids: tuple[str, ...] = ()


class FileReader(Protocol):
    async def read_file(self, path: str, scope: ReadScope) -> ReferenceText: ...

    async def find_file(self, path: str, workspace: tuple[str, ...]) -> None:
        """Returns if there is such a file, whatever it holds. Raises NotFound or Invalid if there is none."""
        ...

    async def find_files(self, paths: tuple[str, ...], workspace: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the paths that may be files: all but those where there certainly is nothing. Reads none of them."""
        ...

    async def read_folder(self, path: str, scope: ReadScope) -> ReferenceText:
        """Returns the names in a folder, and the beginnings of some of its files."""
        ...


class ChangeReader(Protocol):
    async def read_changes(self, path: str, scope: ReadScope) -> ReferenceText:
        """Returns what differs from the index of the repository around the path."""
        ...

    async def read_staged(self, path: str, scope: ReadScope) -> ReferenceText:
        """Returns what the index of the repository around the path changes in its last commit."""
        ...


class PageReader(Protocol):
    async def read_page(self, url: str, scope: ReadScope) -> ReferenceText: ...


class NoReferences:
    """Used where nothing can be referred to."""

    async def find_file(self, path: str, workspace: tuple[str, ...]) -> None:
        raise _nothing()

    async def find_files(self, paths: tuple[str, ...], workspace: tuple[str, ...]) -> tuple[str, ...]:
        return paths

    async def read_file(self, path: str, scope: ReadScope) -> ReferenceText:
        raise _nothing()

    async def read_folder(self, path: str, scope: ReadScope) -> ReferenceText:
        raise _nothing()

    async def read_changes(self, path: str, scope: ReadScope) -> ReferenceText:
        raise _nothing()

    async def read_staged(self, path: str, scope: ReadScope) -> ReferenceText:
        raise _nothing()

    async def read_page(self, url: str, scope: ReadScope) -> ReferenceText:
        raise _nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceReaders:
    files: FileReader = field(default_factory=NoReferences)
    changes: ChangeReader = field(default_factory=NoReferences)
    pages: PageReader = field(default_factory=NoReferences)


def _nothing() -> Unavailable:
    return Unavailable("unavailable", "this daemon reads no references")
