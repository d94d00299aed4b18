"""Remembered items for tests and benchmarks, and an index of them in a file of its own."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from palyra.adapters.embedders.bundled import BundledEmbedder
from palyra.adapters.store.sqlite.connection import JournalSettings, open_writing
from palyra.adapters.store.sqlite.empty_table import EmptyTable
from palyra.adapters.store.sqlite.memory_index import drop_items, index_items
from palyra.adapters.store.sqlite.memory_search import SqliteMemorySearch
from palyra.adapters.store.sqlite.memory_vectors import store_vectors
from palyra.adapters.store.sqlite.migrations import known_migrations, migrate
from palyra.adapters.store.sqlite.reads import ThreadReads
from palyra.core.ids import MemoryId, Principal
from palyra.core.memory.model import (
    MemoryHit,
    MemoryItem,
    MemoryKind,
    MemoryQuery,
    MemoryScope,
    MemorySource,
    ScopeFilter,
)
from palyra.core.trust import Trust
from palyra.ports.embedder import Embedder

OWNER = Principal("user:owner")
SCOPE = ScopeFilter(MemoryScope.PRINCIPAL, "user:owner")
NOW_MS = 1_780_000_000_000
BATCH = 500

_COLUMNS = ", ".join(MemoryItem.__struct_fields__)
_MARKS = ", ".join("?" * len(MemoryItem.__struct_fields__))


def item(number: int, content: str, source: MemorySource | None = None, **changes: object) -> MemoryItem:
    made = MemoryItem(
        id=MemoryId(f"01M{number:023d}"),
        owner=OWNER,
        scope=SCOPE.scope,
        scope_id=SCOPE.scope_id,
        kind=MemoryKind.NOTE,
        content=content,
        content_hash=f"{number:064x}",
        trust=Trust.OPERATOR,
        source=source or MemorySource(),
        created_at_ms=NOW_MS,
        updated_at_ms=NOW_MS,
    )
    return msgspec.structs.replace(made, **changes)


def query(text: str, limit: int = 10, **changes: object) -> MemoryQuery:
    asked = MemoryQuery(text=text, owner=OWNER, scopes=(SCOPE,), limit=limit, at_ms=NOW_MS)
    return msgspec.structs.replace(asked, **changes)


def put_items(connection: apsw.Connection, items: Sequence[MemoryItem]) -> None:
    """Writes items and their index entries in one transaction."""
    rows = [tuple(_cell(getattr(one, name)) for name in MemoryItem.__struct_fields__) for one in items]
    with connection:
        connection.executemany(f"INSERT INTO memory_items ({_COLUMNS}) VALUES ({_MARKS})", rows)
        index_items(connection, items)


def forget_items(connection: apsw.Connection, ids: Sequence[MemoryId]) -> None:
    with connection:
        drop_items(connection, ids)
        connection.executemany("DELETE FROM memory_items WHERE id = ?", [(one,) for one in ids])


def _cell(value: object) -> str | int | None:
    plain = msgspec.to_builtins(value)
    return plain if plain is None or isinstance(plain, str | int) else msgspec.json.encode(plain).decode()


class MemoryFile:
    """A journal's tables in a file, without a journal around them."""

    def __init__(self, path: Path, embedder: Embedder | None, meanings: BundledEmbedder | None) -> None:
        self.settings = JournalSettings(path=path)
        self.connection = open_writing(self.settings)
        migrate(self.connection, path, known_migrations())
        self.embedder = embedder
        self.reads = ThreadReads(self.settings)
        self.items = EmptyTable(self.reads, "memory_items")
        self.items.expect_row()  # The items are written past the journal.
        self.search = SqliteMemorySearch(self.reads, self.items)
        if embedder is not None:
            self.search.use(embedder, meanings)

    async def fill(self, items: Iterable[MemoryItem]) -> None:
        given = list(items)
        for start in range(0, len(given), BATCH):
            put_items(self.connection, given[start : start + BATCH])
            await self.embed()

    async def embed(self) -> None:
        while self.embedder is not None:
            version = self.embedder.traits.version
            pending = await self.search.unembedded(version, BATCH)
            if not pending:
                return
            vectors = await self.embedder.embed([one.content for one in pending], OWNER)
            with self.connection:
                numbers = [one.number for one in pending]
                store_vectors(self.connection, version, list(zip(numbers, vectors, strict=True)))

    async def find(self, asked: MemoryQuery) -> tuple[MemoryHit, ...]:
        return await self.search.search_memory(asked)


@contextmanager
def memory_file(
    path: Path, embedder: Embedder | None = None, meanings: BundledEmbedder | None = None
) -> Iterator[MemoryFile]:
    opened = MemoryFile(path, embedder, meanings)
    try:
        yield opened
    finally:
        opened.reads._threads.shutdown()
        for connection in opened.reads._connections:
            connection.close(True)
        opened.connection.close(True)
