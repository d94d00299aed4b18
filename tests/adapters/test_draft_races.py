"""Somebody swaps folders and files while a draft is applied: nothing happens outside of the root, and nothing is lost.

At every moment of every step one swap is made. If the draft was applied, the swap came after it. If it was not, there
is what the swap alone would have left: the same content, the same permissions, the same names, also outside. Where the
swap took the very place to which something goes back, that lies beside it, and nothing is lost.
"""

import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from palyra.adapters.drafts import apply as applying
from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.drafts.tree import Tree, remove_tree
from palyra.core.drafts.plan import join, reverse
from palyra.core.events.draft import FileChange
from palyra.core.ids import EffectId
from palyra.ports.drafts import AppliedDraft, Contents
from tests.adapters.test_draft_swaps import STEPS, SwapDesk, folder  # noqa: F401 a fixture
from tests.support.examples import examples

pytestmark = pytest.mark.anyio
COMMANDS = [
    "echo new > a; echo 1 >> d/x; rm d/y; chmod 755 c; mkdir d/s; echo 2 > d/s/t; echo 3 > d/n; chmod 700 d; rm -r e",
    "rm -r d; echo file > d; rm a; mkdir a; echo in > a/in; ln -sf b c; mv e f",
]
MOMENTS_MAX = 1000
STRIDE = 7 if examples(1) == 1 else 1  # The suite takes every seventh moment, for each swap other ones.
EFFECT = EffectId("a" * 64)
Swap = Callable[[Path], None]
Held = dict[str, tuple[int, str]]


def swap_for_link(name: str, target: str) -> Swap:
    """Puts a link in the place of a folder or a file, which stays beside it under another name."""

    def swap(base: Path) -> None:
        os.rename(base / name, base / f"{name}.away")
        (base / name).symlink_to(base / target)

    return swap


def replace_by_link(name: str, target: str) -> Swap:
    def swap(base: Path) -> None:
        (base / "link").symlink_to(base / target)
        os.rename(base / "link", base / name)

    return swap


def move(name: str, target: str) -> Swap:
    return lambda base: os.rename(base / name, base / target)


def move_and_make(name: str, target: str) -> Swap:
    def swap(base: Path) -> None:
        os.rename(base / name, base / target)
        (base / name).mkdir()

    return swap


def move_and_copy(name: str, target: str, source: str) -> Swap:
    """A new version of a whole folder takes the place of the old one."""

    def swap(base: Path) -> None:
        os.rename(base / name, base / target)
        shutil.copytree(base / source, base / name)

    return swap


def save(name: str) -> Swap:
    """An editor saves: what was there before is gone by its own will."""

    def swap(base: Path) -> None:
        (base / "saved").write_text("a person's\n")
        os.rename(base / "saved", base / name)

    return swap


SWAPS: dict[str, Swap] = {
    "a folder for a link to its like outside": swap_for_link("root/d", "outside/d"),
    "a folder for a link to an empty one": swap_for_link("root/e", "void"),
    "a folder for a link inside": swap_for_link("root/d", "root/e"),
    "a folder for a link to itself": swap_for_link("root/d", "root/d.away"),
    "a folder moved out": move("root/d", "outside/moved"),
    "a folder moved out, an empty one instead": move_and_make("root/d", "outside/moved"),
    "a folder moved out, another version instead": move_and_copy("root/d", "outside/moved", "versions/d"),
    "a folder moved inside": move("root/e", "root/moved"),
    "the root for a link": swap_for_link("root", "outside"),
    "the root for an empty one": move_and_make("root", "away"),
    "a file for a link to its like outside": replace_by_link("root/a", "outside/a"),
    "a file in a folder for a link": replace_by_link("root/d/x", "outside/d/x"),
    "a file of which the mode changes for a link": replace_by_link("root/c", "outside/c"),
    "a file for somebody's": save("root/a"),
    "a deleted file for somebody's": save("root/d/y"),
    "a new file for somebody's": save("root/d/n"),
    "a file of which the mode changes for somebody's": save("root/c"),
}


