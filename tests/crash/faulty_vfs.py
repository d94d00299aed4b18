"""A fault-injecting VFS. Owns: translating SQLite's file calls to a simulated disk. Not: what survives there (disk).

Everything lies in memory, and there is no shared memory, so a connection must use `locking_mode=EXCLUSIVE` before WAL.
Invariant: one connection at a time; a second one is refused, since locks are not simulated.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from tests.crash.disk import Disk, DiskError, Effect, File, Truncate, Write

SECTOR_BYTES_REPORTED = 4096  # What the unix VFS reports.

_INJECTED = "injected by tests.crash"
_IS_JOURNAL = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_IS_NAMED = _IS_JOURNAL | apsw.SQLITE_OPEN_MAIN_DB


@contextmanager
def registered(disk: Disk, name: str) -> Iterator[str]:
    """The disk under this VFS name while the block runs.

    An injected error that SQLite swallows would be printed as unraisable; it was raised on purpose, so it is not.
    """
    vfs = FaultyVfs(disk, name)
    print_unraisable = sys.unraisablehook
    sys.unraisablehook = lambda problem: None if _is_injected(problem.exc_value) else print_unraisable(problem)
    try:
        yield name
    finally:
        sys.unraisablehook = print_unraisable
        vfs.unregister()


class FaithfulConnection(apsw.Connection):
    """A connection that ignores what SQLite ignores.

    After a commit and while closing SQLite copies its log back, and if that fails it is no error: the log still holds
    everything. An error raised by a VFS in Python would come out of apsw all the same, so it is caught here.
    """

    def close(self, force: bool = False) -> None:
        with suppress_injected():
            super().close(force)

    def copy_back_after(self, pages_max: int) -> None:
        """What `PRAGMA wal_autocheckpoint` does."""
        self.set_wal_hook(lambda _connection, schema, pages: self._copy_back(schema, pages > pages_max))

    def _copy_back(self, schema: str, is_due: bool) -> int:
        if is_due:
            with suppress_injected():
                self.wal_checkpoint(schema, apsw.SQLITE_CHECKPOINT_PASSIVE)
        return apsw.SQLITE_OK


@contextmanager
def suppress_injected() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        if not _is_injected(error):
            raise


class FaultyVfs(apsw.VFS):
    def __init__(self, disk: Disk, name: str) -> None:
        super().__init__(name, "")
        self._disk = disk
        self._databases_open: set[str] = set()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> Any:
        wanted = flags[0]
        flags[1] = wanted
        if name is None or not wanted & _IS_NAMED:
            return _ScratchFile()
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        is_database = bool(wanted & apsw.SQLITE_OPEN_MAIN_DB)
        if is_database and path in self._databases_open:
            raise apsw.CantOpenError(f"{path} is open already, and this VFS has no locks")
        try:
            is_new = not self._disk.has(path)
            if is_new and not wanted & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(f"{path} does not exist")
            file = self._disk.open(path)
        except DiskError:
            raise apsw.CantOpenError(_INJECTED) from None
        if is_database:
            self._databases_open.add(path)
        # The unix VFS syncs the directory with the first sync of a journal it created, and only then.
        return FaultyFile(self, path, file, is_directory_synced=not (is_new and wanted & _IS_JOURNAL))

    def xDelete(self, filename: str, syncdir: bool) -> None:
        try:
            if not self._disk.has(filename):
                raise _io_error(apsw.SQLITE_IOERR_DELETE_NOENT)
            self._disk.delete(filename, syncdir)
        except DiskError:
            raise _io_error(apsw.SQLITE_IOERR_DELETE) from None

    def xAccess(self, pathname: str, flags: int) -> bool:
        try:
            return self._disk.has(pathname)
        except DiskError:
            raise _io_error(apsw.SQLITE_IOERR_ACCESS) from None

    def xFullPathname(self, name: str) -> str:
        return name

    @property
    def disk(self) -> Disk:
        return self._disk

    def forget(self, path: str) -> None:
        self._databases_open.discard(path)


class _Unlocked:
    """The part of a file that needs no disk."""

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return SECTOR_BYTES_REPORTED

    def xDeviceCharacteristics(self) -> int:
        """As the unix VFS: bytes beside a write stay what they were even if the power goes during it."""
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class FaultyFile(_Unlocked):
    def __init__(self, vfs: FaultyVfs, path: str, file: File, *, is_directory_synced: bool) -> None:
        self._vfs = vfs
        self._disk = vfs.disk
        self._path = path
        self._file = file
        self._is_directory_synced = is_directory_synced

    def xRead(self, amount: int, offset: int) -> bytes:
        try:
            return self._disk.read(self._file, amount, offset)
        except DiskError:
            raise _io_error(apsw.SQLITE_IOERR_READ) from None

    def xWrite(self, data: bytes, offset: int) -> None:
        try:
            self._disk.write(self._file, offset, bytes(data))
        except DiskError as cause:
            if cause.effect is Effect.FULL:
                raise apsw.FullError(_INJECTED) from None
            raise _io_error(apsw.SQLITE_IOERR_WRITE) from None

    def xTruncate(self, newsize: int) -> None:
        try:
            self._disk.truncate(self._file, newsize)
        except DiskError:
            raise _io_error(apsw.SQLITE_IOERR_TRUNCATE) from None

    def xSync(self, flags: int) -> None:
        try:
            self._disk.sync(self._file, is_directory_too=not self._is_directory_synced)
        except DiskError:
            raise _io_error(apsw.SQLITE_IOERR_FSYNC) from None
        self._is_directory_synced = True

    def xFileSize(self) -> int:
        return len(self._file.live)

    def xClose(self) -> None:
        self._vfs.forget(self._path)


class _ScratchFile(_Unlocked):
    """Temporary files hold nothing that outlives a process, so they meet no faults."""

    def __init__(self) -> None:
        self._content = File()

    def xRead(self, amount: int, offset: int) -> bytes:
        return bytes(self._content.live[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:
        self._content.change(Write(offset, bytes(data)))
        self._content.settle()

    def xTruncate(self, newsize: int) -> None:
        self._content.change(Truncate(newsize))
        self._content.settle()

    def xSync(self, flags: int) -> None:
        pass

    def xFileSize(self) -> int:
        return len(self._content.live)

    def xClose(self) -> None:
        pass


def _is_injected(problem: BaseException | None) -> bool:
    return isinstance(problem, apsw.Error) and _INJECTED in str(problem)


def _io_error(extended: int) -> apsw.IOError:
    """An error SQLite sees with its extended code, as the unix VFS would return it."""
    error = apsw.IOError(_INJECTED)
    vars(error)["extendedresult"] = extended  # What apsw reads; its stub does not name it for errors we make.
    return error
