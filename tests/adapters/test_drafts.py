"""Drafts on disk: what an overlay leaves, sealing, applying by hashes, and being killed at every step of it."""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest

from palyra.adapters.drafts import apply as applying
from palyra.adapters.drafts import steps, trash, upper
from palyra.adapters.drafts.folders import DraftFolders, sweep_trials
from palyra.adapters.drafts.renames import rename_new
from palyra.adapters.drafts.store import FileDrafts
from palyra.adapters.drafts.trash import TRASH_PREFIX, sweep_trash
from palyra.adapters.drafts.tree import Tree, remove_tree
from palyra.adapters.drafts.upper import CHANGED, leads_inside
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.drafts.changes import ChangeSet, describe_left_out
from palyra.core.events.draft import ChangeKind, ConflictCause
from palyra.core.ids import EffectId
from palyra.ports.drafts import AppliedDraft, DraftConflict, DraftFailure
from palyra.ports.tools import ToolCallContext
from tests.runtimes.shells import found_sandbox, make_context, make_setup
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
CASELESS_FOLDER = os.environ.get("PALYRA_CASELESS_FOLDER")


class Desk:
    """A workspace with a few files, and drafts of it."""

    def __init__(self, folder: Path, drafts_home: Path | None = None) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.drafts = FileDrafts(drafts_home or folder / "drafts")
        (self.root / "d").mkdir()
        for name in ("a", "b", "c", "d/x", "d/y"):
            (self.root / name).write_text(f"old {name}\n")

    async def run(self, command: str) -> tuple[ToolCallContext, ChangeSet]:
        context = make_context(self.root)
        tool = ShellRun(found_sandbox(), make_setup(drafts=self.drafts))
        result = await tool.execute({"command": command}, context)
        return context, result.draft.change_set if result.draft is not None else ChangeSet()

    async def apply(self, effect_id: EffectId, change_set: ChangeSet) -> AppliedDraft | DraftConflict | DraftFailure:
        return await self.drafts.apply(effect_id, change_set.changes)

    def held(self) -> dict[str, str]:
        found = {}
        for path in sorted(self.root.rglob("*")):
            if path.is_symlink():
                found[str(path.relative_to(self.root))] = f"-> {os.readlink(path)}"
            elif path.is_file():
                mode = path.stat().st_mode & 0o777
                path.chmod(mode | 0o400)  # Root reads everything; an ordinary user does not.
                found[str(path.relative_to(self.root))] = f"{mode:o} {path.read_text()}"
                path.chmod(mode)
            else:
                found[str(path.relative_to(self.root)) + "/"] = ""
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


MANY = "echo new > a; rm b; chmod 755 c; rm -r d; mkdir d; echo z > d/z; mkdir -p e/f; echo g > e/f/g; ln -s a link"


async def test_an_overlay_is_read_as_the_changes_it_stands_for(desk: Desk) -> None:
    _, found = await desk.run(MANY)
    assert {(change.kind, change.path) for change in found.changes} == {
        (ChangeKind.MODIFIED, "a"),
        (ChangeKind.DELETED, "b"),
        (ChangeKind.MODE, "c"),
        (ChangeKind.DELETED, "d/x"),
        (ChangeKind.DELETED, "d/y"),
        (ChangeKind.CREATED, "d/z"),
        (ChangeKind.CREATED, "e/"),
        (ChangeKind.CREATED, "e/f/"),
        (ChangeKind.CREATED, "e/f/g"),
        (ChangeKind.LINKED, "link"),
    }


def copied(root: Path, other: Path, command: str) -> Path:
    """Copies the folder and runs the command on the copy, without any sandbox. The commands are those of this file."""
    shutil.copytree(root, other, symlinks=True)
    subprocess.run(["bash", "-c", f"umask 022; {command}"], cwd=other, check=True)
    return other


@pytest.mark.parametrize(
    "command",
    [
        MANY,
        "mv d e && mv e/x x",
        "rm -r d && echo file > d",
        "rm a && mkdir a && echo in > a/in",
        "mv a t && mv b a && mv t b",
        "ln -sf b a; chmod 000 b; mkdir -m 700 p",
        "umask 077; mkdir -p q/r; echo 1 > q/r/s",
        "cp -a d e; rm -r d; mv e d; echo more >> d/x",
    ],
)
async def test_applying_leaves_what_the_command_saw(desk: Desk, tmp_path: Path, command: str) -> None:
    """The same command on a copy of the folder, without any draft, must leave the same."""
    other = copied(desk.root, tmp_path / "direct", command)
    context, found = await desk.run(f"umask 022; {command}")
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    direct = desk.held()
    desk.root = other
    assert direct == desk.held()


