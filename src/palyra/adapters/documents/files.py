"""Reads and replaces documents of a workspace, behind ports.workspace_documents.

Does not own: the boundary of the workspace (adapters.files.workspace).
Invariants: at every instant the file has its old content or its new one, also if the daemon is killed. The new content
replaces only the bytes that the caller knew: they are compared directly before the rename. A killed write leaves a
partial file, which the next write of the same document removes.
"""

import asyncio
import hashlib
import os
from contextlib import suppress

from palyra.adapters.files.partial import Writing, fill_partial
from palyra.adapters.files.text_file import decode
from palyra.adapters.files.workspace import (
    WorkspacePath,
    bytes_at,
    locate,
    look,
    make_folder,
    open_file,
    open_folder,
    read_bytes,
)
from palyra.core.errors import Conflict, Invalid, NotFound, Unauthorized
from palyra.core.sensitive_files import is_secret
from palyra.ports.workspace_documents import FoundDocument

FILE_BYTES_MAX = 1024 * 1024  # Notes of people. A larger file is no document that anybody reads.


class WorkspaceDocumentFiles:
    async def read(self, root: str, path: str) -> FoundDocument:
        place = _place(root, path)
        return await asyncio.to_thread(read_document, place)

    async def replace(self, root: str, path: str, text: str, before_sha256: str | None) -> None:
        place = _place(root, path)
        await asyncio.to_thread(replace_document, place, text.encode(), before_sha256)


def read_document(place: WorkspacePath) -> FoundDocument:
    named = bytes_at(place, b"")
    try:
        with open_folder(place) as folder:
            body = _body(folder, place)
    except NotFound:
        body = None
    text = None if body is None else decode(place, body)
    return FoundDocument(root=named.root, path=named.path, text=text)


def replace_document(place: WorkspacePath, body: bytes, before_sha256: str | None) -> None:
    if len(body) > FILE_BYTES_MAX:
        raise _too_large(place)
    with make_folder(place) as folder:
        _require_unchanged(folder, place, before_sha256)
        before = None if before_sha256 is None else look(folder, place)
        writing = Writing(place, body, _partial_name(place))
        try:
            fill_partial(writing, folder, before)
            _require_unchanged(folder, place, before_sha256)
            if before is None:
                _create(writing, folder)
            else:
                os.rename(writing.partial_name, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(writing.partial_name, dir_fd=folder)


def _create(writing: Writing, folder: int) -> None:
    """A link, unlike a rename, never replaces a file that came first."""
    try:
        os.link(writing.partial_name, writing.place.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError as cause:
        raise _changed(writing.place) from cause


def _place(root: str, path: str) -> WorkspacePath:
    place = locate(path, (root,))
    if is_secret("/".join(place.parts)):
        raise Unauthorized("secret_file", f"{place.shown} holds keys or settings of git by its name")
    return place


def _body(folder: int, place: WorkspacePath) -> bytes | None:
    try:
        file = open_file(folder, place)
    except FileNotFoundError:
        return None
    try:
        body = read_bytes(file, FILE_BYTES_MAX + 1)
    finally:
        os.close(file)
    if len(body) > FILE_BYTES_MAX:
        raise _too_large(place)
    return body


def _require_unchanged(folder: int, place: WorkspacePath, before_sha256: str | None) -> None:
    body = _body(folder, place)
    if (None if body is None else hashlib.sha256(body).hexdigest()) != before_sha256:
        raise _changed(place)


def _partial_name(place: WorkspacePath) -> str:
    return f".palyra-{hashlib.sha256(place.name.encode()).hexdigest()[:24]}.partial"


def _changed(place: WorkspacePath) -> Conflict:
    return Conflict("document_changed", f"{place.shown} changed meanwhile; read it again")


def _too_large(place: WorkspacePath) -> Invalid:
    return Invalid("file_too_large", f"{place.shown} has more than {FILE_BYTES_MAX} bytes and is not changed")