def lay(base: Path) -> None:
    """Outside lies the same as inside, so that a look through a link would find what the draft expects."""
    desk = SwapDesk(base)
    shutil.copytree(desk.root, base / "outside", symlinks=True)
    (base / "void").mkdir()
    shutil.copytree(desk.root / "d", base / "versions/d")
    for path in (base / "versions/d").iterdir():
        path.write_text("another version\n")


def held(base: Path) -> Held:
    found = {}
    for path in sorted(base.rglob("*")):
        mode = path.lstat().st_mode
        body = os.readlink(path) if stat.S_ISLNK(mode) else path.read_text() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(base))] = (mode, body)
    return {name: each for name, each in found.items() if not name.startswith("drafts")}


class Moments:
    """Counts the moments before and after each step, and makes the swap at one of them."""

    def __init__(self, base: Path, swap: Swap, number: int) -> None:
        self.base, self.swap, self.number = base, swap, number
        self.count = 0
        self.was_swapped = False
        self.is_watching = True

    def come(self) -> None:
        if not self.is_watching:
            return
        self.count += 1
        if self.count == self.number:
            with suppress(OSError):  # What it would swap is not there now.
                self.swap(self.base)
                self.was_swapped = True

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        for place, name in STEPS:
            patch.setattr(place, name, self._watched(getattr(place, name)))
        real = Tree.folder_of

        @contextmanager
        def folder_of(tree: Tree, path: str) -> Iterator[tuple[int, str]]:
            self.come()
            with real(tree, path) as found:
                self.come()
                yield found

        patch.setattr(Tree, "folder_of", folder_of)

    def _watched(self, real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object) -> object:
            self.come()
            done = real(*arguments)
            self.come()
            return done

        return step


class Bench:
    """One draft that is applied again and again, each time to the same files."""

    def __init__(self, base: Path, changes: tuple[FileChange, ...], contents: Contents) -> None:
        self.base, self.changes, self.contents = base, changes, contents
        self.before = base.with_name("before")
        shutil.copytree(base, self.before, symlinks=True, ignore=shutil.ignore_patterns("drafts"))

    def swapped(self, source: Path, swap: Swap) -> Held:
        """Returns what the swap alone leaves of these files. Links are absolute, so it is made in the same place."""
        self._renew(source)
        with suppress(OSError):
            swap(self.base)
        return held(self.base)

    async def applied_later(self, swap: Swap) -> Held | None:
        """Returns what the draft leaves if the swap came before it; None if it is not applied then."""
        self.swapped(self.before, swap)
        drafts = FileDrafts(self.base / "drafts")
        unpacked = await drafts.unpack(EFFECT, self.changes, self.contents)
        outcome = await drafts.apply(EFFECT, unpacked.changes)
        await drafts.forget(EFFECT)
        return held(self.base) if isinstance(outcome, AppliedDraft) else None

    async def apply(self, moments: Moments, patch: pytest.MonkeyPatch) -> object:
        self._renew(self.before)
        drafts = FileDrafts(self.base / "drafts")
        unpacked = await drafts.unpack(EFFECT, self.changes, self.contents)
        moments.watch(patch)
        outcome = await drafts.apply(EFFECT, unpacked.changes)
        patch.undo()
        await drafts.forget(EFFECT)
        return outcome

    def _renew(self, source: Path) -> None:
        if self.base.exists():
            remove_tree(str(self.base))
        shutil.copytree(source, self.base, symlinks=True)

    async def keep_after(self) -> Path:
        """Returns a copy of what the draft leaves."""
        with pytest.MonkeyPatch.context() as patch:
            moments = Moments(self.base, lambda _: None, 0)
            assert isinstance(await self.apply(moments, patch), AppliedDraft)
        assert moments.count > 20
        after = self.base.with_name("after")
        shutil.copytree(self.base, after, symlinks=True, ignore=shutil.ignore_patterns("drafts"))
        return after


async def made(folder: Path, command: str) -> Bench:  # noqa: F811
    base = folder / "base"
    lay(base)
    desk = SwapDesk.__new__(SwapDesk)
    desk.root, desk.drafts = base / "root", FileDrafts(base / "drafts")
    context, found = await desk.run(command)
    contents = await desk.drafts.archive(context.effect_id)
    await desk.drafts.forget(context.effect_id)
    assert contents is not None
    return Bench(base, found.changes, (contents,))


