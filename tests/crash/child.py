"""A process to be killed. Owns: running a load on a real disk and telling on a pipe what was acknowledged.

Run as `python -m tests.crash.child`; the order is one JSON line on standard input.
"""

import asyncio
import random
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.core.ids import StreamId
from tests.crash.ledger import PipeLedger
from tests.crash.load import Load
from tests.crash.scene import JOURNAL_NAME, opened, tight_settings
from tests.crash.story import Story, Tape

OPENING_LINE = "opening"
FAULTY_WAVES_COUNT = 20
TEXT_CHARS_MAX = 6_000  # Long enough for overflow pages and for several frames a commit.


class Order(msgspec.Struct, frozen=True):
    """What the child shall do. With `file_bytes_max` no file may grow beyond it, until the load has met that limit."""

    directory: str
    seed: int
    first_number: int
    tapes: dict[StreamId, int]
    waves_count: int
    file_bytes_max: int | None = None


async def main() -> int:
    order = msgspec.json.decode(sys.stdin.readline(), type=Order)
    tapes = {stream: Tape(stream, seq, is_own=False) for stream, seq in order.tapes.items()}
    story = Story(random.Random(order.seed), order.first_number, tapes, text_chars_max=TEXT_CHARS_MAX)
    load = Load(story, PipeLedger())
    print(OPENING_LINE, flush=True)
    async with opened(JournalSettings(path=Path(order.directory) / JOURNAL_NAME)) as journal:
        if order.file_bytes_max is not None:
            with _small_files(order.file_bytes_max):
                await load.run(journal, FAULTY_WAVES_COUNT)
            await load.go_on(journal)
        await load.run(journal, order.waves_count)
    for problem in load.problems:
        print(problem, file=sys.stderr)
    return 1 if load.problems else 0


@contextmanager
def _small_files(bytes_max: int) -> Iterator[None]:
    """Writes beyond the limit fail with EFBIG; Python already ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


if __name__ == "__main__":
    with tight_settings():
        sys.exit(asyncio.run(main()))
