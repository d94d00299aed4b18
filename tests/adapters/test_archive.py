"""Raw reading of journal files: live ones, killed ones, copies, and files that are no journal."""

import shutil
from pathlib import Path

import apsw
import pytest

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.store.sqlite.archive import Archive
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import open_journal
from palyra.adapters.store.sqlite.migrations import known_migrations
from palyra.core.errors import Corrupt, NotFound, PalyraError, Unavailable
from palyra.core.ids import StreamId
from palyra.core.verification import verify
from palyra.ports.journal import Append
from tests.support.homes import TestHome
from tests.support.journals import FixedClock

NEWEST = known_migrations()[-1].number


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    return TestHome(tmp_path_factory.mktemp("archive") / "home").fill()


def test_events_and_rows_are_given_as_they_lie(filled: TestHome) -> None:
    with Archive(filled.home.journal) as archive:
        events = list(archive.events(filled.first))
        tables = [row.table for row in archive.rows(filled.second)]
        assert archive.hash_at(filled.first, 14) == events[13].hash
        assert archive.hash_at(filled.first, 15) is None
    assert [event.seq for event in events] == list(range(1, 15))
    assert tables == ["sessions", "runs", "runs", "approvals", "usage"]


def test_unknown_tape_has_no_events(filled: TestHome) -> None:
    with Archive(filled.home.journal) as archive:
        assert list(archive.events(StreamId("01" + "0" * 24))) == []


def test_totals_count_what_is_there(filled: TestHome) -> None:
    with Archive(filled.home.journal) as archive:
        totals = archive.totals()
    assert (totals.schema_version, totals.tapes_count, totals.events_count, totals.last_position) == (NEWEST, 5, 56, 56)


def test_nothing_can_be_written(filled: TestHome) -> None:
    with Archive(filled.home.journal) as archive, pytest.raises(apsw.ReadOnlyError):
        archive.connection.execute("DELETE FROM events")


@pytest.mark.anyio
async def test_snapshot_stands_still_while_a_daemon_writes(tmp_path: Path, filled: TestHome) -> None:
    home = filled.copy_to(tmp_path / "home")
    journal = open_journal(JournalSettings(path=home.home.journal), home.signer, FixedClock())
    with Archive(home.home.journal) as archive:
        before = archive.totals()
        await journal.commit([Append(home.first, 14, tuple(home.cycle()))])
        assert archive.totals() == before
        assert verify(archive.evidence(KeyDirectory(home.home.public_keys))).is_whole
    with Archive(home.home.journal) as archive:
        report = verify(archive.evidence(KeyDirectory(home.home.public_keys)))
    await journal.close()
    assert (report.is_whole, report.summary.unsigned_events_count) == (True, 13)


@pytest.mark.anyio
async def test_journal_whose_writer_was_killed_is_read_with_its_log(tmp_path: Path, filled: TestHome) -> None:
    home = filled.copy_to(tmp_path / "home")
    journal = open_journal(JournalSettings(path=home.home.journal), home.signer, FixedClock())
    await journal.commit([Append(home.first, 14, tuple(home.cycle()))])
    dead = tmp_path / "dead"
    dead.mkdir()
    for name in ("journal.db", "journal.db-wal"):  # What a kill leaves, taken before the log is copied back.
        shutil.copy(home.home.root / name, dead / name)
    await journal.close()
    with Archive(dead / "journal.db") as archive:
        assert archive.totals().events_count == 56 + 13


def test_copy_without_the_files_beside_it_is_read(tmp_path: Path, filled: TestHome) -> None:
    shutil.copy(filled.home.journal, tmp_path / "journal.db")
    with Archive(tmp_path / "journal.db") as archive:
        assert archive.totals().events_count == 56


def test_copy_beside_which_no_log_can_be_made_is_read(tmp_path: Path, filled: TestHome) -> None:
    """As on a read-only disk; a directory of that name stops root too."""
    shutil.copy(filled.home.journal, tmp_path / "journal.db")
    (tmp_path / "journal.db-shm").mkdir()
    with Archive(tmp_path / "journal.db") as archive:
        assert archive.totals().events_count == 56


