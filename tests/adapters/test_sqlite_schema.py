"""The SQLite schema: its migrations, its agreement with the records, and projections rebuilt from events."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec
import pytest

from palyra.adapters.store.sqlite.connection import JournalSettings, open_writing
from palyra.adapters.store.sqlite.journal import open_journal
from palyra.adapters.store.sqlite.migrations import Migration, known_migrations, migrate, schema_version
from palyra.adapters.store.sqlite.refold import rebuild_projections
from palyra.adapters.store.sqlite.rows import TABLES
from palyra.core.errors import Corrupt
from palyra.core.projections.rows import Row
from palyra.ports.journal import Append
from tests.support.journals import (
    FixedClock,
    FixedSigner,
    Ids,
    approval_requested,
    run_accepted,
    run_cycle,
    session_created,
    tainted_write,
)
from tests.support.sqlite import change_from_outside, journal_at

pytestmark = pytest.mark.anyio

NOWHERE = Path("memory")
LATER = (
    *known_migrations(),
    Migration(len(known_migrations()) + 1, "CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT;"),
    Migration(len(known_migrations()) + 2, "ALTER TABLE extra ADD COLUMN name TEXT;"),
)


def schema_of(connection: apsw.Connection) -> Sequence[object]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    assert [migration.number for migration in known_migrations()] == list(range(1, len(known_migrations()) + 1))


@pytest.mark.parametrize("start", range(1, len(LATER) + 1))
def test_migrating_from_every_earlier_version_gives_the_schema_of_a_fresh_one(start: int) -> None:
    fresh, older = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    migrate(fresh, NOWHERE, LATER)
    migrate(older, NOWHERE, LATER[:start])
    assert schema_version(older) == start
    migrate(older, NOWHERE, LATER)
    assert schema_of(older) == schema_of(fresh)
    assert schema_version(older) == schema_version(fresh) == len(LATER)


def test_a_migration_that_fails_leaves_the_version_before_it() -> None:
    connection = apsw.Connection(":memory:")
    migrate(connection, NOWHERE, known_migrations())
    before = schema_of(connection)
    broken = Migration(len(known_migrations()) + 1, "CREATE TABLE half (id INTEGER); SELECT no_such_function();")
    with pytest.raises(apsw.SQLError):
        migrate(connection, NOWHERE, (*known_migrations(), broken))
    assert schema_of(connection) == before
    assert schema_version(connection) == len(known_migrations())


@pytest.mark.parametrize("row_type", TABLES)
def test_a_records_fields_are_its_tables_columns_in_order(row_type: type[Row]) -> None:
    connection = apsw.Connection(":memory:")
    migrate(connection, NOWHERE, known_migrations())
    columns = [
        name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (TABLES[row_type].name,))
    ]
    assert columns == [field.name for field in msgspec.structs.fields(row_type)]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET state = 'failed'",
        "UPDATE runs SET state = 'no such state'",
        "UPDATE sessions SET owner = 'user:mallory'",
        "UPDATE sessions SET key = NULL",
        "DELETE FROM usage",
        "DELETE FROM approvals",
        "INSERT INTO approvals SELECT id || 'x', session_id, run_id, kind, status, digest, call_id, tool, requested_seq, "
        "resolved_seq, decided_by, created_at_ms, expires_at_ms, seq FROM approvals",
        "UPDATE runs SET session_id = 'nowhere'",
        "DELETE FROM taints",
        "UPDATE taints SET sources = '[]'",
        "DELETE FROM files",
        "UPDATE files SET sha256 = ''",
        "DELETE FROM sessions WHERE key = 'k0'; UPDATE sessions SET key = 'k0'",
    ],
)
async def test_rebuilding_repairs_whatever_was_done_to_the_projections(tmp_path: Path, damage: str) -> None:
    path, ids = tmp_path / "journal.db", Ids()
    async with journal_at(path) as journal:
        for number in range(2):
            run = ids.run()
            drafts = (
                session_created(key=f"k{number}"),
                *run_cycle(ids.run()),
                run_accepted(run),
                approval_requested(run),
                tainted_write(run),
            )
            await journal.commit([Append(ids.session(), 0, drafts)])
    connection = apsw.Connection(str(path))
    tables = [f"SELECT * FROM {table.name} ORDER BY id" for table in TABLES.values()]
    before = [connection.execute(sql).fetchall() for sql in tables]
    assert rebuild_projections(connection) == 0
    connection.execute(damage)
    assert rebuild_projections(connection) > 0
    assert [connection.execute(sql).fetchall() for sql in tables] == before
    assert rebuild_projections(connection) == 0
    connection.close()


async def test_a_row_with_an_unknown_state_is_corrupt_and_named(tmp_path: Path) -> None:
    path, ids = tmp_path / "journal.db", Ids()
    session, run = ids.session(), ids.run()
    async with journal_at(path) as journal:
        await journal.commit([Append(session, 0, (session_created(), *run_cycle(run)))])
        change_from_outside(path, "UPDATE runs SET state = 'bewitched'")
        with pytest.raises(Corrupt, match="row_unreadable") as caught:
            await journal.runs.run(run, None)
        assert run in caught.value.message


async def test_durability_is_what_the_settings_say(tmp_path: Path) -> None:
    full = JournalSettings(path=tmp_path / "full.db")
    normal = JournalSettings(path=tmp_path / "normal.db", durability="normal")
    for settings, level in ((full, 2), (normal, 1)):
        connection = open_writing(settings)
        assert connection.execute("PRAGMA synchronous").get == level
        assert connection.execute("PRAGMA journal_mode").get == "wal"
        assert connection.execute("PRAGMA secure_delete").get == 1
        connection.close()


async def test_what_the_writer_no_longer_remembers_is_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for hardly anything in memory, every head and row is loaded again and again, to the same result."""
    for name in ("HEADS_MAX", "ROWS_MAX", "LEASES_MAX"):
        monkeypatch.setattr(f"palyra.adapters.store.writer_cache.{name}", 1)
    path, ids = tmp_path / "journal.db", Ids()
    journal = open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    sessions = [ids.session() for _ in range(4)]
    await journal.commit([Append(session, 0, (session_created(),)) for session in sessions])
    for session in sessions * 3:
        head = await journal.head(session)
        assert head is not None
        for seq, draft in enumerate(run_cycle(ids.run()), start=head.seq):
            await journal.commit([Append(session, seq, (draft,))])
    await journal.close()
    connection = apsw.Connection(str(path))
    assert rebuild_projections(connection) == 0
    connection.close()
