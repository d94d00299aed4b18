"""Journals of the campaign. Owns: opening one on a disk real or simulated, and examining what is left of it.

Small caches and a short log make the load spill, copy back and start its log anew many times, which a daemon's
settings would not do within a load this short.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

import apsw
import msgspec

from palyra.adapters.keys.directory import KeyDirectory
from palyra.adapters.store.sqlite import connection as sqlite_connection
from palyra.adapters.store.sqlite import recorder
from palyra.adapters.store.sqlite.archive import Archive
from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import open_journal
from palyra.core.checkpoint import key_id
from palyra.core.errors import PalyraError, Unavailable
from palyra.core.events import Event
from palyra.core.ids import StreamId, make_ulid
from palyra.core.verification import Evidence, verify
from palyra.ports.journal import Append, Journal
from tests.crash.audit import Audit, Problem, Survivors, Wrong
from tests.crash.faulty_vfs import FaithfulConnection
from tests.crash.ledger import EPOCH_MS, Attempt, Ledger, Outcome, facts_of
from tests.crash.state import Tables, read_tables
from tests.support.journals import FixedClock, FixedSigner, session_created

JOURNAL_NAME = "journal.db"
WAL_PAGES = 40
CACHE_KIB = 64
OPENINGS_MAX = 20  # Longer than any outage that ends.
PAGE_EVENTS = 1_000

_signer = FixedSigner()


@contextmanager
def tight_settings() -> Iterator[None]:
    with (
        patch.object(sqlite_connection, "WAL_PAGES_MAX", WAL_PAGES),
        patch.object(sqlite_connection, "CACHE_KIB", CACHE_KIB),
    ):
        yield


@contextmanager
def faithful_connections() -> Iterator[None]:
    """For a journal on a VFS in Python: its connections take injected errors as SQLite takes those of its own VFS."""

    def open_writing(settings: JournalSettings) -> apsw.Connection:
        connection = sqlite_connection.open_writing(settings)
        assert isinstance(connection, FaithfulConnection)
        connection.copy_back_after(WAL_PAGES)
        return connection

    with patch.object(apsw, "Connection", FaithfulConnection), patch.object(recorder, "open_writing", open_writing):
        yield


@asynccontextmanager
async def opened(settings: JournalSettings) -> AsyncIterator[Journal]:
    """The journal, closed at the end; a disk that fails then is not the block's fault."""
    journal = _open(settings)
    try:
        yield journal
    finally:
        with suppress(Unavailable):
            await journal.close()


def open_despite_errors(settings: JournalSettings) -> Journal:
    """Tries until the outage is over, as a supervisor would."""
    for _ in range(OPENINGS_MAX):
        with suppress(Unavailable):
            return _open(settings)
    return _open(settings)


async def examine(directory: Path, ledger: Ledger, extra_number: int, *, has_died: bool) -> list[Problem]:
    """Opens what is left with the ordinary file layer, lets it go on by one commit, closes it, and audits it."""
    path = directory / JOURNAL_NAME
    try:
        async with opened(JournalSettings(path=path)) as journal:
            await _go_on(journal, ledger, extra_number)
            events = await _read_everything(journal)
        return [*Audit(Survivors(events, _read_state(path)), ledger, has_died=has_died).problems(), *_verify(path)]
    except PalyraError as error:
        return [Problem(Wrong.STUCK, str(error))]


def _open(settings: JournalSettings) -> Journal:
    return open_journal(settings, _signer, FixedClock(EPOCH_MS))


async def _go_on(journal: Journal, ledger: Ledger, number: int) -> None:
    stream = StreamId(make_ulid(EPOCH_MS + number, bytes(10)))
    draft = msgspec.structs.replace(session_created(), at_ms=EPOCH_MS + number)
    facts = facts_of(await journal.commit((Append(stream, 0, (draft,)),)))
    ledger.enter(Attempt(number=number, event_counts={stream: 1}, outcome=Outcome.ACKNOWLEDGED, facts=facts))


async def _read_everything(journal: Journal) -> list[Event]:
    events: list[Event] = []
    while page := await journal.read_all(events[-1].position if events else 0, PAGE_EVENTS):
        events.extend(page)
    return events


def _read_state(path: Path) -> Tables:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return read_tables(connection)
    finally:
        connection.close()


def _verify(path: Path) -> list[Problem]:
    """What `palyra verify` would say."""
    with Archive(path) as archive:
        archive.require_structure()
        report = verify(_evidence(archive))
    return [Problem(Wrong.VERIFY, str(finding)) for finding in report.findings]


def _evidence(archive: Archive) -> Evidence:
    public_keys = {key_id(_signer.public_key): _signer.public_key}
    return Evidence(
        streams=archive.streams,
        events=archive.events,
        rows=archive.rows,
        stray_rows=archive.stray_rows,
        stray_events=archive.stray_events,
        hash_at=archive.hash_at,
        public_key=public_keys.get,
        is_valid=KeyDirectory(Path()).is_valid,
        misindexed=archive.misindexed,
    )
