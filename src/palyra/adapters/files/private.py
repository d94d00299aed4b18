"""A small file of our own in a home: read whole, replaced whole, one writer at a time.

Owns: the file, the lock beside it (`NAME.lock`), and every failure as an error in our words.
Does not own: what is in the file.
Invariants: a file that others may read or write is refused if its kind says so, and so is a link. Only the holder of the
lock replaces the file, so of two changes at once neither is lost. A file that could not be read again is not written.
"""

import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from palyra.adapters.files.durable import clear_partials, create_whole, ensure_folder, replace_whole
from palyra.adapters.files.lock import LOCK_WAIT_S, held
from palyra.adapters.files.regular import FileRead, FileStamp, UnfitFile, read_regular, stamp_of
from palyra.core.errors import Corrupt, PalyraError, Unavailable

NOBODY_ELSE = stat.S_IRWXG | stat.S_IRWXO
NO_OTHER_WRITER = stat.S_IWGRP | stat.S_IWOTH

Replace = Callable[[bytes], None]
Parsed = TypeVar("Parsed")


class FileKind(msgspec.Struct, frozen=True, kw_only=True):
    """The codes and limits of one kind of file.

    `noun` begins every code. `remedy` says what to do with a damaged file. `forbidden` are the mode bits for which the
    file is refused. For a secret those are all bits of others; for a file that must only be true, the write bits of
    others.
    """

    noun: str
    remedy: str
    bytes_max: int
    forbidden: int = NOBODY_ELSE


class PrivateFile:
    def __init__(self, path: Path, kind: FileKind) -> None:
        self.path = path
        self._kind = kind

    def stamp(self) -> FileStamp | None:
        try:
            return stamp_of(self.path)
        except OSError as cause:
            raise self._unreadable(cause) from cause

    def read(self) -> FileRead | None:
        try:
            found = read_regular(self.path, self._kind.bytes_max)
        except FileNotFoundError:
            return None
        except UnfitFile as cause:
            raise self.damaged(str(cause)) from cause
        except OSError as cause:
            raise self._unreadable(cause) from cause
        if found.mode & self._kind.forbidden:
            what = "read" if self._kind.forbidden & stat.S_IROTH else "changed"
            message = f"{self.path} can be {what} by others (mode {found.mode:04o}); run: chmod 600 {self.path}"
            raise Unavailable(f"{self._kind.noun}_exposed", message, is_retryable=False)
        return found

    def create(self, data: bytes) -> bool:
        """Creates the file. Returns False, and changes nothing, if there is one already."""
        try:
            ensure_folder(self.path.parent)
            return create_whole(self.path, data)
        except OSError as cause:
            raise self._unwritable(cause) from cause

    @contextmanager
    def locked(self) -> Iterator[Replace]:
        """Holds the lock: nobody else replaces the file within. Yields the function that replaces it durably."""
        with ExitStack() as stack:
            try:
                ensure_folder(self.path.parent)
                stack.enter_context(held(self.path.with_name(f"{self.path.name}.lock")))
            except TimeoutError as cause:
                message = f"another process has held {self.path}.lock for {LOCK_WAIT_S:g} s; try again"
                raise Unavailable(f"{self._kind.noun}_busy", message) from cause
            except OSError as cause:
                raise self._unwritable(cause) from cause
            yield self._replace

    def damaged(self, what: str) -> PalyraError:
        """Returns the error for contents that make no sense. `what` completes a sentence that begins with the path."""
        return Corrupt(f"{self._kind.noun}_damaged", f"{self.path} {what}; {self._kind.remedy}")

    def _replace(self, data: bytes) -> None:
        if len(data) > self._kind.bytes_max:
            message = f"{self.path} would have more than {self._kind.bytes_max} bytes; remove what is no longer needed"
            raise Unavailable(f"{self._kind.noun}_full", message, is_retryable=False)
        try:
            clear_partials(self.path)
            replace_whole(self.path, data)
        except OSError as cause:
            raise self._unwritable(cause) from cause

    def _unreadable(self, cause: OSError) -> PalyraError:
        message = f"{self.path} cannot be read ({cause.strerror}); give it to the user who runs palyra"
        return Unavailable(f"{self._kind.noun}_unreadable", message, is_retryable=False)

    def _unwritable(self, cause: OSError) -> PalyraError:
        message = f"{self.path} could not be written ({cause.strerror}); check space and permissions, then try again"
        return Unavailable(f"{self._kind.noun}_unwritable", message)


class ParsedFile(Generic[Parsed]):
    """The parsed contents of a file. The file is read again if its stamp changed, or is too young to be relied on."""

    def __init__(self, file: PrivateFile, parse: Callable[[bytes | None], Parsed]) -> None:
        self._file = file
        self._parse = parse
        # It is one value, because several threads read it.
        self._known: tuple[FileStamp, Parsed] | None = None

    def now(self) -> Parsed:
        known = self._known
        if known is not None and known[0] == self._file.stamp():
            return known[1]
        return self.read()

    def read(self) -> Parsed:
        """Reads the file, whatever is cached. Whoever replaces the file calls this under the lock."""
        self._known = None  # A file that cannot be read now is tried again, and no older value is given out.
        found = self._file.read()
        value = self._parse(None if found is None else found.data)
        if found is not None and found.stamp.is_settled:
            self._known = (found.stamp, value)
        return value
