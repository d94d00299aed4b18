"""Connections to one journal file: pragmas, the lock of the one writer, and SQLite's errors in our words.

Does not own: SQL (views, tape_reads, plan_writes).
Only apsw may open the file. Closing it through any other descriptor of this process would drop SQLite's POSIX locks.
Invariant: no apsw exception leaves this package. Each becomes an error that names the file and what to do.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import apsw
import msgspec

from palyra.core.errors import Corrupt, Invalid, PalyraError, Unavailable

BUSY_TIMEOUT_MS = 5_000  # A reader from outside (verify, backup) may hold up a checkpoint that long, not a commit.
# Of the writer. It holds the upper levels of the indexes of a journal of millions of events, and takes 8 MiB once as many
# pages were written. Four times as much was measured no faster. A reader has SQLite's default, 2 MB at most.
CACHE_KIB = 8 * 1024
MAPPED_BYTES_MAX = 256 * 1024 * 1024  # Old pages are read without a copy. This takes address space only, not memory.
# The log grows to about 16 MiB before it is copied back: fewer, longer copies were measured faster.
WAL_PAGES_MAX = 4_000
PAGE_ROWS_MAX = 10_000  # Limits the rows of one read to a page.
UNOPENABLE = "journal_unopenable"
PID_BYTES_MAX = 20  # No process id has more digits.

Bindings = tuple[str | int, ...] | dict[str, str | int | None]


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the journal is and how it is kept.

    `vfs` names another file layer that apsw knows. One without shared memory needs `is_exclusive`. Then the writer's
    connection is the only one and serves the reads too.
    """

    path: Path
    durability: Literal["full", "normal"] = "full"
    vfs: str | None = None
    is_exclusive: bool = False


def open_writing(settings: JournalSettings) -> apsw.Connection:
    """Opens the one connection that writes, and creates a new file. Nobody else may then read the file or its log."""
    if settings.vfs is None:
        _make_private(settings.path)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with our_errors(settings.path):
        connection = apsw.Connection(str(settings.path), flags=flags, vfs=settings.vfs)
        with on_failure(connection.close):
            _prepare_writing(connection, settings)
    return connection


def _make_private(path: Path) -> None:
    """Restricts the file's mode before SQLite opens it. Opening it in another way later would drop SQLite's locks."""
    with suppress(OSError):  # If the file cannot be made here, SQLite cannot make it either, and says so better.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def open_reading(settings: JournalSettings) -> apsw.Connection:
    """Opens a connection that sees every durable commit and can change nothing."""
    # READONLY would not do: the first reader after a crash must be able to recover the log.
    flags = apsw.SQLITE_OPEN_READWRITE
    with our_errors(settings.path):
        connection = apsw.Connection(str(settings.path), flags=flags, vfs=settings.vfs)
        with on_failure(connection.close):
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            connection.execute("PRAGMA query_only = ON")
            connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES_MAX}")
    return connection


def page_limit(limit: int) -> int:
    """Checks the limit: SQLite would take a negative one for none at all."""
    if not 1 <= limit <= PAGE_ROWS_MAX:
        raise Invalid("limit_invalid", f"a read takes between 1 and {PAGE_ROWS_MAX} rows, not {limit}")
    return limit


def fetch(connection: apsw.Connection, sql: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
    """Returns all rows at once.

    A cursor left half way, for instance by an error, would keep its connection in an old snapshot.
    """
    return connection.execute(sql, bindings).fetchall()


@contextmanager
def on_failure(undo: Callable[[], None]) -> Iterator[None]:
    """Calls `undo` if the block fails."""
    with ExitStack() as stack:
        stack.callback(undo)
        yield
        stack.pop_all()


def _prepare_writing(connection: apsw.Connection, settings: JournalSettings) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    if settings.is_exclusive:
        # This comes before WAL, so that its index is kept in plain memory.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    if connection.readonly("main"):
        raise apsw.ReadOnlyError("opened, but only for reading")
    # This works for a file without tables only. Later it takes a VACUUM (`palyra journal vacuum`) to have an effect.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = connection.execute("PRAGMA journal_mode = WAL").get
    if mode != "wal":
        raise Unavailable("journal_mode", f"{settings.path} cannot be kept in WAL mode (it is in {mode} mode)")
    connection.execute(f"PRAGMA synchronous = {settings.durability.upper()}")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")


class WriterLock:
    """The right to write this journal. The kernel holds it, so it ends with the process, however that ends."""

    def __init__(self, journal: Path) -> None:
        path = journal.with_name(journal.name + ".lock")
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as cause:
            raise _lock_error(journal, cause) from cause
        with on_failure(lambda: os.close(self._descriptor)):
            self._take(journal)

    def release(self) -> None:
        """Releases the lock. The file stays: removing it would let two writers lock two files of one name."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _take(self, journal: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            holder = os.pread(self._descriptor, PID_BYTES_MAX, 0).decode("ascii", "replace").strip() or "unknown"
            message = f"{journal} is being written by process {holder}; stop it, or choose another home"
            raise Unavailable("journal_in_use", message) from cause
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(os.getpid()).encode("ascii"), 0)
        except OSError as cause:
            raise _lock_error(journal, cause) from cause


def _lock_error(journal: Path, cause: OSError) -> PalyraError:
    if isinstance(cause, FileNotFoundError | NotADirectoryError):
        return Unavailable("journal_missing", f"the directory {journal.parent} does not exist; create it first")
    return Unavailable(
        "journal_read_only", f"cannot write beside {journal}: {cause.strerror}; check space and permissions"
    )


@contextmanager
def our_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as cause:
        raise as_our_error(cause, path) from cause


def as_our_error(cause: apsw.Error, path: Path) -> PalyraError:
    """Turns SQLite's error into ours. Its text names files and tables, never rows, so it may be shown."""
    match cause:
        case apsw.FullError():
            return Unavailable("disk_full", f"no space left to write {path}; free some, then try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return Unavailable("journal_read_only", f"{path} cannot be written; check its permissions and the mount")
        case apsw.CantOpenError():
            return Unavailable(UNOPENABLE, f"{path} cannot be opened; check that it is a file we may write")
        case apsw.NotADBError():
            return Corrupt("not_a_journal", f"{path} is not a journal; restore it from a backup or choose another path")
        case apsw.CorruptError():
            return Corrupt("journal_damaged", f"{path} is damaged ({cause}); restore it from a backup")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable("journal_busy", f"{path} is locked by another process; try again")
        case _:
            return Unavailable("disk_error", f"{path} could not be read or written ({cause}); check the disk")


def json_text(value: object) -> str:
    """Returns a value as a cell or a binding of JSON."""
    return msgspec.json.encode(value).decode()
