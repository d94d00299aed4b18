"""Keeps what a tool replaces in the workspace, so that its change can be shown and undone.

Owns: reading a file before and after a tool changed it. Does not own: changing it (the tool), storage (the engine).
"""

import hashlib
import os
from contextlib import suppress

import msgspec

from palyra.adapters.files.archives import ArchiveWriter
from palyra.adapters.files.own_writes import OWN_WRITES
from palyra.adapters.files.workspace import WorkspacePath, open_file, open_folder, read_bytes
from palyra.core.errors import PalyraError
from palyra.core.events.draft import ChangeKind, FileChange
from palyra.core.tools import Changed

KEPT_BYTES_MAX = 16 * 1024 * 1024  # A longer file is replaced without being kept.


class _FileContent(msgspec.Struct, frozen=True):
    body: bytes
    mode: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


class ChangeKeeper:
    """Collects the changes of one call: `before` each file is touched, then `finish`."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[WorkspacePath, _FileContent | None]] = {}

    def before(self, place: WorkspacePath) -> None:
        key = (os.path.realpath(place.root), "/".join(place.parts))
        if key not in self._before:
            self._before[key] = (place, _read(place))

    def finish(self) -> Changed:
        changes: list[FileChange] = []
        archive = ArchiveWriter()
        for (root, path), (place, before) in self._before.items():
            after = _read(place)
            full = f"{root.rstrip('/')}/{path}"
            OWN_WRITES.note(full)
            change = _change(root, path, before, after)
            if change is not None:
                changes.append(change)
                if before is not None:
                    archive.add_bytes(full, before.body, before.mode)
        return Changed(changes=tuple(changes), undo=archive.finish())


def _change(root: str, path: str, before: _FileContent | None, after: _FileContent | None) -> FileChange | None:
    if before == after:
        return None
    kind = ChangeKind.MODIFIED
    if before is None or after is None:
        kind = ChangeKind.CREATED if before is None else ChangeKind.DELETED
    return FileChange(
        root=root,
        path=path,
        kind=kind,
        before_sha256=before.sha256 if before is not None else None,
        after_sha256=after.sha256 if after is not None else None,
        mode=after.mode if after is not None else 0,
        before_mode=before.mode if before is not None else 0,
        bytes=len(after.body) if after is not None else 0,
    )


def _read(place: WorkspacePath) -> _FileContent | None:
    """Returns nothing for a file that is not there, is no regular file, or is too long."""
    with suppress(PalyraError, OSError), open_folder(place) as folder:
        file = open_file(folder, place)
        try:
            body = read_bytes(file, KEPT_BYTES_MAX + 1)
            mode = os.fstat(file).st_mode & 0o777
            return _FileContent(body, mode) if len(body) <= KEPT_BYTES_MAX else None
        finally:
            os.close(file)
    return None
