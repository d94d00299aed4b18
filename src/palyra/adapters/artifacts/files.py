"""Artifacts as files: `artifacts/ab/<sha256>`, written whole or not at all.

Owns: their names, sealing those that hold a secret, and sweeping what killed writes left.
Does not own: who refers to them (journal), keys, and what a secret looks like (both are given).
Invariants: a file under its final name holds, durably, exactly the bytes its name is the hash of. A body with a secret
is stored sealed, so its name is the hash of the sealed bytes; whoever reads it gets the body.
"""

import asyncio
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from palyra.adapters.files.durable import ensure_folder, replace_whole
from palyra.core.errors import Corrupt, Invalid, NotFound, Unavailable
from palyra.core.ids import ArtifactId, parse_artifact_id

BODY_BYTES_MAX = 64 * 1024 * 1024  # Whole bodies are held in memory; larger ones belong in the workspace.
PARTIAL_AGE_S = 3600  # A write takes seconds; what is older was left by a crash and is no other process's.
AGAIN_S = 60.0  # Far longer than the time between putting a body and committing its link.
_PARTIALS = "*/.*partial-*"
_SEALED = b"palyra sealed artifact 1\n"  # A body that begins so is sealed as well, so that it is read as it was put.
_ARTIFACT_NAME = re.compile(r"[0-9a-f]{64}")


class Sealing(msgspec.Struct, frozen=True):
    """How bodies with secrets are kept. `seal` gives the same bytes for the same body, so putting twice is putting once."""

    holds_secret: Callable[[bytes], bool]
    seal: Callable[[bytes], bytes]
    unseal: Callable[[bytes], bytes]
    added_bytes: int


class FileArtifacts:
    """One directory of artifacts. Blocking work happens in threads."""

    def __init__(self, directory: Path, sealing: Sealing | None = None) -> None:
        self._directory = directory
        self._sealing = sealing
        self._put_again: dict[ArtifactId, float] = {}  # When bodies that were there already were put, oldest first.
        self._lock = threading.Lock()  # A body is found and kept, or removed: never one within the other.

    async def put(self, body: bytes) -> ArtifactId:
        if len(body) > BODY_BYTES_MAX:
            raise Invalid("artifact_too_large", f"an artifact has at most {BODY_BYTES_MAX} bytes, got {len(body)}")
        return await asyncio.to_thread(self._put, body)

    async def get(self, artifact_id: ArtifactId, offset: int, limit: int) -> bytes:
        if offset < 0 or limit < 0:
            raise Invalid("artifact_range_invalid", "offset and limit of an artifact are not negative")
        return await asyncio.to_thread(self._get, artifact_id, offset, limit)

    async def size(self, artifact_id: ArtifactId) -> int | None:
        return await asyncio.to_thread(self._size, artifact_id)

    async def remove(self, artifact_id: ArtifactId, older_than_s: float = 0.0) -> bool:
        return await asyncio.to_thread(self._remove, artifact_id, older_than_s)

    async def settled(self, older_than_s: float) -> tuple[ArtifactId, ...]:
        return await asyncio.to_thread(self._settled, older_than_s)

    def _settled(self, older_than_s: float) -> tuple[ArtifactId, ...]:
        self.sweep()
        oldest = time.time() - older_than_s
        named = (path for path in self._directory.glob("*/*") if _ARTIFACT_NAME.fullmatch(path.name))
        return tuple(ArtifactId(path.name) for path in named if _is_older(path, oldest))

    def sweep(self) -> int:
        """Removes what interrupted writes left behind, and returns the number of files."""
        oldest = time.time() - PARTIAL_AGE_S
        stale = [path for path in self._directory.glob(_PARTIALS) if _is_older(path, oldest)]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    def _size(self, artifact_id: ArtifactId) -> int | None:
        try:
            with self._path(artifact_id).open("rb") as file:
                bytes_count = os.fstat(file.fileno()).st_size
                is_sealed = self._sealing is not None and file.read(len(_SEALED)) == _SEALED
        except FileNotFoundError:
            return None
        return bytes_count - len(_SEALED) - self._sealing.added_bytes if self._sealing and is_sealed else bytes_count

    def _put(self, body: bytes) -> ArtifactId:
        if self._sealing is not None and (body.startswith(_SEALED) or self._sealing.holds_secret(body)):
            body = _SEALED + self._sealing.seal(body)
        artifact_id = ArtifactId(hashlib.sha256(body).hexdigest())
        path = self._path(artifact_id)
        with self._lock:
            if _holds(path, len(body)):
                self._keep(artifact_id, path)
                return artifact_id
        try:
            ensure_folder(path.parent)
            replace_whole(path, body)
        except OSError as cause:
            message = f"artifact {artifact_id} could not be written ({cause.strerror}); check space and permissions"
            raise Unavailable("artifact_unwritable", message) from cause
        return artifact_id

    def _keep(self, artifact_id: ArtifactId, path: Path) -> None:
        """Keeps a file for its new link: for a sweep it counts as new again, and a deletion does not remove it now."""
        os.utime(path)
        now = time.monotonic()
        over = [each for each, at in self._put_again.items() if now - at >= AGAIN_S]
        for each in (*over, artifact_id):
            self._put_again.pop(each, None)
        self._put_again[artifact_id] = now

    def _remove(self, artifact_id: ArtifactId, older_than_s: float) -> bool:
        path = self._path(artifact_id)
        with self._lock:
            put_again_at = self._put_again.get(artifact_id)
            if put_again_at is not None and time.monotonic() - put_again_at < AGAIN_S:
                return False
            if older_than_s and path.exists() and not _is_older(path, time.time() - older_than_s):
                return False
            path.unlink(missing_ok=True)
        return True

    def _get(self, artifact_id: ArtifactId, offset: int, limit: int) -> bytes:
        try:
            with self._path(artifact_id).open("rb") as file:
                bytes_count = os.fstat(file.fileno()).st_size
                is_sealed = self._sealing is not None and file.read(len(_SEALED)) == _SEALED
                file.seek(0 if is_sealed else offset)
                body = file.read(bytes_count if is_sealed else min(limit, BODY_BYTES_MAX))
        except FileNotFoundError as cause:
            raise NotFound(
                "artifact_unknown", f"there is no artifact {artifact_id}; it may have been erased"
            ) from cause
        except OSError as cause:
            raise Unavailable("artifact_unreadable", f"artifact {artifact_id}: {cause.strerror}") from cause
        is_whole = (is_sealed or offset == 0) and len(body) == bytes_count
        if is_whole and hashlib.sha256(body).hexdigest() != artifact_id:
            message = f"artifact {artifact_id} does not have the bytes its name says; restore it from a backup"
            raise Corrupt("artifact_damaged", message)
        if is_sealed and self._sealing is not None:
            return self._sealing.unseal(body[len(_SEALED) :])[offset : offset + limit]
        return body

    def _path(self, artifact_id: ArtifactId) -> Path:
        name = parse_artifact_id(artifact_id)  # Parsed again, although it is typed: this text becomes a path.
        return self._directory / name[:2] / name


def _holds(path: Path, bytes_count: int) -> bool:
    """Tells whether the file has the right length. A damaged file is replaced when the body is put again."""
    try:
        return path.stat().st_size == bytes_count
    except FileNotFoundError:
        return False


def _is_older(path: Path, at_s: float) -> bool:
    try:
        return path.stat().st_mtime < at_s
    except FileNotFoundError:
        return False
