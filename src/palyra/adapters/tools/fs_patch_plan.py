"""Plans a patch: reads the files it names and computes what each becomes.

Does not own: changing any file (fs_patch).
Every file is read before any is changed, so a hunk that does not match refuses the whole patch. A file carries the mark
of the effect that wrote it, if the file system has room for one. After a crash the same effect recognises its own files
by it, even if their text alone could not tell (equal lines). Without marks the text decides (core.patches).
"""

import os

import msgspec

from palyra.adapters.files.partial import MARK
from palyra.adapters.files.text_file import decode
from palyra.adapters.files.workspace import WorkspacePath, bytes_at, locate, open_file, open_folder, read_bytes
from palyra.core.errors import Conflict, Invalid, NotFound, PalyraError
from palyra.core.events.tool import FileBytes
from palyra.core.patches import Applied, FilePatch, PatchKind, apply
from palyra.core.plurals import counted

FILE_BYTES_MAX = 2 * 1024 * 1024


class PatchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one file.

    `text` is the new content of the place; None if no file stays there. `gone` is the place that loses its file. `seen`
    and `gone_seen` are what lay at the two places when they were read; None means nothing. `kept` is the file whose
    owner and mode stay.
    """

    place: WorkspacePath
    done: str
    old: str = ""
    text: str | None
    gone: WorkspacePath | None = None
    seen: os.stat_result | None = None
    gone_seen: os.stat_result | None = None
    kept: os.stat_result | None = None
    is_executable: bool = False
    is_new: bool = True

    @property
    def is_write(self) -> bool:
        return self.is_new and self.text is not None


class PatchPlan:
    """The changes, and the files that were read for them, also if the patch is refused half way."""

    def __init__(self, workspace: tuple[str, ...], bytes_max: int, effect_id: str | None = None) -> None:
        self._workspace = workspace
        self._effect_id = effect_id
        self._bytes_left = bytes_max
        self.read: list[FileBytes] = []
        self.changes: list[PatchedFile] = []

    def make(self, patches: tuple[FilePatch, ...]) -> None:
        """Computes the changes. Raises what stands against the patch."""
        _require_apart(places_of(patches, self._workspace))
        for patch in patches:
            self.changes.append(self._change(patch))

    def _change(self, patch: FilePatch) -> PatchedFile:
        place, source = locate(patch.path, self._workspace), locate(patch.source, self._workspace)
        if patch.kind is PatchKind.CREATE:
            return self._create(patch, place)
        if patch.kind is PatchKind.DELETE:
            return self._delete(patch, place)
        return self._modify(patch, place) if place == source else self._rename(patch, source, place)

    def _create(self, patch: FilePatch, place: WorkspacePath) -> PatchedFile:
        text = "".join(hunk.after for hunk in patch.hunks)
        found = self._read(place)
        if found is not None and found.is_ours:
            return _left(place, found)
        if found is not None and found.text and found.text != text:
            raise Conflict("file_exists", f"{place.shown} is there already, with other content; patch it instead")
        if found is not None and found.text == text:
            return PatchedFile(place=place, done="already there", old=text, text=text, is_new=False)
        seen = found.seen if found is not None else None
        return PatchedFile(
            place=place,
            done=f"created, {counted(text.count(chr(10)), 'line')}",
            text=text,
            seen=seen,
            kept=seen,
            is_executable=patch.is_executable,
        )

    def _delete(self, patch: FilePatch, place: WorkspacePath) -> PatchedFile:
        found = self._read(place)
        if found is None:
            return PatchedFile(place=place, done="already gone", text=None, is_new=False)
        left = apply(patch, found.text).text if patch.hunks else found.text
        if left:
            raise Conflict(
                "delete_incomplete",
                f"{place.shown} is to be deleted, but the patch does not remove all its lines; add them",
            )
        return PatchedFile(place=place, done="deleted", old=found.text, text=None, gone=place, gone_seen=found.seen)

    def _modify(self, patch: FilePatch, place: WorkspacePath) -> PatchedFile:
        found = self._read(place)
        if found is None:
            raise NotFound("not_found", f"there is no file {place.shown}; create it with `--- /dev/null`")
        if found.is_ours:
            return _left(place, found)
        applied = apply(patch, found.text)
        done = _told(patch, applied) if applied.is_new else "already applied; nothing was changed"
        return PatchedFile(
            place=place,
            done=done,
            old=found.text,
            text=applied.text,
            seen=found.seen,
            kept=found.seen,
            is_new=applied.is_new,
        )

    def _rename(self, patch: FilePatch, source: WorkspacePath, place: WorkspacePath) -> PatchedFile:
        found, there = self._read(source), self._read(place)
        if found is None:
            if there is None:
                raise NotFound("not_found", f"there is no file {source.shown}")
            if patch.hunks and not there.is_ours and apply(patch, there.text).is_new:
                raise Conflict("file_exists", f"{source.shown} is gone, and {place.shown} is not what the patch leaves")
            return PatchedFile(place=place, done="already renamed", old=there.text, text=there.text, is_new=False)
        applied = apply(patch, found.text) if patch.hunks else Applied(text=found.text, is_new=True)
        if there is not None and there.text != applied.text:
            raise Conflict("file_exists", f"{place.shown} is there already; delete it first")
        return PatchedFile(
            place=place,
            done=f"renamed from {source.shown}" + (f", {_told(patch, applied)}" if patch.hunks else ""),
            old=found.text,
            text=applied.text,
            gone=source,
            gone_seen=found.seen,
            seen=there.seen if there is not None else None,
            kept=found.seen,
        )

    def _read(self, place: WorkspacePath) -> "_Found | None":
        try:
            with open_folder(place) as folder:
                file = open_file(folder, place)
                try:
                    seen, mark, body = os.fstat(file), read_mark(file), read_bytes(file, FILE_BYTES_MAX + 1)
                finally:
                    os.close(file)
        except PalyraError as refused:
            if refused.code == "not_found":
                return None
            raise
        self._bytes_left -= len(body)
        if len(body) > FILE_BYTES_MAX or self._bytes_left < 0:
            raise Invalid(
                "file_too_large", f"{place.shown} is too large to be patched here; at most {FILE_BYTES_MAX} bytes"
            )
        self.read.append(bytes_at(place, body))
        return _Found(decode(place, body), seen, self._effect_id is not None and mark == self._effect_id.encode())


class _Found(msgspec.Struct, frozen=True):
    """A file as it is. It is ours if an earlier attempt at this very effect wrote it."""

    text: str
    seen: os.stat_result
    is_ours: bool


def read_mark(file: int) -> bytes:
    try:
        return os.getxattr(file, MARK)
    except OSError:
        return b""


def _left(place: WorkspacePath, found: _Found) -> PatchedFile:
    done = "already applied; nothing was changed"
    return PatchedFile(place=place, done=done, old=found.text, text=found.text, is_new=False)


def places_of(patches: tuple[FilePatch, ...], workspace: tuple[str, ...]) -> list[WorkspacePath]:
    """Returns every file that the patch names, once for every section that names it."""
    names = [name for patch in patches for name in dict.fromkeys((patch.path, patch.source))]
    return [locate(name, workspace) for name in names]


def _told(patch: FilePatch, applied: Applied) -> str:
    count = len(patch.hunks)
    moved = "".join(f"; hunk {number} was found at line {line}" for number, line in applied.moved)
    return f"patched, {count} hunk{'' if count == 1 else 's'}{moved}"


def _require_apart(places: list[WorkspacePath]) -> None:
    seen: set[tuple[str, ...]] = set()
    for place in places:
        parts = (place.root, *place.parts)
        if parts in seen:
            raise Invalid("patch_invalid", f"the patch names {place.shown} twice; make one section of it")
        seen.add(parts)
    for place in places:
        parents = ((place.root, *place.parts[:count]) for count in range(1, len(place.parts)))
        if any(parent in seen for parent in parents):
            raise Invalid("patch_invalid", f"the patch names {place.shown} and a folder of it as a file")
