"""The journal on SQLite for tests: opening one for a block, and reading and changing its file from outside."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw

from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from tests.support.journals import FixedClock, FixedSigner


@asynccontextmanager
async def journal_at(path: Path) -> AsyncIterator[SqliteJournal]:
    journal = open_journal(JournalSettings(path=path), FixedSigner(), FixedClock())
    try:
        yield journal
    finally:
        await journal.close()


def change_from_outside(path: Path, sql: str, *bindings: str | int | bytes | None) -> None:
    """Changes the file as a fault, a thief or another program would."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)  # The daemon may be writing.
    connection.execute(sql, bindings).fetchall()
    connection.close()


def files_holding(folder: Path, text: str) -> list[str]:
    """Returns the names of files that contain the text. Another process reads them: ours would drop SQLite's locks."""
    script = (
        "import pathlib, sys\n"
        "wanted = sys.argv[2].encode()\n"
        "for file in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    print(file.name) if wanted in file.read_bytes() else None\n"
    )
    command = [sys.executable, "-c", script, str(folder), text]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def ruin(path: Path) -> None:
    """Makes the file of an open journal useless, as a broken disk does. Its writer keeps pages in memory, so a change from
    outside makes it read them again."""
    change_from_outside(path, "UPDATE tapes SET stream = stream")
    for file in (path, path.with_name(path.name + "-wal")):
        with file.open("r+b") as ruined:
            ruined.write(b"no journal any more " * (1 + file.stat().st_size // 20))
