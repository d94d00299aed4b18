"""The writing connection: takes groups of commits, and repairs itself when a transaction fails.

Owns: the connection, its transactions, and what follows when one fails.
Does not own: what a commit may do (core.commit), its statements (plan_writes), the thread all of this runs in (writer).

Whatever a commit raises is the outcome of that commit alone: the others of its group are tried again without it. Only a
fault of the file is everybody's.

A failed transaction is rolled back and the cache is dropped. The disk may still hold its frames in the log, without the
fsync that would have made them count. So before the next group a harmless commit is written over them. Only when that
worked is the connection opened anew and trusted again. A file that cannot be opened anew ends the recorder; a disk that
is full or fails for a while does not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw
import structlog

from palyra.adapters.store.sqlite.connection import (
    BUSY_TIMEOUT_MS,
    UNOPENABLE,
    JournalSettings,
    WriterLock,
    as_our_error,
    on_failure,
    open_writing,
    our_errors,
)
from palyra.adapters.store.sqlite.lookup import SqliteLookup
from palyra.adapters.store.sqlite.migrations import known_migrations, migrate, schema_version
from palyra.adapters.store.sqlite.plan_writes import write_plan
from palyra.adapters.store.writer_cache import WriterCache
from palyra.core.commit.model import Commit
from palyra.core.commit.plan import CommitOutcome, CommitPlan
from palyra.core.errors import Conflict, Corrupt, Invalid, PalyraError
from palyra.core.events import Event

LOG_WAIT_MS = 250  # Every commit waits behind it, and a reader that takes longer may take for ever.

Answer = TypeVar("Answer")

log = structlog.get_logger()

# Trying each commit of a group alone would meet the same fault again. Any other fault may be that of one commit.
_FAULTS_OF_THE_FILE = (
    apsw.FullError, apsw.IOError, apsw.NotADBError, apsw.BusyError, apsw.LockedError, apsw.ReadOnlyError,
    apsw.PermissionsError, apsw.CantOpenError,
)  # fmt: skip
_CODE_BY_CONSTRAINT = {
    "sessions.owner, sessions.key": "session_key_taken",
    "runs.principal, runs.idempotency_key": "idempotency_key_taken",
    "jobs.kind, jobs.dedupe_key": "job_duplicate",
    "channel_envelopes.channel, channel_envelopes.envelope_id": "envelope_taken",
    "routines.principal, routines.name": "routine_name_taken",
    "memory_items.owner, memory_items.scope, memory_items.scope_id, memory_items.content_hash": "memory_known",
}


class Recorder:
    def __init__(self, settings: JournalSettings) -> None:
        self._settings = settings
        # Another file layer has files of its own; a lock beside them would lock nothing.
        self._lock = WriterLock(settings.path) if settings.vfs is None else None
        with on_failure(self._unlock):
            self.connection = self._opened()
            with on_failure(lambda: self.connection.close(True)), our_errors(settings.path):
                self.cache = WriterCache(SqliteLookup(self.connection))
        self._is_open = True
        self._is_suspect = False
        self.is_lost = False  # The file cannot be opened anew. Nothing can be recorded any more.
        self._has_old_text = True  # A killed process may have left a log with text that it had erased.

    def commit_group(self, commits: Sequence[Commit]) -> list[CommitOutcome]:
        """Returns one outcome for each commit, in order. Refused commits leave the others untouched."""
        outcomes = self.attempt(lambda: self._commit_together(commits))
        if isinstance(outcomes, list):
            return outcomes
        if self._is_suspect and isinstance(outcomes, (*_FAULTS_OF_THE_FILE, PalyraError)):
            return [self._as_outcome(outcomes) for _ in commits]
        return [self._commit_alone(commit) for commit in commits]

    def attempt(self, act: Callable[[], Answer]) -> Answer | Exception:
        """The edge of the writer's thread: what `act` raises is its outcome, and never the end of the thread."""
        try:
            return act()
        except Exception as cause:
            return cause

    def perform(self, act: Callable[["Recorder"], Answer]) -> Answer | PalyraError:
        """Runs something other than a commit, between two groups."""
        answer = self.attempt(lambda: act(self))
        # Reading can meet a broken file as well as writing can. The next commit or checkpoint opens it anew.
        self._is_suspect |= isinstance(answer, (*_FAULTS_OF_THE_FILE, apsw.CorruptError))
        return self._as_outcome(answer) if isinstance(answer, Exception) else answer

    def record(self, commit: Commit) -> tuple[Event, ...]:
        """Records one commit of our own inside the caller's transaction. The caller also calls forget or settle."""
        plan = CommitPlan(self.cache)
        events = plan.add(commit)
        write_plan(self.connection, plan)
        return events

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        self.reopen_broken()
        with self._transaction() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        is_committed = False
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection
            self.connection.execute("COMMIT")
            is_committed = True
        except apsw.ConstraintError:
            raise
        except apsw.Error:
            self._is_suspect = True
            raise
        finally:
            if not is_committed:
                self._roll_back()

    def empty_log(self) -> bool:
        """Copies the log into the main file and empties it, which removes erased text from it too.

        Returns whether it is empty.

        If something holds that up, it is tried again at the next checkpoint.
        """
        self._has_old_text = True
        self.connection.set_busy_timeout(LOG_WAIT_MS)
        with suppress(apsw.Error):  # The erasure itself is durable and stands.
            is_busy, _, _ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
            self._has_old_text = bool(is_busy)
        self.connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        return not self._has_old_text

    def retry_empty_log(self) -> None:
        if self._has_old_text:
            self.empty_log()

    def vacuum(self) -> None:
        self.reopen_broken()
        self.connection.execute("VACUUM")
        self.empty_log()

    def forget(self) -> None:
        self.cache.forget(SqliteLookup(self.connection))

    def reopen_broken(self) -> None:
        """Opens the file anew after a fault, before anything is written. Raises what is wrong with it."""
        if not self._is_suspect:
            return
        try:
            self._reopen()
        except (apsw.Error, PalyraError) as cause:
            problem = self._as_outcome(cause)
            self.is_lost = isinstance(problem, Corrupt) or problem.code == UNOPENABLE
            raise problem from cause

    def close(self) -> None:
        if self._is_suspect and self._is_open:
            # Otherwise a commit that was refused could be found in the log by the next process.
            with suppress(apsw.Error, PalyraError):
                self._write_over()
        try:
            with our_errors(self._settings.path):
                self.connection.close()
        finally:
            self._unlock()

    def _commit_together(self, commits: Sequence[Commit]) -> list[CommitOutcome]:
        self.reopen_broken()
        plan = CommitPlan(self.cache)
        with self._transaction() as connection:
            outcomes = plan.add_all(commits)
            write_plan(connection, plan)
        self.cache.settle(plan)
        return outcomes

    def _commit_alone(self, commit: Commit) -> CommitOutcome:
        """Tries one commit again without the others, from the file as it is, so that only the guilty one fails."""
        self.forget()
        outcome = self.attempt(lambda: self._commit_together((commit,))[0])
        return self._as_outcome(outcome) if isinstance(outcome, Exception) else outcome

    def _as_outcome(self, cause: Exception) -> PalyraError:
        """Returns a new error for each waiter, because raising an error changes it."""
        match cause:
            case PalyraError():
                return type(cause)(cause.code, cause.message, is_retryable=cause.is_retryable)
            case apsw.ConstraintError():
                return _as_conflict(cause)
            case apsw.Error():
                return as_our_error(cause, self._settings.path)
            case _:
                log.error("journal_refused", exc_info=cause)
                return Invalid("value_invalid", f"this cannot be recorded ({type(cause).__name__}); the log says why")

    def _roll_back(self) -> None:
        with suppress(apsw.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _reopen(self) -> None:
        if self._is_open:
            self._write_over()
            self._is_open = False
            self.connection.close(True)
        # A disk that fails here too leaves the connection closed. The next attempt begins with opening.
        self.connection = self._opened()
        self._is_open = True
        self.forget()
        self._is_suspect = False

    def _write_over(self) -> None:
        """Commits without a change.

        Frames of the log are checked in a row, so none after this one can count any more.
        """
        with self._transaction() as connection:
            connection.execute(f"PRAGMA user_version = {schema_version(connection)}")

    def _opened(self) -> apsw.Connection:
        connection = open_writing(self._settings)
        with on_failure(lambda: connection.close(True)), our_errors(self._settings.path):
            migrate(connection, self._settings.path, known_migrations())
        return connection

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _as_conflict(cause: apsw.ConstraintError) -> Conflict:
    for columns, code in _CODE_BY_CONSTRAINT.items():
        if columns in str(cause):
            return Conflict(code, "the key was taken by another commit; read what it names")
    return Conflict("journal_moved", f"something else wrote to the journal ({cause}); read again, then decide again")