async def test_what_is_never_applied_is_named(desk: Desk) -> None:
    _, found = await desk.run(
        "ln -s /etc/passwd out; ln -s ../../x up; mkfifo pipe; ln -s d/../../.. sly; ln -s d fine"
    )
    assert [change.path for change in found.changes] == ["fine"]
    assert sorted(each.path for each in found.left_out) == ["out", "pipe", "sly", "up"]


ALIKE = "echo 1 > New; echo 2 > NEW; echo 3 > b; mkdir Sub sub; echo 4 > Sub/x; echo 5 > sub/y"


async def test_names_that_differ_in_case_are_two_files_where_the_disk_says_so(desk: Desk) -> None:
    context, found = await desk.run(ALIKE)
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert {"New", "NEW", "Sub/x", "sub/y"} <= desk.held().keys()
    assert not list(desk.root.rglob(".palyra*"))


@pytest.mark.parametrize("command", [ALIKE, "echo 1 > Caf$'\\u00e9'; echo 2 > cafe$'\\u0301'"])
async def test_names_that_are_one_file_on_this_disk_are_refused_whole(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A disk that ignores case is rare on Linux, so its answer is simulated. CASELESS_FOLDER names a real one."""
    if CASELESS_FOLDER is not None:
        desk = Desk(Path(mkdtemp(dir=CASELESS_FOLDER)), desk.drafts.home)
    else:
        monkeypatch.setattr(Tree, "ignores_case", lambda *_: True)
    before = desk.held()
    context, found = await desk.run(command)
    failure = await desk.apply(context.effect_id, found)
    assert isinstance(failure, DraftFailure)
    assert "are one name on this disk" in failure.message
    assert desk.held() == before


@pytest.mark.parametrize(
    ("path", "target", "is_inside"),
    [
        ("l", "a", True),
        ("l", "./a/b", True),
        ("x/l", "../a", True),
        ("x/y/l", "../../a", True),
        ("l", "/w/a", True),
        ("l", "..", False),
        ("x/l", "../../a", False),
        ("l", "a/../b", False),
        ("l", "/w/../etc", False),
        ("l", "/wx", False),
        ("l", "/etc/passwd", False),
    ],
)
def test_a_link_is_inside_by_its_text_alone(path: str, target: str, is_inside: bool) -> None:
    assert leads_inside(path, target, "/w") is is_inside


async def test_pipes_and_sockets_of_the_workspace_can_be_removed(desk: Desk) -> None:
    os.mkfifo(desk.root / "pipe")
    os.mkfifo(desk.root / "d/pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(desk.root / "s"))
    context, found = await desk.run("rm pipe s; rm d/pipe; echo file > d/pipe")
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert {"pipe", "s"}.isdisjoint(os.listdir(desk.root))
    assert (desk.root / "d/pipe").read_text() == "file\n"


async def test_a_folder_stays_if_something_in_it_cannot_be_named(desk: Desk) -> None:
    (desk.root / "d/two\nlines").write_text("x")
    (desk.root / os.fsdecode(b"d/bad\xff")).write_text("x")
    context, found = await desk.run("rm -r d; echo ok > a")
    assert [change.path for change in found.changes] == ["a", "d/x", "d/y"]
    assert found.left_out_count == 2
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert len(os.listdir(desk.root / "d")) == 2
    told = describe_left_out(found.left_out, found.left_out_count)
    assert "not applied: d/two\\nlines (its name holds a line end" in told
    assert len(told.splitlines()) == 2


DEEP = "import os\nfor _ in range(3000):\n    os.mkdir('n')\n    os.chdir('n')\nopen('f', 'w').close()"


async def test_folders_deeper_than_any_path_are_left_out_and_removed(desk: Desk) -> None:
    context, found = await desk.run(f'echo ok > a; mkdir deep; cd deep; python3 -c "{DEEP}"')
    assert found.left_out_count == 1
    assert "too deep" in found.left_out[0].reason
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert (desk.root / "a").read_text() == "ok\n"
    await desk.drafts.forget(context.effect_id)
    assert list(desk.drafts.home.iterdir()) == []


async def test_a_folder_deeper_than_any_path_stays_if_a_command_deletes_it(desk: Desk) -> None:
    (desk.root / "deep").mkdir()
    subprocess.run(["python3", "-c", DEEP], cwd=desk.root / "deep", check=True)  # noqa: ASYNC221 nobody else runs
    context, found = await desk.run("rm -rf deep; echo ok > a")
    assert [change.path for change in found.changes] == ["a"]
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    remove_tree(str(desk.root / "deep"))
    assert not (desk.root / "deep").exists()


async def test_a_touched_file_is_no_change(desk: Desk) -> None:
    _, found = await desk.run("touch a; cat b >/dev/null; cp a t; mv t a")
    assert found.changes == ()


async def test_a_persons_change_is_a_conflict_and_nothing_is_applied(desk: Desk) -> None:
    context, found = await desk.run(MANY)
    (desk.root / "a").write_text("a person's\n")
    before = desk.held()
    conflict = await desk.apply(context.effect_id, found)
    assert conflict == DraftConflict(path="a", cause=ConflictCause.PERSON)
    assert desk.held() == before


async def test_a_change_of_another_draft_is_told_apart(desk: Desk) -> None:
    first, one = await desk.run("echo 1 >> a")
    second, two = await desk.run("echo 2 >> a")
    assert isinstance(await desk.apply(first.effect_id, one), AppliedDraft)
    assert await desk.apply(second.effect_id, two) == DraftConflict(path="a", cause=ConflictCause.DRAFT)


async def test_a_file_that_a_person_put_into_a_deleted_folder_saves_the_folder(desk: Desk) -> None:
    context, found = await desk.run("rm -r d")
    (desk.root / "d/theirs").write_text("x")
    before = desk.held()
    assert isinstance(await desk.apply(context.effect_id, found), DraftConflict)
    assert desk.held() == before


class Killed(BaseException):
    """Stands for the end of the process: no cleaning up happens."""


def test_a_removal_that_was_killed_at_any_step_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, is_killed = 0, True
    while is_killed:
        is_killed, number = False, number + 1
        top = tmp_path / f"top{number}"
        for place in ("a/b/c/d", "a/b2/c", "e/f/g"):
            (top / place).mkdir(parents=True)
            (top / place / "file").write_text("x")
        seen = 0

        def counted(name: str) -> Callable[..., None]:
            real = getattr(os, name)

            def step(*arguments: object, **more: object) -> None:
                nonlocal seen
                seen += 1
                if seen == number:  # noqa: B023 - called within the round
                    raise Killed
                real(*arguments, **more)

            return step

        with monkeypatch.context() as patch:
            for name in ("rename", "rmdir", "unlink"):
                patch.setattr(os, name, counted(name))
            try:
                remove_tree(str(top))
            except Killed:
                is_killed = True
        remove_tree(str(top))
        assert not top.exists()
    assert number > 15


STEPS = [
    (applying, "rename_new"),
    (applying, "exchange"),
    (applying, "stage_change"),
    (applying, "step_folder"),
    (applying, "set_mode"),
    (applying, "change_mode"),
    (applying, "replace_whole"),
    (applying, "remove_tree"),
    (applying.Applier, "_sync"),
    (applying.Applier, "_let_go"),
]


def killing(place: object, name: str, number: int) -> tuple[Callable[..., object], list[int]]:
    """Returns a stand-in that does the step, and kills before or after it: odd numbers after, even ones before."""
    real, seen = getattr(place, name), [0]

    def step(*arguments: object, **more: object) -> object:
        seen[0] += 1
        if seen[0] * 2 == number:
            raise Killed
        done = real(*arguments, **more)
        if seen[0] * 2 + 1 == number:
            raise Killed
        return done

    return step, seen


@pytest.mark.parametrize(("place", "name"), STEPS, ids=lambda each: each if isinstance(each, str) else "")
async def test_killed_at_any_step_it_goes_on_and_ends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    whole = Desk(tmp_path)
    context, found = await whole.run(MANY)
    assert isinstance(await whole.apply(context.effect_id, found), AppliedDraft)
    wanted = whole.held()
    kills = 0
    for number in range(2, 24):
        (tmp_path / str(number)).mkdir()
        desk = Desk(tmp_path / str(number))
        context, found = await desk.run(MANY)
        step, seen = killing(place, name, number)
        with monkeypatch.context() as patch:
            patch.setattr(place, name, step)
            patch.setattr(applying.Applier, "_go_back", lambda self: None)
            try:
                await desk.apply(context.effect_id, found)
            except Killed:
                kills += 1
            else:
                assert seen[0] * 2 + 1 < number
                break
        again = FileDrafts(desk.drafts.home)
        applied = await again.apply(context.effect_id, found.changes)
        assert isinstance(applied, AppliedDraft), (name, number, applied)
        assert desk.held() == wanted, (name, number)
        assert applied.undo is not None
    assert kills


async def half_applied(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ChangeSet]:
    """Returns the folder of a draft that a kill left half applied, and its changes."""
    context, found = await desk.run(MANY)
    step, _ = killing(applying, "rename_new", 12)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "rename_new", step)
        patch.setattr(applying.Applier, "_go_back", lambda self: None)
        with pytest.raises(Killed):
            await desk.apply(context.effect_id, found)
    return desk.drafts.home / context.effect_id, found


async def test_damage_that_shows_after_a_kill_takes_everything_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = desk.held()
    folder, found = await half_applied(desk, monkeypatch)
    assert desk.held() not in (before, {})
    assert not (desk.root / "e/f/g").exists()
    (folder / "0/upper/e/f/g").write_text("damaged\n")
    failure = await FileDrafts(desk.drafts.home).apply(EffectId(folder.name), found.changes)
    assert isinstance(failure, DraftFailure)
    assert "is not what was judged" in failure.message
    assert desk.held() == before


def cut_off(sealed: Path) -> None:
    sealed.write_bytes(sealed.read_bytes()[:100])


def rename_a_path(sealed: Path) -> None:
    sealed.write_bytes(sealed.read_bytes().replace(b'"e/f/g"', b'"e/f/h"'))


@pytest.mark.parametrize("damage", [cut_off, rename_a_path, Path.unlink])
async def test_a_damaged_list_after_a_kill_takes_everything_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    before = desk.held()
    draft, found = await half_applied(desk, monkeypatch)
    assert desk.held() != before
    damage(draft / "set.json")
    failure = await FileDrafts(desk.drafts.home).apply(EffectId(draft.name), found.changes)
    assert isinstance(failure, DraftFailure)
    assert failure.message.endswith("nothing of it is applied")
    assert desk.held() == before


async def test_what_cannot_be_taken_back_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    draft, found = await half_applied(desk, monkeypatch)
    gone = {number for number, change in enumerate(found.changes) if change.path in ("b", "d/x")}
    for number in gone:
        (draft / f"stage0/old-{number}").unlink()
    cut_off(draft / "set.json")
    failure = await FileDrafts(desk.drafts.home).apply(EffectId(draft.name), found.changes)
    assert isinstance(failure, DraftFailure)
    assert failure.message.endswith(
        f"but these could not be taken back: deleted {desk.root}/b, deleted {desk.root}/d/x"
    )
    assert (desk.root / "a").read_text() == "old a\n"


async def test_what_came_out_and_is_nowhere_else_is_never_removed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    draft, _ = await half_applied(desk, monkeypatch)
    cut_off(draft / "set.json")
    out = {each.read_bytes() for each in (draft / "stage0").glob("old-*") if each.is_file()}
    assert out
    await FileDrafts(desk.drafts.home).forget(EffectId(draft.name))
    (kept,) = desk.drafts.home.glob(f"kept-{draft.name}-*")
    assert {each.read_bytes() for each in (kept / "stage0").glob("old-*") if each.is_file()} == out
    assert await desk.drafts.leftovers() == ()


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("is_conflict", [False, True])
async def test_what_cannot_go_back_is_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, count: int, is_conflict: bool
) -> None:
    """A person makes the workspace read-only while a draft of an ordinary user is applied."""
    context, found = await desk.run(MANY)
    before = sorted(path.read_text() for path in desk.root.rglob("*") if path.is_file())
    left = [count]

    def failing(real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                if is_conflict and left[0] == -1:
                    raise FileExistsError
                raise PermissionError(13, "Permission denied")
            return real(*arguments)

        return step

    with monkeypatch.context() as patch:
        for place in (applying, steps):
            for name in ("rename_new", "exchange"):
                patch.setattr(place, name, failing(getattr(place, name)))
        failure = await desk.apply(context.effect_id, found)
    assert isinstance(failure, DraftFailure)
    assert "could not be taken back" in failure.message
    await desk.drafts.forget(context.effect_id)
    kept = [*desk.root.rglob("*"), *desk.drafts.home.glob("kept-*/stage0/*")]
    bodies = [path.read_text() for path in kept if path.is_file() and not path.is_symlink()]
    assert [body for body in before if body not in bodies] == []
    assert "is kept, in drafts/kept-" in failure.message


async def test_what_came_out_stays_while_a_root_cannot_be_opened(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill another root of the draft is not mounted yet."""
    other = desk.root.with_name("sooner")
    other.mkdir()
    (other / "f").write_text("other\n")
    context = make_context(desk.root, other)
    tool = ShellRun(found_sandbox(), make_setup(drafts=desk.drafts))
    result = await tool.execute({"command": f"{MANY}; echo 1 > {other}/f"}, context)
    assert result.draft is not None
    step, _ = killing(applying, "rename_new", 9)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "rename_new", step)
        patch.setattr(applying.Applier, "_go_back", lambda self: None)
        with pytest.raises(Killed):
            await desk.apply(context.effect_id, result.draft.change_set)
    out = {each.name for each in desk.drafts.home.glob("*/stage*/old-*")}
    assert out
    other.rename(other.with_name("away"))
    failure = await FileDrafts(desk.drafts.home).apply(context.effect_id, result.draft.change_set.changes)
    assert isinstance(failure, DraftFailure)
    await FileDrafts(desk.drafts.home).forget(context.effect_id)
    assert {each.name for each in desk.drafts.home.glob("kept-*/stage*/old-*")} == out


