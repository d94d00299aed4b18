"""The manifest of a backup: which files it holds, under which names and sums.

Does not own: copying them (backup, restore).
Invariant: a name that is not one of the few known forms is refused, so a manifest cannot lead a restore elsewhere.
"""

import errno
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

import msgspec

from palyra.core.errors import Corrupt, Invalid, NotFound, Unavailable

FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
JOURNAL_NAME = "journal.db"
PRIVATE_KEY_NAMES = ("signing.key", "vault.key", "vault")
MANIFEST_BYTES_MAX = 256 * 1024 * 1024  # A file takes about 180 bytes: well over a million artifacts fit.
CHUNK_BYTES = 1024 * 1024

_ARTIFACT = re.compile(r"artifacts/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_NAME = re.compile(r"journal\.db|signing\.key|vault(?:\.key)?|keys/[0-9a-f]{16}\.pub|" + _ARTIFACT.pattern)


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a home are. `private_keys` are the files that a backup takes only when asked to."""

    journal: Path
    artifacts: Path
    public_keys: Path
    private_keys: tuple[Path, ...] = ()


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`files` maps each file's path within the backup to its sha256."""

    format_version: int
    created_at_ms: int
    schema_version: int
    last_position: int
    files: dict[str, str]


def read_manifest(backup: Path) -> BackupManifest:
    path = backup / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            manifest = msgspec.json.decode(file.read(MANIFEST_BYTES_MAX), type=BackupManifest)
    except (FileNotFoundError, NotADirectoryError) as cause:
        raise NotFound("backup_missing", f"{backup} holds no {MANIFEST_NAME}, so it is no finished backup") from cause
    except OSError as cause:
        message = f"{path} cannot be read: {cause.strerror}; name a directory that palyra backup made"
        raise Invalid("backup_unreadable", message) from cause
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise Corrupt("backup_damaged", f"{path} cannot be read; take another backup") from cause
    if manifest.format_version > FORMAT_VERSION:
        message = f"{backup} has format {manifest.format_version}, this release knows {FORMAT_VERSION}; use a newer one"
        raise Unavailable("backup_newer", message)
    _require_names(manifest)
    return manifest


def _require_names(manifest: BackupManifest) -> None:
    if JOURNAL_NAME not in manifest.files:
        raise Invalid("backup_incomplete", "the manifest names no journal.db; take another backup")
    for name, digest in manifest.files.items():
        if _NAME.fullmatch(name) is None:
            raise Invalid("backup_name_invalid", "the manifest names a file that no backup holds; take another backup")
        artifact = _ARTIFACT.fullmatch(name)
        if artifact is not None and artifact[2] != digest:
            raise Corrupt("backup_damaged", f"artifact {artifact[2]} was already damaged when the backup was made")


def copy_file(source: Path, target: Path, mode: int) -> str:
    """Copies durably into a file that must not exist yet. Returns the sha256 of what was copied."""
    digest = hashlib.sha256()
    with open_regular(source) as reading, target.open("xb") as writing:
        os.fchmod(writing.fileno(), mode)
        while chunk := reading.read(CHUNK_BYTES):
            digest.update(chunk)
            writing.write(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return digest.hexdigest()


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading. A pipe in its place is refused, and not waited for."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
