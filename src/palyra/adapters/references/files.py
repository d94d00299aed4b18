"""Reads files and folders of the workspace for references.

Does not own: the boundary of the workspace (adapters.files.workspace), which entries a folder has (folder_walk).
Invariant: a file that holds keys is not read, whichever way a reference names it.
"""

import asyncio
import os

import msgspec

from palyra.adapters.files.text_file import decode, read_body
from palyra.adapters.files.workspace import WorkspacePath, bytes_at, locate, locate_folder, look, open_folder
from palyra.adapters.references.folder_walk import FolderView, walk_folder
from palyra.core.errors import NotFound, PalyraError, Unauthorized
from palyra.core.events.tool import FileBytes
from palyra.core.references.model import FOLDER_FILES_MAX
from palyra.core.sensitive_files import is_secret
from palyra.ports.references import ReadScope, ReferenceText, TextPart

CANDIDATES_MAX = 48  # So many files of a folder are tried until enough of them turn out to be text.


class WorkspaceFiles:
    async def read_file(self, path: str, scope: ReadScope) -> ReferenceText:
        place = locate(path, scope.workspace)
        refuse_secret(place)
        text, read = await asyncio.to_thread(_read_text, place)
        part = TextPart(text=text[: scope.chars_max], has_more=len(text) > scope.chars_max)
        return ReferenceText(parts=(part,), read=(read,))

    async def find_file(self, path: str, workspace: tuple[str, ...]) -> None:
        await asyncio.to_thread(_look_at, locate(path, workspace))

    async def find_files(self, paths: tuple[str, ...], workspace: tuple[str, ...]) -> tuple[str, ...]:
        return await asyncio.to_thread(lambda: tuple(path for path in paths if _may_exist(path, workspace)))

    async def read_folder(self, path: str, scope: ReadScope) -> ReferenceText:
        place = locate_folder(path, scope.workspace)
        refuse_secret(place)
        view = await asyncio.to_thread(walk_folder, place)
        candidates = [locate(_join(place, name), scope.workspace) for name in view.files[:CANDIDATES_MAX]]
        allowed = [each for each in candidates if scope.may_read(each.shown)]
        shown = await asyncio.to_thread(_read_some, allowed, scope.chars_max)
        listing = TextPart(text=_listing(place, view, len(shown.parts)))
        return ReferenceText(parts=(listing, *shown.parts), read=shown.read, named=_named(place, view))


class _ShownFiles(msgspec.Struct, frozen=True):
    parts: tuple[TextPart, ...]
    read: tuple[FileBytes, ...]


def refuse_secret(place: WorkspacePath) -> None:
    if is_secret("/".join(place.parts)):
        message = f"{place.shown} holds keys or settings of git by its name, and is never shown by a reference"
        raise Unauthorized("secret_file", message)


def _look_at(place: WorkspacePath) -> None:
    with open_folder(place) as folder:
        look(folder, place)


def _may_exist(path: str, workspace: tuple[str, ...]) -> bool:
    try:
        _look_at(locate(path, workspace))
    except NotFound:
        return False
    except PalyraError:
        return True
    return True


def _read_text(place: WorkspacePath) -> tuple[str, FileBytes]:
    body = read_body(place)
    return decode(place, body), bytes_at(place, body)


def _read_some(places: list[WorkspacePath], chars_max: int) -> _ShownFiles:
    """Reads the first files that are text. A file that is gone, is too large or is no text is left out."""
    parts: list[TextPart] = []
    read: list[FileBytes] = []
    for place in places:
        if len(parts) == FOLDER_FILES_MAX:
            break
        try:
            text, file = _read_text(place)
        except PalyraError:
            continue
        parts.append(TextPart(title=place.shown, text=text[:chars_max], has_more=len(text) > chars_max))
        read.append(file)
    return _ShownFiles(tuple(parts), tuple(read))


def _listing(place: WorkspacePath, view: FolderView, shown_count: int) -> str:
    if not view.lines and not view.is_partial:
        return f"[The folder {place.shown} holds no files that a reference shows.]"
    notes = []
    if view.unlisted_count:
        notes.append(f"[At least {view.unlisted_count} more entries are not listed.]")
    if view.is_partial:
        notes.append(f"[The folder is large: only {view.looked_count} entries of it were looked at.]")
    notes.append(f"[The text of {shown_count} {'file' if shown_count == 1 else 'files'} follows.]")
    return "\n".join((f"{place.shown}:", *view.lines, *notes))


def _named(place: WorkspacePath, view: FolderView) -> tuple[str, ...]:
    base = "/".join((os.path.realpath(place.root).rstrip("/"), *place.parts))
    return tuple(f"{base}/{name}" for name in view.names)


def _join(place: WorkspacePath, name: str) -> str:
    """Returns the absolute path, so that it means the same whichever root comes first."""
    if not name:
        raise NotFound("not_found", "an entry without a name")
    return "/".join((place.root.rstrip("/"), *place.parts, name))
