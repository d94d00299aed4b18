"""Journals of older releases: verified as they are, without being changed."""

from pathlib import Path

import apsw
import pytest

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.store.sqlite.archive import Archive
from palyra.adapters.store.sqlite.migrations import known_migrations, migrate
from palyra.adapters.store.sqlite.rows import TABLES
from palyra.core.checkpoint import key_id
from palyra.core.verification import verify
from palyra.ports.journal import Append
from tests.support.journals import FixedSigner, Ids, attested, run_cycle, session_created
from tests.support.sqlite import journal_at

pytestmark = pytest.mark.anyio

NEWEST = known_migrations()[-1].number


def with_schema(path: Path, older: Path, number: int) -> None:
    """Copies a journal into the tables and columns that the schema of that number had."""
    connection = apsw.Connection(str(older))
    migrate(connection, older, known_migrations()[:number])
    connection.execute("ATTACH ? AS new", (str(path),))
    for table in ("tapes", "events", *(each.name for each in TABLES.values())):
        columns = ", ".join(str(row[1]) for row in connection.execute(f"PRAGMA main.table_info({table})"))
        if columns:
            connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    if number > 2:
        connection.execute("INSERT INTO main.search (search) VALUES ('rebuild')")
    connection.close()


@pytest.mark.parametrize("number", range(2, NEWEST))
async def test_a_journal_of_every_older_schema_is_verified_as_it_is(tmp_path: Path, number: int) -> None:
    path, ids = tmp_path / "journal.db", Ids()
    async with journal_at(path) as journal:
        await journal.checkpoint()
        await journal.commit([Append(ids.session(), 0, attested((session_created(), *run_cycle(ids.run()))))])
        await journal.checkpoint()
    older = tmp_path / "older.db"
    with_schema(path, older, number)
    keys, public_key = tmp_path / "keys", FixedSigner().public_key
    keys.mkdir()
    (keys / f"{key_id(public_key)}.pub").write_text(public_key.hex())
    with Archive(older) as archive:
        report = verify(archive.evidence(KeyDirectory(keys)))
    assert [str(finding) for finding in report.findings] == []
