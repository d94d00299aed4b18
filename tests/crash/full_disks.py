"""Real limits of real disks. Owns: a child whose files may not grow, and a file system with little room. Not: the audit.

Neither uses a simulated disk, so these show what SQLite makes of the kernel's own EFBIG and ENOSPC.
"""

import asyncio
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from palyra.adapters.store.sqlite.connection import JournalSettings
from tests.crash.audit import Problem, Wrong
from tests.crash.child import Order
from tests.crash.kills import read_told, started_child
from tests.crash.ledger import Ledger, Outcome
from tests.crash.load import Load
from tests.crash.scene import JOURNAL_NAME, examine, opened, tight_settings
from tests.crash.story import Story

EXTRA_NUMBER = 900_000
FILE_BYTES_MAX = 400 * 1024  # Room for the schema and a part of the load.
WAVES_AFTER_COUNT = 5
SMALL_MOUNT = "1m"
LARGE_MOUNT = "64m"
WAVES_UNTIL_FULL_MAX = 400
LONG_TEXT_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class Outage:
    """What came of a load that ran out of room and then got room again."""

    problems: tuple[Problem, ...]
    failed_count: int
    acknowledged_count: int


def meet_file_limit(directory: Path, seed: int) -> Outage:
    order = Order(str(directory), seed, 1, {}, WAVES_AFTER_COUNT, FILE_BYTES_MAX)
    ledger = Ledger()
    with started_child(order) as child:
        for _ in read_told(child, ledger):
            pass
        code = child.wait()
        told = child.stderr.read() if child.stderr is not None else ""
    problems = [] if code == 0 else [Problem(Wrong.LIVE, told)]
    return _outage(directory, ledger, problems)


def meet_full_file_system(mounted: Path, seed: int) -> Outage:
    """Fills a small tmpfs, makes it larger, and goes on."""
    ledger = Ledger()
    load = Load(Story(random.Random(seed), text_chars_max=LONG_TEXT_CHARS), ledger)
    with tight_settings():
        asyncio.run(_fill(mounted, load, ledger))
    return _outage(mounted, ledger, [Problem(Wrong.LIVE, problem) for problem in load.problems])


@contextmanager
def small_file_system(mounted: Path) -> Iterator[None]:
    """A tmpfs of its own; PermissionError where mounting is not allowed."""
    mounted.mkdir()
    if _mount("-t", "tmpfs", "-o", f"size={SMALL_MOUNT}", "tmpfs", str(mounted)) != 0:
        raise PermissionError("mounting a small tmpfs is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


async def _fill(mounted: Path, load: Load, ledger: Ledger) -> None:
    async with opened(JournalSettings(path=mounted / JOURNAL_NAME)) as journal:
        await load.run(journal, WAVES_UNTIL_FULL_MAX, lambda: ledger.count(Outcome.FAILED) > 0)
        await load.run(journal, WAVES_AFTER_COUNT)
        if _mount("-o", f"remount,size={LARGE_MOUNT}", str(mounted)) != 0:
            raise PermissionError("the tmpfs could not be made larger")
        await load.go_on(journal)
        await load.run(journal, WAVES_AFTER_COUNT)


def _mount(*arguments: str) -> int:
    if shutil.which("mount") is None:
        return 1
    return subprocess.run(["mount", *arguments], capture_output=True).returncode


def _outage(directory: Path, ledger: Ledger, problems: list[Problem]) -> Outage:
    failed_count, acknowledged_count = ledger.count(Outcome.FAILED), ledger.count(Outcome.ACKNOWLEDGED)
    examined = asyncio.run(examine(directory, ledger, EXTRA_NUMBER, has_died=False))
    return Outage((*problems, *examined), failed_count, acknowledged_count)
