"""Drafts in which files become folders or links and back: applied as the command saw it, killed and taken back alike."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from palyra.adapters.drafts import apply as applying
from palyra.adapters.drafts import steps
from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.drafts.tree import remove_tree
from palyra.core.drafts.changes import ChangeSet
from palyra.core.drafts.plan import join, reverse
from palyra.core.ids import EffectId
from palyra.ports.drafts import AppliedDraft, DraftConflict, DraftFailure
from tests.adapters.test_drafts import Desk, Killed, killing

pytestmark = pytest.mark.anyio
STEPS_MAX = 40
SWAPS = [
    "rm -r d; echo file > d",
    "rm a; mkdir a; echo x > a/x",
    "rm -r d; ln -s e d",
    "rm l; mkdir -p l/x; echo q > l/x/q",
    "rm a; ln -s b a; mv d t; mv e d; mv t e",
    "mv d e/; mv a d; mkdir a; mv b a/",
    "rm -r d; mkdir d; ln -s ../a d/x; mkdir d/y; echo in > d/y/in",
    "rm l; mv d l; ln -s l d",
    "chmod 500 d; rm -r e; echo e > e; chmod 755 c",
]
REFUSALS = (errno.EEXIST, errno.ENOSPC)
STEPS = (
    (applying, "rename_new"),
    (steps, "rename_new"),
    (applying, "exchange"),
    (steps, "exchange"),
    (applying, "step_folder"),
    (applying, "set_mode"),
    (applying, "change_mode"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where that has attributes: at the end of each draft the kernel syncs the disk."""
    made = Path(mkdtemp(prefix="palyra-swaps-", dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path))
    try:
        os.setxattr(made, "user.palyra", b"1")
    except OSError:
        yield tmp_path
    else:
        yield made
    finally:
        remove_tree(str(made))


class SwapDesk(Desk):
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        (self.root / "e").mkdir()
        (self.root / "e/z").write_text("old z\n")
        (self.root / "l").symlink_to("d")

    async def sealed(self, command: str) -> tuple[EffectId, ChangeSet]:
        context, found = await self.run(command)
        return context.effect_id, found


@pytest.mark.parametrize("command", SWAPS)
async def test_a_swap_is_applied_as_the_command_saw_it(folder: Path, command: str) -> None:
    desk, real = SwapDesk(folder / "drafted"), SwapDesk(folder / "real")
    effect_id, found = await desk.sealed(command)
    assert isinstance(await desk.apply(effect_id, found), AppliedDraft)
    subprocess.run(["bash", "-c", command], cwd=real.root, check=True)  # noqa: ASYNC221 nobody else runs
    assert desk.held() == real.held()


@pytest.mark.parametrize("command", SWAPS)
async def test_a_swap_that_is_killed_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    whole = SwapDesk(folder / "whole")
    effect_id, found = await whole.sealed(command)
    assert isinstance(await whole.apply(effect_id, found), AppliedDraft)
    for place, name in STEPS:
        for number in range(2, STEPS_MAX):
            desk = SwapDesk(folder / f"{place.__name__}{name}{number}")
            effect_id, found = await desk.sealed(command)
            step, _ = killing(place, name, number)
            with monkeypatch.context() as patch:
                patch.setattr(place, name, step)
                patch.setattr(applying.Applier, "_go_back", lambda self: None)
                try:
                    await desk.apply(effect_id, found)
                except Killed:
                    pass
                else:
                    break
            applied = await FileDrafts(desk.drafts.home).apply(effect_id, found.changes)
            assert isinstance(applied, AppliedDraft), (name, number, applied)
            assert desk.held() == whole.held(), (name, number)


@pytest.mark.parametrize("command", SWAPS)
async def test_a_swap_that_is_refused_goes_back_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Each step is refused once: by a file that somebody put there, and by a full disk."""
    for place, name in STEPS:
        for number in range(1, STEPS_MAX):
            desk = SwapDesk(folder / f"{place.__name__}{name}{number}")
            effect_id, found = await desk.sealed(command)
            before = desk.held()
            real, seen, refusal = getattr(place, name), [0], REFUSALS[number % 2]

            def step(*arguments: object, real=real, seen=seen, number=number, refusal=refusal) -> object:  # type: ignore[no-untyped-def]
                seen[0] += 1
                if seen[0] == number:
                    raise OSError(refusal, os.strerror(refusal))
                return real(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(place, name, step)
                outcome = await desk.apply(effect_id, found)
            if seen[0] < number:
                break
            assert isinstance(outcome, DraftConflict | DraftFailure), (name, number)
            assert desk.held() == before, (name, number)


@pytest.mark.parametrize("command", SWAPS)
async def test_a_swap_that_is_undone_leaves_what_was_there(folder: Path, command: str) -> None:
    desk = SwapDesk(folder)
    before = desk.held()
    effect_id, found = await desk.sealed(command)
    applied = await desk.apply(effect_id, found)
    assert isinstance(applied, AppliedDraft)
    undo_id = EffectId("f" * 64)
    contents = (applied.undo,) if applied.undo is not None else ()
    back = await desk.drafts.unpack(undo_id, tuple(reverse(change) for change in join(found.changes)), contents)
    assert isinstance(await desk.apply(undo_id, back), AppliedDraft)
    assert desk.held() == before
