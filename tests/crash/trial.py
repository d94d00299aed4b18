"""One point of the campaign, run. Owns: a load on a simulated disk with its fault, then the examination of what is left."""

import asyncio
import os
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from palyra.adapters.store.sqlite.connection import JournalSettings
from palyra.core.errors import Unavailable
from tests.crash.audit import Problem, Wrong
from tests.crash.disk import Disk, materialize
from tests.crash.faulty_vfs import registered
from tests.crash.ledger import Ledger, Outcome
from tests.crash.load import Load
from tests.crash.points import (
    Kind,
    Length,
    Point,
    choose,
    faults_of,
    first_story_seed,
    read_faults_of,
    recovery_faults_of,
    story_seed_of,
)
from tests.crash.scene import JOURNAL_NAME, examine, faithful_connections, open_despite_errors, tight_settings
from tests.crash.story import Story, resume

WAVES_COUNT = 6
EXTRA_NUMBER = 900_000  # Numbers the examination uses; no story comes that far.
SWITCH_INTERVAL_S = 60.0  # Longer than any wave takes to prepare, also where the machine stalls.
SECOND_STORY_NUMBER = 100_000

_vfs_numbers = iter(range(1, 1 << 62))


@dataclass(frozen=True, slots=True)
class Trial:
    point: Point
    problems: tuple[Problem, ...]
    acknowledged_count: int
    failed_count: int
    was_hit: bool


@dataclass(frozen=True, slots=True)
class Sabotage:
    """A deliberate weakness, to see that the audit would notice one."""

    is_disk_lying: bool = False
    durability: Literal["full", "normal"] = "full"


NO_SABOTAGE = Sabotage()


class Campaign:
    """The points of one seed. Each story is run once without faults first, to know how long it is."""

    def __init__(self, seed: int, directory: Path, sabotage: Sabotage = NO_SABOTAGE) -> None:
        self.seed = seed
        self._directory = directory
        self._sabotage = sabotage
        self._lengths: dict[int, Length] = {}

    def point(self, number: int) -> Point:
        first = self.first_length()
        own = self._length(story_seed_of(number, self.seed, first))
        return choose(number, self.seed, first, own)

    def run(self, point: Point) -> Trial:
        with tight_settings(), steady_groups():
            return asyncio.run(_run(point, self._directory, self._sabotage))

    def first_length(self) -> Length:
        return self._length(first_story_seed(self.seed))

    def _length(self, story_seed: int) -> Length:
        if story_seed not in self._lengths:
            disk = Disk(random.Random(0))
            with tight_settings(), steady_groups():
                problems = asyncio.run(_load(disk, Story(random.Random(story_seed)), Ledger()))
            if problems:
                raise AssertionError(f"story {story_seed} fails without any fault: {problems[0]}")
            self._lengths[story_seed] = Length(disk.operation_count, disk.read_count)
        return self._lengths[story_seed]


@contextmanager
def steady_groups() -> Iterator[None]:
    """The loop hands a whole wave to the writer before its thread runs, so that a point is the same in every run.

    Asking the system for random bytes would let the other thread run in between; so would hashing more than 2 KiB.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with patch.object(os, "urandom", random.Random(0).randbytes):
            yield
    finally:
        sys.setswitchinterval(before_s)


async def _run(point: Point, directory: Path, sabotage: Sabotage) -> Trial:
    ledger = Ledger()
    chance = random.Random(point.chance_seed)
    disk = Disk(chance, faults_of(point), read_faults_of(point), is_lying=sabotage.is_disk_lying)
    problems = await _load(disk, Story(random.Random(point.story_seed)), ledger, sabotage)
    acknowledged_count = ledger.count(Outcome.ACKNOWLEDGED)
    failed_count = ledger.count(Outcome.FAILED)
    problems += await _examine(disk, ledger, directory)
    if point.kind is Kind.POWER_LOSS_TWICE and not problems:
        ledger.remove(EXTRA_NUMBER)  # The examination went on with a copy, not with this disk.
        second = Disk(chance, recovery_faults_of(point), image=disk.image())
        problems += await _load(second, resume(ledger, chance, SECOND_STORY_NUMBER), ledger)
        acknowledged_count = ledger.count(Outcome.ACKNOWLEDGED)
        problems += await _examine(second, ledger, directory)
    return Trial(point, tuple(problems), acknowledged_count, failed_count, disk.fault_count > 0)


async def _load(disk: Disk, story: Story, ledger: Ledger, sabotage: Sabotage = NO_SABOTAGE) -> list[Problem]:
    """Runs the story on the disk. Without a death the journal is closed, as a daemon that stops would."""
    load = Load(story, ledger)
    with faithful_connections(), registered(disk, f"faulty-{next(_vfs_numbers)}") as vfs:
        path = Path("/simulated") / JOURNAL_NAME
        settings = JournalSettings(path=path, durability=sabotage.durability, vfs=vfs, is_exclusive=True)
        try:
            journal = open_despite_errors(settings)
        except Unavailable:
            return []  # Dead or full before it began: nothing was promised.
        await load.run(journal, WAVES_COUNT, lambda: disk.is_dead)
        if disk.is_over_its_faults:
            disk.repair()
            await load.go_on(journal)
        disk.was_broken_at_end = disk.is_broken
        with suppress(Unavailable):
            await journal.close()
    return [Problem(Wrong.LIVE, problem) for problem in load.problems]


async def _examine(disk: Disk, ledger: Ledger, directory: Path) -> list[Problem]:
    home = directory / "image"
    shutil.rmtree(home, ignore_errors=True)
    materialize(disk.image(), home)
    return await examine(home, ledger, EXTRA_NUMBER, has_died=disk.was_broken_at_end or disk.is_broken)


def run_undisturbed(directory: Path, ledger: Ledger, story_seed: int) -> None:
    """A story without faults, left as an image in a real directory."""
    disk = Disk(random.Random(0))
    with tight_settings(), steady_groups():
        asyncio.run(_load(disk, Story(random.Random(story_seed)), ledger))
    materialize(disk.image(), directory)


def examine_image(directory: Path, ledger: Ledger) -> list[Problem]:
    return asyncio.run(examine(directory, ledger, EXTRA_NUMBER, has_died=False))