async def test_what_was_applied_before_a_kill_is_never_taken_back_by_halves(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stage was being removed. A person changes a file before the daemon starts again."""
    context, found = await desk.run(MANY)
    step, _ = killing(applying, "remove_tree", 2)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "remove_tree", step)
        with pytest.raises(Killed):
            await desk.apply(context.effect_id, found)
    for old in (desk.drafts.home / context.effect_id).glob("stage0/old-*"):
        if old.is_file():
            old.unlink()
    (desk.root / "a").write_text("a person's\n")
    before = desk.held()
    applied = await FileDrafts(desk.drafts.home).apply(context.effect_id, found.changes)
    assert isinstance(applied, AppliedDraft)
    assert applied.undo is not None
    assert desk.held() == before


async def test_a_refusal_half_way_takes_everything_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    context, found = await desk.run(MANY)
    before = desk.held()
    count = [0]

    def full(source: tuple[int, str], target: tuple[int, str]) -> None:
        count[0] += 1
        if count[0] == 5:
            raise OSError(28, "No space left on device")
        rename_new(source, target)

    monkeypatch.setattr(applying, "rename_new", full)
    failure = await desk.apply(context.effect_id, found)
    monkeypatch.undo()
    assert isinstance(failure, DraftFailure)
    assert "No space left" in failure.message
    assert desk.held() == before


async def test_an_editor_that_saves_at_every_moment_loses_nothing(desk: Desk) -> None:
    """Whatever the outcome, the file holds the person's last save, or the draft was applied before it."""
    for round_number in range(8):
        context, found = await desk.run(f"echo agent {round_number} > a; echo x{round_number} > b")
        task = asyncio.create_task(desk.apply(context.effect_id, found))
        await asyncio.sleep(0.0005 * round_number)
        (desk.root / ".a.swp").write_text(f"person {round_number}\n")
        os.replace(desk.root / ".a.swp", desk.root / "a")
        await task
        assert (desk.root / "a").read_text() == f"person {round_number}\n"
        await desk.drafts.forget(context.effect_id)


async def test_the_cost_depends_on_the_changes_and_not_on_the_size(desk: Desk) -> None:
    for number in range(3000):
        (desk.root / f"d/{number}").touch()
    context, found = await desk.run("echo 1 > one")
    assert [change.path for change in found.changes] == ["one"]
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)


