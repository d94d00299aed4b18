"""Archives of files: what an applied draft replaced, and drafts that could not be applied.

Owns: the form (a tar, with the number of the root before each path) and its limits. Does not own: storage (artifacts).
"""

import hashlib
import io
import os
import stat
import tarfile

import msgspec

from palyra.core.drafts.changes import is_folder
from palyra.core.errors import Corrupt
from palyra.core.events.draft import ChangeKind, FileChange

FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
ARCHIVE_BYTES_MAX = 32 * 1024 * 1024  # An artifact has at most 64 MiB, and the archive is in memory once.
FILES_MAX = 20_000


class ArchiveWriter:
    """Collects files. What would be too much is left out and counted."""

    def __init__(self) -> None:
        self._body = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._body, mode="w", format=tarfile.PAX_FORMAT)
        self._count = 0
        self.unkept_count = 0

    def add(self, root: str, path: str, folder: int, name: str) -> None:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        is_too_much = self._body.tell() + found.st_size > ARCHIVE_BYTES_MAX or self._count >= FILES_MAX
        if is_too_much:
            self.unkept_count += 1
            return
        self._count += 1
        entry = tarfile.TarInfo(f"{root.rstrip('/')}/{path}".lstrip("/"))
        entry.mode = found.st_mode & 0o777
        entry.mtime = int(found.st_mtime)
        if stat.S_ISLNK(found.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
            self._tar.addfile(entry)
            return
        with open(os.open(name, FILE_FLAGS, dir_fd=folder), "rb") as file:
            entry.size = os.fstat(file.fileno()).st_size
            self._tar.addfile(entry, file)

    def add_bytes(self, path: str, body: bytes, mode: int) -> None:
        if self._body.tell() + len(body) > ARCHIVE_BYTES_MAX:
            self.unkept_count += 1
            return
        self._count += 1
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.mode, entry.size = mode & 0o777, len(body)
        self._tar.addfile(entry, io.BytesIO(body))

    def finish(self) -> bytes | None:
        self._tar.close()
        return self._body.getvalue() if self._count else None


def archive_draft(changes: tuple[FileChange, ...], uppers: dict[str, str]) -> bytes | None:
    """Returns the new content of a draft as an archive, or None if not all of it fits."""
    writer = ArchiveWriter()
    for change in changes:
        if change.after_sha256 is None or is_folder(change):
            continue
        folder = os.open(uppers[change.root], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            writer.add(change.root, change.path, folder, change.path)
        finally:
            os.close(folder)
    deleted = [change.path for change in changes if change.kind is ChangeKind.DELETED]
    if deleted:
        writer.add_bytes("DELETED", "\n".join(deleted).encode() + b"\n", 0o644)
    body = writer.finish()
    return body if writer.unkept_count == 0 else None


class KeptFile(msgspec.Struct, frozen=True):
    """A file of an archive. `target` is set for a symbolic link."""

    body: bytes
    target: str | None = None


def kept_files(contents: tuple[bytes, ...]) -> dict[tuple[str, str], KeptFile]:
    """Returns the files of archives of ours, by absolute path and hash."""
    found: dict[tuple[str, str], KeptFile] = {}
    for content in contents:
        try:
            found |= _read_archive(content)
        except tarfile.TarError as cause:
            raise Corrupt("archive_damaged", "the archive of the replaced files cannot be read") from cause
    return found


def _read_archive(content: bytes) -> dict[tuple[str, str], KeptFile]:
    found: dict[tuple[str, str], KeptFile] = {}
    with tarfile.TarFile(fileobj=io.BytesIO(content), mode="r") as tar:
        for entry in tar:
            file = tar.extractfile(entry) if entry.isfile() else None
            kept = KeptFile(file.read() if file else b"", entry.linkname if entry.issym() else None)
            found[f"/{entry.name}", _hash_kept(kept)] = kept
    return found


def hash_link(target: str) -> str:
    """Returns the hash that stands for a symbolic link."""
    return hashlib.sha256(b"link\x00" + os.fsencode(target)).hexdigest()


def _hash_kept(kept: KeptFile) -> str:
    return hash_link(kept.target) if kept.target is not None else hashlib.sha256(kept.body).hexdigest()
