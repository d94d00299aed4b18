"""Knows that a table holds nothing yet, so that a look-up in it costs no hand-over to a reading thread.

Most journals have no grants, no tainted files and no memory, and every run looks for all three.
Invariant: one process writes a journal, so only what it is about to record can fill a table. The writer says so before
it records; a commit that then fails only makes later look-ups ask the disk.
"""

from palyra.adapters.store.sqlite.connection import fetch
from palyra.adapters.store.sqlite.reads import Reads


class EmptyTable:
    def __init__(self, reads: Reads, table: str) -> None:
        self._reads = reads
        self._sql = f"SELECT 1 FROM {table} LIMIT 1"  # noqa: S608 - our names
        self._is_empty: bool | None = None

    @property
    def is_filled(self) -> bool:
        """Says whether it is known to hold something, or about to."""
        return self._is_empty is False

    def expect_row(self) -> None:
        self._is_empty = False

    async def is_empty(self) -> bool:
        if self._is_empty is None:
            found = await self._reads.ask(lambda connection: fetch(connection, self._sql, ()))
            # A row that was announced while this query ran counts more.
            self._is_empty = not found if self._is_empty is None else self._is_empty
        return self._is_empty
