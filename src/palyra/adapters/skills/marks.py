"""Marks of skills. Owns: the file `skills.json` of a home: which skills were accepted, put away or taken out of use.

Invariants: the file is replaced whole, under a lock, from what it says at that moment: a killed daemon leaves the old file
or the new. One that is damaged is never guessed at: nothing is offered and nothing opened until it is mended.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from palyra.core.errors import Corrupt, Unavailable
from palyra.core.skills import SkillPlace, SkillStatus

FILE_BYTES_MAX = 4 * 1024 * 1024
MARKS_MAX = 10_000
LOCK_WAIT_S = 10.0  # Changing the file takes milliseconds; who holds its lock this long is stuck.
_LOCK_PAUSE_S = 0.01


class SkillKey(msgspec.Struct, frozen=True, kw_only=True):
    """Which skill a mark is about. `root` is the workspace, where it lies in one."""

    place: SkillPlace
    name: str
    root: str = ""


class SkillMark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided. Of a workspace's skill, `active` holds for the folder with this hash alone."""

    place: SkillPlace
    name: str
    status: SkillStatus
    root: str = ""
    sha256: str = ""

    @property
    def key(self) -> SkillKey:
        return SkillKey(place=self.place, name=self.name, root=self.root)


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    marks: tuple[SkillMark, ...]
    version: int = 1


class Marks:
    def __init__(self, path: Path) -> None:
        self._path = path
        # One value, for several threads read it.
        self._read: tuple[tuple[int, ...] | None, dict[SkillKey, SkillMark]] = (None, {})

    def all(self) -> dict[SkillKey, SkillMark]:
        """What the file says now. Corrupt where it cannot be read."""
        stamp = _stamp_of(self._path)
        before, known = self._read
        if stamp != before:
            # Only after reading: a file that could not be read is tried again.
            known = {} if stamp is None else _read(self._path)
            self._read = (stamp, known)
        return known

    def put(self, mark: SkillMark) -> None:
        with _locked(self._path):
            known = {} if _stamp_of(self._path) is None else _read(self._path)
            known[mark.key] = mark
            if len(known) > MARKS_MAX:
                raise Corrupt("skills_full", f"{self._path} would hold more than {MARKS_MAX} marks; remove old ones")
            _replace(self._path, msgspec.json.format(msgspec.json.encode(_File(marks=tuple(known.values())))))


def _read(path: Path) -> dict[SkillKey, SkillMark]:
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)
        if len(body) > FILE_BYTES_MAX:
            raise Corrupt("skills_file_damaged", f"{path} is larger than {FILE_BYTES_MAX} bytes; mend or remove it")
        marks = msgspec.json.decode(body, type=_File).marks
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        message = f"{path} is damaged, so no skill is used; mend it, or remove it and accept skills again"
        raise Corrupt("skills_file_damaged", message) from cause
    except OSError as cause:
        raise Unavailable("skills_file_unreadable", f"{path} cannot be read: {cause.strerror}") from cause
    return {mark.key: mark for mark in marks}


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise Unavailable("skills_file_unreadable", f"{path} cannot be looked at: {cause.strerror}") from cause
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _wait_for_lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)  # Lets go of the lock, as the end of the process would.


def _wait_for_lock(descriptor: int, path: Path) -> None:
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            if time.monotonic() >= deadline_s:
                raise Unavailable("skills_busy", f"another process holds the lock of {path}; try again") from cause
            time.sleep(_LOCK_PAUSE_S)
        else:
            return


def _replace(path: Path, body: bytes) -> None:
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as cause:
        partial.unlink(missing_ok=True)
        raise Unavailable("skills_file_unwritable", f"{path} cannot be written: {cause.strerror}") from cause
