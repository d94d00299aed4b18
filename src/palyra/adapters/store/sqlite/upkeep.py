"""Upkeep of the SQLite file beside commits: its size, its log, and space that nothing uses.

Does not own: when it is done (engine.jobs.maintenance).
Space can be given back only in a file that was created for it, or vacuumed since (`PRAGMA auto_vacuum`).
"""

from contextlib import suppress
from pathlib import Path

from palyra.adapters.store.sqlite.recorder import Recorder
from palyra.adapters.store.sqlite.writer import Writer
from palyra.ports.upkeep import JournalSize


class SqliteUpkeep:
    def __init__(self, writer: Writer, path: Path) -> None:
        self._writer = writer
        self._path = path

    async def size(self) -> JournalSize:
        return await self._writer.perform(self._size)

    async def empty_log(self) -> bool:
        return await self._writer.perform(Recorder.empty_log)

    async def give_back(self, bytes_max: int) -> int:
        return await self._writer.perform(lambda recorder: _give_back(recorder, bytes_max))

    def _size(self, recorder: Recorder) -> JournalSize:
        log_bytes = 0
        with suppress(OSError):
            log_bytes = self._path.with_name(self._path.name + "-wal").stat().st_size
        page_bytes = _number(recorder, "page_size")
        return JournalSize(
            file_bytes=page_bytes * _number(recorder, "page_count"),
            log_bytes=log_bytes,
            free_bytes=page_bytes * _number(recorder, "freelist_count"),
        )


def _give_back(recorder: Recorder, bytes_max: int) -> int:
    page_bytes = _number(recorder, "page_size")
    before_count = _number(recorder, "page_count")
    pages_max = max(1, bytes_max // page_bytes)
    with recorder.transaction() as connection:
        connection.execute(f"PRAGMA incremental_vacuum({pages_max})").fetchall()
    return page_bytes * (before_count - _number(recorder, "page_count"))


def _number(recorder: Recorder, pragma: str) -> int:
    return int(recorder.connection.execute(f"PRAGMA {pragma}").get)