async def test_a_draft_that_cannot_be_sealed_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DraftFolders, "write_set", full)
    tool = ShellRun(found_sandbox(), make_setup(drafts=desk.drafts))
    result = await tool.execute({"command": "echo x > a"}, make_context(desk.root))
    assert result.error is not None
    assert result.error.message.startswith("what the command changed could not be kept (No space left")
    assert (desk.root / "a").read_text() == "old a\n"
    await desk.drafts.trash.close()
    assert list(desk.drafts.home.iterdir()) == []


async def test_nothing_is_left_of_a_forgotten_draft(desk: Desk) -> None:
    context, _ = await desk.run(f"{MANY}; mkdir -m 0 locked; mkdir -p l/m; chmod 0 l")
    await desk.drafts.forget(context.effect_id)
    assert [path.name for path in desk.drafts.home.iterdir()] == []


async def test_a_result_does_not_wait_for_the_removal_of_its_draft(desk: Desk) -> None:
    context, found = await desk.run("true")
    assert not found.changes
    (aside,) = desk.drafts.home.iterdir()
    assert aside.name.startswith(TRASH_PREFIX)
    assert await desk.drafts.leftovers() == ()
    await desk.drafts.begin(context.effect_id, (str(desk.root),), is_alone=False)
    await desk.drafts.trash.close()
    assert [path.name for path in desk.drafts.home.iterdir()] == [context.effect_id], "the new one of it stays"


