"""The simulated disk keeps the promises of a real one, and no others."""

import random

import pytest

from tests.crash.disk import SECTOR_BYTES, Disk, DiskError, Effect, Fault

SEEDS = range(40)
SECTORS = 6


def content_after_power_loss(seed: int, *steps: str) -> bytes:
    """Writes a file of `x`, then does the steps, then cuts the power."""
    disk = Disk(random.Random(seed))
    file = disk.open("f")
    disk.write(file, 0, b"x" * SECTOR_BYTES * SECTORS)
    disk.sync(file, is_directory_too=True)
    for step in steps:
        if step == "write":
            disk.write(file, 0, b"y" * SECTOR_BYTES * SECTORS)
        if step == "sync":
            disk.sync(file, is_directory_too=False)
    disk.cut_power()
    return disk.image()["f"]


@pytest.mark.parametrize("seed", SEEDS)
def test_synced_bytes_survive(seed: int) -> None:
    assert content_after_power_loss(seed, "write", "sync") == b"y" * SECTOR_BYTES * SECTORS


def test_unsynced_bytes_are_kept_lost_or_torn_between_sectors() -> None:
    images = {content_after_power_loss(seed, "write") for seed in SEEDS}
    assert {b"x" * SECTOR_BYTES * SECTORS, b"y" * SECTOR_BYTES * SECTORS} < images
    for image in images:
        sectors = [image[at : at + SECTOR_BYTES] for at in range(0, len(image), SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors)


def test_a_file_whose_directory_was_not_synced_may_be_gone() -> None:
    images = []
    for seed in SEEDS:
        disk = Disk(random.Random(seed))
        disk.sync(disk.open("f"), is_directory_too=False)
        disk.cut_power()
        images.append(disk.image())
    assert {len(image) for image in images} == {0, 1}


def test_a_failed_sync_is_not_made_good_by_the_next() -> None:
    lost_count = 0
    for seed in SEEDS:
        disk = Disk(random.Random(seed), [Fault(Effect.IO_ERROR, 3, 3)])
        file = disk.open("f")
        disk.sync(file, is_directory_too=True)
        disk.write(file, 0, b"y")
        with pytest.raises(DiskError):
            disk.sync(file, is_directory_too=False)
        disk.sync(file, is_directory_too=False)
        assert disk.image()["f"] == b"y"
        disk.cut_power()
        lost_count += disk.image()["f"] == b""
    assert 0 < lost_count < len(SEEDS)


def test_a_dead_disk_answers_nothing() -> None:
    disk = Disk(random.Random(0), [Fault(Effect.DIE, 2, 2)])
    file = disk.open("f")
    disk.write(file, 0, b"y")
    for _ in range(2):
        with pytest.raises(DiskError):
            disk.write(file, 0, b"z")
    with pytest.raises(DiskError):
        disk.read(file, 1, 0)
