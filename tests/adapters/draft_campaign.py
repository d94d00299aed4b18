"""The long forms of what drafts must bear: 200,000 files, a build of 2 GiB, an editor that saves at every moment.

Owns: making them, and the bounds on time and memory. The short forms are in test_drafts and test_draft_disks.
Usage: python -m tests.adapters.draft_campaign [--files N] [--build-mib N] [--saves N]
"""

import argparse
import asyncio
import os
import resource
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from palyra.adapters.drafts.tree import remove_tree
from palyra.ports.drafts import AppliedDraft, DraftConflict
from tests.adapters.test_drafts import Desk

CHUNK_MIB = 32
SMALL_S_MAX = 2.0  # One changed file in a large workspace: the command, its seal and its apply, on a busy machine.
MEMORY_BYTES_MAX = 256 << 20
BUILD_S_MAX = 300.0
SAVE_EVERY_S = 0.0002


async def keep_to_the_changes(folder: Path, count: int) -> None:
    """A change costs by itself, however many files lie around it."""
    desk = Desk(folder)
    for number in range(count):
        if number % 1000 == 0:
            (desk.root / f"n{number}").mkdir()
        (desk.root / f"n{number - number % 1000}/{number}").touch()
    took = []
    for turn in range(5):
        began_s = time.monotonic()
        context, found = await desk.run(f"echo {turn} > one; rm n0/{turn}")
        assert [change.path for change in found.changes] == [f"n0/{turn}", "one"]
        assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
        took.append(time.monotonic() - began_s)
    print(f"two changes among {count} files: {sorted(took)[2] * 1000:.0f} ms", flush=True)
    assert sorted(took)[2] < SMALL_S_MAX
    began_s = time.monotonic()
    context, found = await desk.run("rm -r n*")
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    print(f"{len(found.changes)} deletions: {time.monotonic() - began_s:.1f} s", flush=True)
    assert sorted(os.listdir(desk.root)) == ["a", "b", "c", "d", "one"]
    await desk.drafts.forget(context.effect_id)


async def build(folder: Path, mib: int) -> None:
    """A large build is sealed and applied in bounded time and memory."""
    desk = Desk(folder)
    before_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    began_s = time.monotonic()
    count = mib // CHUNK_MIB
    context, found = await desk.run(
        f"mkdir out; for i in $(seq {count}); do head -c {CHUNK_MIB}M /dev/zero > out/$i; echo $i >> out/$i; done"
    )
    assert len(found.changes) == count + 1, found
    sealed_s = time.monotonic() - began_s
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    took_s = time.monotonic() - began_s
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before_bytes
    print(f"a build of {mib} MiB: sealed after {sealed_s:.1f} s, applied after {took_s:.1f} s", flush=True)
    print(f"  and {grown_bytes >> 20} MiB of memory", flush=True)
    assert took_s < BUILD_S_MAX
    assert grown_bytes < MEMORY_BYTES_MAX
    held = sorted((desk.root / "out").iterdir(), key=lambda path: int(path.name))
    assert [path.stat().st_size for path in held] == [
        (CHUNK_MIB << 20) + len(f"{number}\n") for number in range(1, count + 1)
    ]
    await desk.drafts.forget(context.effect_id)


async def save_at_every_moment(folder: Path, rounds_count: int) -> None:
    """An editor never stops saving. Whatever becomes of a draft, the last save is there, and no save is half of one."""
    desk = Desk(folder)
    place, draft_of_editor = desk.root / "a", desk.root / ".a.swp"
    outcomes = {"applied": 0, "conflict": 0}
    for number in range(rounds_count):
        is_over, saves = threading.Event(), [0]

        def save(is_over: threading.Event = is_over, saves: list[int] = saves, number: int = number) -> None:
            while not is_over.is_set():
                draft_of_editor.write_text(f"person {number} {saves[0] + 1}\n")
                os.replace(draft_of_editor, place)
                saves[0] += 1
                time.sleep(SAVE_EVERY_S)

        context, found = await desk.run(f"echo agent {number} > a; echo {number} > b")
        editor = threading.Thread(target=save)
        if number % 2:
            editor.start()
        applying = asyncio.create_task(desk.apply(context.effect_id, found))
        if not number % 2:
            await asyncio.sleep(SAVE_EVERY_S * (number % 40))
            editor.start()
        outcome = await applying
        is_over.set()
        editor.join()
        assert place.read_text() == (f"person {number} {saves[0]}\n" if saves[0] else f"agent {number}\n")
        if isinstance(outcome, DraftConflict):
            outcomes["conflict"] += 1
            assert (desk.root / "b").read_text() != f"{number}\n", "nothing of a draft with a conflict is applied"
        else:
            assert isinstance(outcome, AppliedDraft), outcome
            outcomes["applied"] += 1
            assert (desk.root / "b").read_text() == f"{number}\n"
        await desk.drafts.forget(context.effect_id)
    print(f"{rounds_count} drafts beside an editor that saves: {outcomes}", flush=True)
    assert min(outcomes.values()) > 0, "the saves came too early or too late to be a test"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=190_000)
    parser.add_argument("--build-mib", type=int, default=2048)
    parser.add_argument("--saves", type=int, default=400)
    asked = parser.parse_args()
    for work, size in (
        (save_at_every_moment, asked.saves),
        (keep_to_the_changes, asked.files),
        (build, asked.build_mib),
    ):
        with TemporaryDirectory(prefix="palyra-drafts-", dir="/var/tmp") as folder:
            try:
                await work(Path(folder), size)
            finally:
                remove_tree(f"{folder}/drafts")


if __name__ == "__main__":
    asyncio.run(main())
