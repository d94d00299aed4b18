"""The stores that the journal's contract is asked of.

A second database is one more entry in STORES: a function that opens its journal at a place that is the test's alone.
For SQLite that is a file in the test's folder; for a server it is a schema named after the folder. Every test of this
package then runs against it, unskipped.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.adapters.store.sqlite.journal import SqliteJournal, open_journal
from palyra.ports.channels import PositionViews
from palyra.ports.incidents import IncidentViews
from palyra.ports.journal import Journal
from palyra.ports.learning import LearningViews
from palyra.ports.marks import MarkViews
from palyra.ports.memory import MemorySearch, MemoryUpkeepViews, MemoryViews
from palyra.ports.routines import RoutineViews
from palyra.ports.search import MessageSearch
from palyra.ports.state import State
from palyra.ports.views import ApprovalViews, ProvenanceViews, RunViews, SessionViews, UsageViews
from tests.support.journals import FixedClock, FixedSigner, Ids


@dataclass(frozen=True)
class Opened:
    """One opened journal and the views that belong to it."""

    journal: Journal
    sessions: SessionViews
    runs: RunViews
    approvals: ApprovalViews
    state: State
    usage: UsageViews
    provenance: ProvenanceViews
    search: MessageSearch
    incidents: IncidentViews
    routines: RoutineViews
    marks: MarkViews
    memory: MemoryViews
    memory_upkeep: MemoryUpkeepViews
    memory_search: MemorySearch
    learning: LearningViews
    positions: PositionViews


Opener = Callable[[Path, FixedClock], Awaitable[Opened]]


class Store:
    """A place where a journal lies, to be opened and opened again."""

    def __init__(self, open_at: Opener, folder: Path) -> None:
        self._open_at = open_at
        self._folder = folder
        self._opened: list[Opened] = []
        self.clock = FixedClock()

    async def open(self) -> Opened:
        opened = await self._open_at(self._folder, self.clock)
        self._opened.append(opened)
        return opened

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().journal.close()

    async def reopen(self) -> Opened:
        await self.close()
        return await self.open()


def _with_views(journal: SqliteJournal) -> Opened:
    return Opened(
        journal=journal,
        sessions=journal.sessions,
        runs=journal.runs,
        approvals=journal.approvals,
        state=journal.state,
        usage=journal.usage,
        provenance=journal.provenance,
        search=journal.search,
        incidents=journal.incidents,
        routines=journal.routines,
        marks=journal.marks,
        memory=journal.memory,
        memory_upkeep=journal.memory,
        memory_search=journal.memory_search,
        learning=journal.learning,
        positions=journal.positions,
    )


async def _open_sqlite(folder: Path, clock: FixedClock) -> Opened:
    journal = open_journal(JournalSettings(path=folder / "journal.db"), FixedSigner(), clock)
    return _with_views(journal)


async def _open_sqlite_alone(folder: Path, clock: FixedClock) -> Opened:
    """The way of file layers without shared memory: one connection for writes and reads."""
    settings = JournalSettings(path=folder / "journal.db", is_exclusive=True)
    journal = open_journal(settings, FixedSigner(), clock)
    return _with_views(journal)


STORES: dict[str, Opener] = {"sqlite": _open_sqlite, "sqlite-exclusive": _open_sqlite_alone}


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(request.param, tmp_path)
    yield store
    await store.close()


@pytest.fixture
async def opened(store: Store) -> Opened:
    return await store.open()


@pytest.fixture
def journal(opened: Opened) -> Journal:
    return opened.journal


@pytest.fixture
def ids() -> Ids:
    return Ids()
