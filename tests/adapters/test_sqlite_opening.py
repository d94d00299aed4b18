"""Opening a journal on SQLite: what is in the way is named, and nothing half done is left."""

import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import open_journal
from palyra.adapters.store.sqlite.migrations import known_migrations
from palyra.core.errors import Corrupt, PalyraError, Unavailable
from palyra.ports.journal import Append
from tests.crash.disk import Disk, Effect, Fault
from tests.crash.faulty_vfs import registered
from tests.support.journals import FixedClock, FixedSigner, Ids, run_cycle, session_created
from tests.support.sqlite import change_from_outside, journal_at

pytestmark = pytest.mark.anyio


def refused(path: Path) -> PalyraError:
    with pytest.raises(PalyraError) as caught:
        open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    return caught.value


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """For a block, nobody may write it. The immutable flag binds root, to whom permission bits mean nothing."""
    mode = path.stat().st_mode
    path.chmod(mode & ~0o222)
    is_root = os.access(path, os.W_OK)
    if is_root:
        subprocess.run(["chattr", "+i", str(path)], check=True)
    try:
        yield
    finally:
        if is_root:
            subprocess.run(["chattr", "-i", str(path)], check=True)
        path.chmod(mode)


async def make_journal(path: Path) -> None:
    ids = Ids()
    async with journal_at(path) as journal:
        for _ in range(30):
            await journal.commit([Append(ids.session(), 0, (session_created(), *run_cycle(ids.run())))])


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path / "absent" / "journal.db")
    assert (type(error), error.code) == (Unavailable, "journal_missing")
    assert str(tmp_path / "absent") in error.message
    assert list(tmp_path.iterdir()) == []


async def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.db").mkdir()
    error = refused(tmp_path / "journal.db")
    assert (type(error), error.code) == (Unavailable, "journal_unopenable")


async def test_a_directory_that_takes_no_files_is_named(tmp_path: Path) -> None:
    with read_only(tmp_path):
        error = refused(tmp_path / "journal.db")
    assert (type(error), error.code) == (Unavailable, "journal_read_only")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["journal.db", "journal.db.lock"])
async def test_a_file_that_may_not_be_written_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "journal.db"
    await make_journal(path)
    with read_only(tmp_path / name):
        error = refused(path)
    assert (type(error), error.code) == (Unavailable, "journal_read_only")
    async with journal_at(path) as journal:
        assert len(await journal.read_all(0, 1)) == 1


async def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"these are the notes of somebody else, and no journal\n" * 100)
    before = path.read_bytes()
    error = refused(path)
    assert (type(error), error.code) == (Corrupt, "not_a_journal")
    assert path.read_bytes() == before


async def test_a_database_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    change_from_outside(path, "CREATE TABLE recipes (name TEXT)")
    error = refused(path)
    assert (type(error), error.code) == (Corrupt, "not_a_journal")
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("recipes",)]
    connection.close()


async def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.db").touch()
    async with journal_at(tmp_path / "journal.db") as journal:
        assert await journal.read_all(0, 10) == ()


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make_journal(path)
    change_from_outside(path, "PRAGMA user_version = 9999")
    error = refused(path)
    assert (type(error), error.code) == (Unavailable, "schema_newer")
    assert "9999" in error.message
    change_from_outside(path, f"PRAGMA user_version = {known_migrations()[-1].number}")
    async with journal_at(path) as journal:
        assert len(await journal.read_all(0, 1)) == 1


async def test_a_damaged_page_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await make_journal(path)
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    error = refused(path)
    assert (type(error), error.code) == (Corrupt, "journal_damaged")


async def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with journal_at(path) as journal:
        error = refused(path)
        assert (type(error), error.code) == (Unavailable, "journal_in_use")
        assert str(os.getpid()) in error.message
        await journal.commit([Append(Ids().session(), 0, (session_created(),))])
    async with journal_at(path) as journal:
        assert len(await journal.read_all(0, 10)) == 2


async def test_a_writer_that_was_killed_locks_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    script = (
        "import os, pathlib, sys\n"
        "from palyra.adapters.store.sqlite.connection import JournalSettings\n"
        "from palyra.adapters.store.sqlite.journal import open_journal\n"
        "from tests.support.journals import FixedClock, FixedSigner\n"
        "journal = open_journal(JournalSettings(path=pathlib.Path(sys.argv[1])), FixedSigner(), FixedClock())\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"src{os.pathsep}."}
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        error = refused(path)
        assert error.code == "journal_in_use"
        assert str(child.pid) in error.message
        child.kill()
    async with journal_at(path):
        pass


@pytest.mark.parametrize(("effect", "code"), [(Effect.FULL, "disk_full"), (Effect.IO_ERROR, "disk_error")])
async def test_a_disk_that_fails_at_the_first_opening_leaves_nothing_half_done(effect: Effect, code: str) -> None:
    count = 0
    for first in range(1, 60):
        disk = Disk(random.Random(first), [Fault(effect, first, first)])
        with registered(disk, f"opening-{effect.value}-{first}") as vfs:
            settings = JournalSettings(path=Path("/journal.db"), vfs=vfs, is_exclusive=True)
            try:
                await open_journal(settings, FixedSigner(), FixedClock()).close()
                if not disk.fault_count:
                    break
            except Unavailable as error:
                count += 1
                assert error.code in {code, "disk_error"}
            disk.repair()
            journal = open_journal(settings, FixedSigner(), FixedClock())
            assert await journal.read_all(0, 10) == ()
            await journal.close()
    assert count > 3


async def test_a_new_journal_and_its_log_are_private(tmp_path: Path) -> None:
    journal = open_journal(JournalSettings(path=tmp_path / "journal.db"), FixedSigner(), FixedClock())
    session = Ids().session()
    await journal.commit([Append(session, 0, (session_created(),))])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("journal.db*")}
    assert modes["journal.db"] == modes["journal.db-wal"] == 0o600
    await journal.close()
