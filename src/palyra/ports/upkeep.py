"""The JournalUpkeep port: what a journal needs done from time to time, beside a running daemon.

Does not own: when it is done (engine.jobs.maintenance).
"""

from typing import Protocol

import msgspec


class JournalSize(msgspec.Struct, frozen=True, kw_only=True):
    """`log_bytes` is what waits to be copied into the main file; `free_bytes` is space in it that nothing uses."""

    file_bytes: int
    log_bytes: int
    free_bytes: int


class JournalUpkeep(Protocol):
    """Each call is short: commits wait for one step at a time."""

    async def size(self) -> JournalSize: ...

    async def empty_log(self) -> bool:
        """Copies the log into the main file and empties it. False if a reader held that up."""
        ...

    async def give_back(self, bytes_max: int) -> int:
        """Gives unused space back to the disk, up to so many bytes. Returns how many it was."""
        ...


class NoUpkeep:
    """For a store that looks after itself."""

    async def size(self) -> JournalSize:
        return JournalSize(file_bytes=0, log_bytes=0, free_bytes=0)

    async def empty_log(self) -> bool:
        return True

    async def give_back(self, bytes_max: int) -> int:
        return 0