def loses_nothing(found: Held, wanted: Held) -> bool:
    """Tells whether all content is still there, if not in its place, and whether all is well outside.

    A folder that stays can be entered: otherwise what it holds is as good as lost.
    """
    if not all(mode & 0o500 == 0o500 for mode, _ in found.values() if stat.S_ISDIR(mode)):
        return False
    bodies, needed = (Counter(body for mode, body in each.values() if stat.S_ISREG(mode)) for each in (found, wanted))
    return needed <= bodies and outside(found) == outside(wanted)


def outside(found: Held) -> Held:
    return {name: each for name, each in found.items() if name.startswith(("outside", "void")) and "moved" not in name}


async def try_all(bench: Bench, hinder: Callable[[Moments, pytest.MonkeyPatch], None]) -> Counter[str]:
    """Makes every swap, at every moment or at every seventh. Returns how often each outcome came."""
    after = await bench.keep_after()
    outcomes: Counter[str] = Counter()
    for first, (words, swap) in enumerate(SWAPS.items()):
        undone = bench.swapped(bench.before, swap)
        done = [bench.swapped(after, swap), await bench.applied_later(swap)]
        for number in range(1 + first % STRIDE, MOMENTS_MAX, STRIDE):
            moments = Moments(bench.base, swap, number)
            with pytest.MonkeyPatch.context() as patch:
                hinder(moments, patch)
                outcome = await bench.apply(moments, patch)
            if moments.count < number:
                break
            if not moments.was_swapped:
                continue
            found, is_applied = held(bench.base), isinstance(outcome, AppliedDraft)
            outcomes[type(outcome).__name__] += 1
            if found not in (done if is_applied else [undone]):
                wanted = done[0] if is_applied else undone
                assert wanted is not None
                assert loses_nothing(found, wanted), (words, number, outcome, found, wanted)
                outcomes["aside"] += 1
    return outcomes


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_swap_at_any_moment_leads_nowhere(folder: Path, command: str) -> None:  # noqa: F811
    outcomes = await try_all(await made(folder, command), lambda moments, patch: None)
    assert outcomes["DraftConflict"] > 600 // STRIDE
    assert outcomes["AppliedDraft"] > 200 // STRIDE


@pytest.mark.parametrize("command", [COMMANDS[0], "echo 1 >> d/x; echo 2 >> d/y"])
async def test_content_of_more_folders_than_are_kept_open_is_not_lost(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.setattr(applying, "TOUCHED_MAX", 0)
    outcomes = await try_all(await made(folder, command), lambda moments, patch: None)
    assert outcomes["aside"]


def fail_late(moments: Moments, patch: pytest.MonkeyPatch) -> None:
    """The disk is full when what was replaced is to be kept: everything goes back, and is swapped on the way."""

    def full(*_: object) -> None:
        moments.is_watching = True
        raise OSError(28, "No space left on device")

    moments.is_watching = False
    patch.setattr(applying, "replace_whole", full)


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_swap_at_any_moment_of_the_way_back_leads_nowhere(folder: Path, command: str) -> None:  # noqa: F811
    outcomes = await try_all(await made(folder, command), fail_late)
    assert outcomes.keys() - {"aside"} == {"DraftFailure"}


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_swap_at_any_moment_of_an_undo_leads_nowhere(folder: Path, command: str) -> None:  # noqa: F811
    first = await made(folder, command)
    with pytest.MonkeyPatch.context() as patch:
        applied = await first.apply(Moments(first.base, lambda _: None, 0), patch)
    assert isinstance(applied, AppliedDraft)
    assert applied.undo is not None
    remove_tree(str(first.before))
    back = Bench(first.base, tuple(reverse(change) for change in join(first.changes)), (applied.undo,))
    outcomes = await try_all(back, lambda moments, patch: None)
    assert outcomes["DraftConflict"] > 600 // STRIDE