async def test_a_dropped_draft_lets_others_have_its_root_at_once(desk: Desk) -> None:
    first, second = make_context(desk.root), make_context(desk.root)
    await desk.drafts.begin(first.effect_id, (str(desk.root),), is_alone=True)
    await desk.drafts.drop(first.effect_id)
    async with asyncio.timeout(WAIT_S):
        await desk.drafts.begin(second.effect_id, (str(desk.root),), is_alone=True)


async def test_a_root_inside_another_is_a_part_of_it(desk: Desk) -> None:
    """Two agents work in a folder and in one that lies in it. Whoever comes later meets a draft, and no person."""
    inner = make_context(desk.root / "d")
    tool = ShellRun(found_sandbox(), make_setup(drafts=desk.drafts))
    second = await tool.execute({"command": "echo inner >> x; echo inner >> y"}, inner)
    assert second.draft is not None
    context, found = await desk.run("echo outer >> d/x; echo outer >> d/y")
    outcomes = await asyncio.gather(
        desk.apply(context.effect_id, found),
        desk.drafts.apply(inner.effect_id, second.draft.change_set.changes),
    )
    (conflict,) = (each for each in outcomes if isinstance(each, DraftConflict))
    assert conflict.cause is ConflictCause.DRAFT
    await desk.drafts.begin(context.effect_id, (str(desk.root),), is_alone=True)
    waiting = asyncio.create_task(desk.drafts.begin(inner.effect_id, (str(desk.root / "d"),), is_alone=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    await desk.drafts.drop(context.effect_id)
    async with asyncio.timeout(WAIT_S):
        await waiting


async def test_a_step_that_is_due_only_after_a_kill_is_taken_back_too(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file was as the draft leaves it, so it was no step. A person removes it before the daemon starts again."""
    before = desk.held()
    context, found = await desk.run("echo x > new; echo agent > a; rm b")
    (desk.root / "new").write_text("x\n")
    step, _ = killing(applying, "rename_new", 3)
    with monkeypatch.context() as patch:
        patch.setattr(applying, "rename_new", step)
        patch.setattr(applying.Applier, "_go_back", lambda self: None)
        with pytest.raises(Killed):
            await desk.apply(context.effect_id, found)
    (desk.root / "new").unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(applying, "replace_whole", full)
    failure = await FileDrafts(desk.drafts.home).apply(context.effect_id, found.changes)
    assert isinstance(failure, DraftFailure)
    assert failure.message.endswith("nothing of it was applied")
    assert desk.held() == before


async def test_what_was_dropped_is_removed_without_a_close_and_after_a_kill(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.run("true")
    assert sweep_trash(desk.drafts.home) == 1
    assert list(desk.drafts.home.iterdir()) == []
    monkeypatch.setattr(trash, "REMOVE_AFTER_S", 0.01)
    await desk.drafts.trash.close()
    for _ in range(2):
        await desk.run("true")
        await until(lambda: list(desk.drafts.home.iterdir()) == [])


async def test_a_trial_that_a_kill_left_is_swept_and_a_draft_never_by_its_age(desk: Desk) -> None:
    context, _ = await desk.run(MANY)
    (desk.drafts.home / "try-1").mkdir()
    assert sweep_trials(desk.drafts.home) == 0
    for name in ("try-1", context.effect_id):
        os.utime(desk.drafts.home / name, (1, 1))
    assert sweep_trials(desk.drafts.home) == 1
    assert await desk.drafts.leftovers() == (context.effect_id,)


async def test_an_editor_that_writes_into_an_open_file_loses_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor opened the file before it was exchanged, and writes to it just afterwards."""
    context, found = await desk.run("echo agent > a; echo x > b")
    with (desk.root / "a").open("a") as editor:
        real = applying.Applier._sync

        def write_late(applier: applying.Applier) -> None:
            editor.write("a person's line\n")
            editor.flush()
            real(applier)

        monkeypatch.setattr(applying.Applier, "_sync", write_late)
        assert isinstance(await desk.apply(context.effect_id, found), DraftConflict)
    assert (desk.root / "a").read_text() == "old a\na person's line\n"
    assert (desk.root / "b").read_text() == "old b\n"


async def test_a_conflict_takes_nothing_away_that_somebody_else_left_alike(desk: Desk) -> None:
    """What another draft or a person made meanwhile is as this draft would leave it, and is theirs."""
    context, found = await desk.run("echo x > new; mkdir e; chmod 600 b; rm c; ln -s a link; echo agent >> a")
    (desk.root / "new").write_text("x\n")
    (desk.root / "e").mkdir()
    (desk.root / "b").chmod(0o600)
    (desk.root / "c").unlink()
    (desk.root / "link").symlink_to("a")
    (desk.root / "a").write_text("a person's\n")
    before = desk.held()
    assert isinstance(await desk.apply(context.effect_id, found), DraftConflict)
    assert desk.held() == before


async def test_what_was_applied_just_before_is_no_conflict_of_a_draft_that_runs_alone(tmp_path: Path) -> None:
    """The clock of a file system goes in ticks of some milliseconds, and many files change within one."""
    drafts, log = FileDrafts(tmp_path / "drafts"), tmp_path / "root" / "log"
    log.parent.mkdir()
    for number in range(10):
        log.write_text(f"{number}\n")
        effect_id = EffectId(f"{number:064}")
        (made,) = await drafts.begin(effect_id, (str(log.parent),), is_alone=True)
        Path(made.upper, "log").write_text("new\n")
        (change,) = (await drafts.seal(effect_id)).changes
        assert change.before_sha256 != CHANGED
        await drafts.forget(effect_id)


async def test_a_draft_that_is_cancelled_before_it_begins_has_no_root_alone(tmp_path: Path) -> None:
    drafts, roots = FileDrafts(tmp_path / "drafts"), (str(tmp_path),)
    beginning = asyncio.create_task(drafts.begin(EffectId("1" * 64), roots, is_alone=True))
    await asyncio.sleep(0)
    beginning.cancel()
    await asyncio.wait([beginning])
    assert beginning.cancelled()
    async with asyncio.timeout(WAIT_S):
        await drafts.begin(EffectId("2" * 64), roots, is_alone=True)


async def test_a_file_that_is_replaced_while_its_old_content_is_read_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its new content counts as what the command saw, and is lost when the draft is applied."""
    drafts, log = FileDrafts(tmp_path / "drafts"), tmp_path / "root" / "log"
    log.parent.mkdir()
    log.write_text("seen\n")
    (made,) = await drafts.begin(EffectId("1" * 64), (str(log.parent),), is_alone=True)
    Path(made.upper, "log").write_text("seen\nmine\n")
    read = upper._hash

    def replace_then_read(folder: int, name: str, opening_mode: int | None = None) -> str:
        if opening_mode is None:  # It is the old content.
            (tmp_path / "theirs").write_text("seen\ntheirs\n")
            os.rename(tmp_path / "theirs", log)
        return read(folder, name, opening_mode)

    monkeypatch.setattr(upper, "_hash", replace_then_read)
    (change,) = (await drafts.seal(EffectId("1" * 64))).changes
    assert change.before_sha256 == CHANGED