def refusal(path: Path) -> PalyraError:
    with pytest.raises(PalyraError) as caught:
        Archive(path)
    return caught.value


def test_missing_journal_is_a_clear_error(tmp_path: Path) -> None:
    error = refusal(tmp_path / "journal.db")
    assert isinstance(error, NotFound)
    assert error.code == "journal_missing"
    assert not list(tmp_path.iterdir())


def test_file_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"Dear diary, " * 1000)
    error = refusal(path)
    assert isinstance(error, Corrupt)
    assert error.code == "not_a_journal"


def test_database_of_something_else_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE songs (title)")
    connection.close()
    assert refusal(path).code == "not_a_journal"


def test_newer_schema_is_a_clear_error(tmp_path: Path, filled: TestHome) -> None:
    home = filled.copy_to(tmp_path / "home")
    connection = apsw.Connection(str(home.home.journal))
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    error = refusal(home.home.journal)
    assert isinstance(error, Unavailable)
    assert error.code == "schema_newer"


def test_index_that_lost_an_entry_is_found(tmp_path: Path, filled: TestHome) -> None:
    """An event that the index hides would be read by position and never be verified."""
    home = filled.copy_to(tmp_path / "home")
    connection = apsw.Connection(str(home.home.journal))
    connection.execute("PRAGMA writable_schema = ON")
    sql = connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'events_by_tape'").get
    connection.execute("UPDATE sqlite_schema SET sql = sql || ' WHERE seq <> 3' WHERE name = 'events_by_tape'")
    connection.close()
    connection = apsw.Connection(str(home.home.journal))
    connection.execute("REINDEX events_by_tape")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'events_by_tape'", (sql,))
    connection.close()
    with Archive(home.home.journal) as archive, pytest.raises(Corrupt):
        archive.require_structure()


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ("hash = 'text'", "hash"),
        ("type = NULL", "type"),
        ("data = 7", "data"),
        ("salt = 1.5", "salt"),
        ("at_ms = 'now'", "at_ms"),
        ("seq = 'third'", "seq"),
    ],
)
def test_cell_of_a_wrong_kind_is_named_with_its_tape(
    tmp_path: Path, filled: TestHome, change: str, column: str
) -> None:
    home = filled.copy_to(tmp_path / "home")
    loosen(home.home.journal, "events")
    home.spoil(f"UPDATE events SET {change} WHERE {home.event(home.first, 3)}")
    with Archive(home.home.journal) as archive, pytest.raises(Corrupt) as caught:
        list(archive.events(home.first))
    assert caught.value.code == "cell_invalid"
    assert f"session {home.first} seq {'?' if column == 'seq' else 3}: " in caught.value.message
    assert f"column {column} " in caught.value.message


def test_tape_without_a_name_is_a_clear_error(tmp_path: Path, filled: TestHome) -> None:
    home = filled.copy_to(tmp_path / "home")
    loosen(home.home.journal, "tapes")
    home.spoil("UPDATE tapes SET stream = NULL WHERE stream = ?", home.first)
    assert refusal(home.home.journal).code == "cell_invalid"


def loosen(journal: Path, table: str) -> None:
    """Makes the table anew without the types and rules of its columns."""
    connection = apsw.Connection(str(journal))
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    connection.execute(f"ALTER TABLE {table} RENAME TO strict_one")
    connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
    connection.execute(f"INSERT INTO {table} SELECT * FROM strict_one")
    connection.execute("DROP TABLE strict_one")
    connection.close()


def test_new_journal_without_an_event_is_whole(tmp_path: Path) -> None:
    home = TestHome(tmp_path / "home")
    home.run(lambda journal: journal.head(home.first))
    with Archive(home.home.journal) as archive:
        assert verify(archive.evidence(KeyDirectory(home.home.public_keys))).summary.events_count == 0
