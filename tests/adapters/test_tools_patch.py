"""fs.patch: all files or none, never twice, also when killed between two files; and what a person is shown before."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.adapters.files.partial import MARK, fill_partial
from palyra.adapters.tools import fs_patch
from palyra.adapters.tools.fs_patch import PATCH_LENGTH_MAX, PREVIEWED_BYTES_MAX, FsPatch
from palyra.adapters.tools.fs_patch_plan import FILE_BYTES_MAX
from palyra.adapters.tools.preview import PREVIEW_LENGTH_MAX
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass
from palyra.core.tools import CallNature, ToolResult
from palyra.core.trust import Trust
from tests.support.tool_calls import code_of, context, execute
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
THREE = """--- a/one.txt
+++ b/one.txt
@@ -1 +1 @@
-1
+one
--- /dev/null
+++ b/deep/made.txt
@@ -0,0 +1 @@
+made
--- a/three.txt
+++ b/four.txt
@@ -1 +1 @@
-3
+four
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-g
"""
AFTER = {"one.txt": "one\n", "deep/made.txt": "made\n", "four.txt": "four\n"}
STEPS_MAX = 30
# Dies at its n-th step that changes the file system, from the first partial file to the last folder's fsync.
CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from palyra.adapters.tools.fs_patch import FsPatch
from tests.support.tool_calls import context

left = int(sys.argv[2])
def dying(call):
    def wrapped(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return wrapped

for name in ("rename", "unlink", "fsync", "mkdir"):
    setattr(os, name, dying(getattr(os, name)))
asyncio.run(FsPatch().execute({"patch": sys.argv[3]}, context(Path(sys.argv[1]))))
"""


def make_three(root: Path) -> None:
    root.mkdir(exist_ok=True)
    for name, text in (("one.txt", "1\n"), ("three.txt", "3\n"), ("gone.txt", "g\n")):
        (root / name).write_text(text)


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


async def patch(root: Path, text: str) -> ToolResult:
    return await execute(FsPatch(), {"patch": text}, root)


def nature(root: Path, text: str) -> CallNature:
    return FsPatch().nature({"patch": text}, (str(root),))


def change(path: str, old: str, new: str) -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@\n-{old}\n+{new}\n"


async def test_files_are_changed_created_renamed_and_deleted_in_one_call(tmp_path: Path) -> None:
    make_three(tmp_path)
    result = await patch(tmp_path, THREE)
    assert result.output.split("\n") == [
        "one.txt: patched, 1 hunk",
        "deep/made.txt: created, 1 line",
        "four.txt: renamed from three.txt, patched, 1 hunk",
        "gone.txt: deleted",
    ]
    assert files(tmp_path) == AFTER
    assert [file.path for file in result.written] == ["one.txt", "deep/made.txt", "four.txt"]
    again = await patch(tmp_path, THREE)
    assert (again.outcome, files(tmp_path)) == (Outcome.OK, AFTER)
    assert "already" in again.output.split("\n")[0]


async def test_one_hunk_that_does_not_match_refuses_all_and_nothing_is_written(tmp_path: Path) -> None:
    make_three(tmp_path)
    (tmp_path / "gone.txt").write_text("other\n")
    before = files(tmp_path)
    result = await patch(tmp_path, THREE)
    assert result.error is not None
    assert result.error.message == "gone.txt: hunk 1 does not match: line 1 should be 'g' and is 'other'"
    assert (files(tmp_path), (tmp_path / "deep").exists()) == (before, False)
    # It quotes a file, so it is trusted as that file is.
    assert (result.trust, [file.path for file in result.read][-1]) == (Trust.LOCAL, "gone.txt")


def test_killed_at_every_step_each_file_is_whole_and_the_same_effect_again_finishes_it(tmp_path: Path) -> None:
    points = 0
    for point in range(1, STEPS_MAX):
        root = tmp_path / str(point)
        make_three(root)
        arguments = [sys.executable, "-c", CHILD, str(root), str(point), THREE]
        code = subprocess.run(arguments, timeout=60, check=False).returncode
        wholes = {"one.txt": {"1\n", "one\n"}, "three.txt": {"3\n"}, "gone.txt": {"g\n"}}
        wholes |= {"deep/made.txt": {"made\n"}, "four.txt": {"four\n"}}
        for name, text in files(root).items():
            assert name.endswith(".partial") or text in wholes[name]
        asyncio.run(patch(root, THREE))
        assert files(root) == AFTER
        if code == 0:
            break
        assert code == -signal.SIGKILL
        points += 1
    assert 10 <= points < STEPS_MAX - 1


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks on files, remembered here where the file system of the tests has none."""
    kept: dict[tuple[int, str], bytes] = {}

    def get(file: int, name: str) -> bytes:
        if (os.fstat(file).st_ino, name) not in kept:
            raise OSError(61, "No data available")
        return kept[os.fstat(file).st_ino, name]

    def put(file: int, name: str, value: bytes) -> None:
        kept[os.fstat(file).st_ino, name] = value

    (tmp_path / "probe").touch()
    try:
        os.setxattr(tmp_path / "probe", MARK, b"x")
    except OSError:
        monkeypatch.setattr(os, "getxattr", get)
        monkeypatch.setattr(os, "setxattr", put)


@pytest.mark.usefixtures("marks")
async def test_effect_that_was_cut_off_knows_its_own_files_where_lines_are_equal(tmp_path: Path) -> None:
    """The text alone could not tell: the patch fits its own result, in the same place."""
    (tmp_path / "f").write_text("a\n" * 9)
    text = "--- a/f\n+++ b/f\n@@ -4,3 +4,2 @@\n a\n-a\n a\n"
    await patch(tmp_path, text)
    assert "already applied" in (await patch(tmp_path, text)).output
    assert (tmp_path / "f").read_text() == "a\n" * 8
    await FsPatch().execute({"patch": text}, context(tmp_path, effect="f" * 64))
    assert (tmp_path / "f").read_text() == "a\n" * 7


async def test_patch_works_where_files_cannot_be_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "getxattr", refuse)
    monkeypatch.setattr(os, "setxattr", refuse)
    make_three(tmp_path)
    for _ in range(2):
        assert (await patch(tmp_path, THREE)).outcome is Outcome.OK
        assert files(tmp_path) == AFTER


async def test_file_changed_by_somebody_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_three(tmp_path)
    fill = fill_partial

    def fill_late(*arguments: object) -> None:
        fill(*arguments)  # type: ignore[arg-type]
        (tmp_path / "one.txt").write_text("theirs\n")

    monkeypatch.setattr(fs_patch, "fill_partial", fill_late)
    assert code_of(await patch(tmp_path, THREE)) == "changed_meanwhile"
    assert files(tmp_path) == {"one.txt": "theirs\n", "three.txt": "3\n", "gone.txt": "g\n"}


async def test_cancelled_before_the_first_rename_it_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_three(tmp_path)
    before = files(tmp_path)
    fill, is_in, may_go = fill_partial, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def fill_slowly(*arguments: object) -> None:
        fill(*arguments)  # type: ignore[arg-type]
        loop.call_soon_threadsafe(is_in.set)
        asyncio.run_coroutine_threadsafe(may_go.wait(), loop).result(30)

    monkeypatch.setattr(fs_patch, "fill_partial", fill_slowly)
    task = asyncio.create_task(patch(tmp_path, THREE))
    await is_in.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_go.set()
    await until(lambda: not (list(tmp_path.glob(".*.partial")) or os.listdir(tmp_path / "deep")))
    assert files(tmp_path) == before


async def test_disk_that_fails_half_way_says_what_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_three(tmp_path)
    rename, calls = os.rename, iter(range(10))

    def rename_once(*arguments: object, **named: object) -> None:
        if next(calls):
            raise OSError(5, "Input/output error")
        rename(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", rename_once)
    result = await patch(tmp_path, THREE)
    assert result.error is not None
    assert (result.error.code, "replaced before that: one.txt." in result.error.message) == ("io_error", True)
    assert [file.path for file in result.written] == ["one.txt"]
    monkeypatch.undo()
    assert (await patch(tmp_path, THREE)).outcome is Outcome.OK
    assert files(tmp_path) == AFTER


async def test_mode_is_kept_never_setuid_and_a_new_program_is_executable(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("a\n")
    (tmp_path / "run.sh").chmod(0o4751)
    await patch(tmp_path, change("run.sh", "a", "b"))
    assert (tmp_path / "run.sh").stat().st_mode & 0o7777 == 0o751
    text = "diff --git a/new.sh b/new.sh\nnew file mode 100755\n--- /dev/null\n+++ b/new.sh\n@@ -0,0 +1 @@\n+x\n"
    await patch(tmp_path, text)
    assert (tmp_path / "new.sh").stat().st_mode & 0o100


async def test_crlf_and_missing_last_line_feed_are_kept(tmp_path: Path) -> None:
    (tmp_path / "dos.txt").write_bytes(b"a\r\nb\r\n")
    (tmp_path / "open.txt").write_bytes(b"a\nb")
    await patch(tmp_path, change("dos.txt", "b", "c") + change("open.txt", "b", "c"))
    assert ((tmp_path / "dos.txt").read_bytes(), (tmp_path / "open.txt").read_bytes()) == (b"a\r\nc\r\n", b"a\nc")


async def test_links_binary_files_folders_and_what_is_too_large_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("a\n")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "binary").write_bytes(b"a\n\x00")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_text("a\n" + "x" * (FILE_BYTES_MAX - 1))
    (tmp_path / "largest").write_text("a\n" + "x" * (FILE_BYTES_MAX - 2))
    codes = {name: code_of(await patch(tmp_path, change(name, "a", "b"))) for name in sorted(os.listdir(tmp_path))}
    assert codes == {
        "binary": "binary_file",
        "folder": "is_folder",
        "large": "file_too_large",
        "largest": None,
        "link": "symlink_refused",
        "real": None,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (change("../out", "a", "b"), "outside_workspace"),
        (change("/etc/passwd", "root", "b"), "outside_workspace"),
        ("--- /dev/null\n+++ b/../../x\n@@ -0,0 +1 @@\n+x\n", "outside_workspace"),
        ("--- /dev/null\n+++ b/one.txt\n@@ -0,0 +1 @@\n+x\n", "file_exists"),
        ("--- a/one.txt\n+++ b/three.txt\n@@\n-1\n+x\n", "file_exists"),
        ("--- a/gone.txt\n+++ /dev/null\n", "delete_incomplete"),
        ("--- a/missing\n+++ b/missing\n@@\n-a\n+b\n", "not_found"),
        ("--- a/missing\n+++ b/other\n@@\n-a\n+b\n", "not_found"),
        (change("one.txt", "1", "2") + change("./one.txt", "1", "3"), "patch_invalid"),
        (change("one.txt", "1", "2") + "--- /dev/null\n+++ b/one.txt/x\n@@ -0,0 +1 @@\n+x\n", "patch_invalid"),
        ("\ud800", "patch_invalid"),
        ("x" * (PATCH_LENGTH_MAX + 1), "patch_invalid"),
    ],
)
async def test_what_cannot_be_done_is_refused_and_nothing_is_written(tmp_path: Path, text: str, code: str) -> None:
    make_three(tmp_path)
    before = files(tmp_path)
    assert code_of(await patch(tmp_path, text)) == code
    nature(tmp_path, text)
    assert files(tmp_path) == before


pieces = st.sampled_from(
    [
        "--- a/one.txt\n",
        "+++ b/one.txt\n",
        "+++ b/new\n",
        "--- /dev/null\n",
        "+++ /dev/null\n",
        "@@\n",
        "-1\n",
        "+x\n",
        " 1\n",
    ]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=200), st.lists(pieces, max_size=10).map("".join)))
def test_garbage_never_breaks_and_writes_only_what_its_nature_said(tmp_path: Path, text: str) -> None:
    make_three(tmp_path)
    before = files(tmp_path)
    said = nature(tmp_path, text)
    result = asyncio.run(patch(tmp_path, text))
    after = files(tmp_path)
    if result.outcome is not Outcome.OK:
        assert after == before
    assert set(before.items()) ^ set(after.items()) <= {
        item for item in (set(before.items()) | set(after.items())) if item[0] in said.paths
    }
    for name in set(after) - set(before):
        (tmp_path / name).unlink()


def test_nature_names_every_file_what_each_is_left_with_and_shows_the_difference(tmp_path: Path) -> None:
    make_three(tmp_path)
    said = nature(tmp_path, THREE)
    assert (said.effect_class, said.parallel_class) == (EffectClass.IDEMPOTENT, ParallelClass.PATH_SCOPED)
    assert said.paths == ("one.txt", "deep/made.txt", "four.txt", "three.txt", "gone.txt")
    assert said.preview is not None
    assert said.preview.split("\n")[:5] == [
        "one.txt: patched, 1 hunk",
        "@@ -1 +1 @@",
        "-1",
        "+one",
        "deep/made.txt: created, 1 line",
    ]
    asyncio.run(patch(tmp_path, THREE))
    again = nature(tmp_path, THREE)
    assert again.writes == said.writes
    assert [file.path for file in said.writes] == ["one.txt", "deep/made.txt", "four.txt"]


def test_nature_of_a_patch_that_leaves_the_workspace_says_so_and_shows_nothing(tmp_path: Path) -> None:
    said = nature(tmp_path, change("ok", "a", "b") + change("../out", "a", "b"))
    assert (said.is_in_workspace, said.preview, said.writes) == (False, None, ())
    assert said.paths == (str(tmp_path / "ok"), str(tmp_path.parent / "out"))


def test_preview_tells_of_line_ends_and_of_what_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\r\n")
    (tmp_path / "same").write_text("b\n")
    text = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\r\n+a\n" + change("same", "a", "b")
    assert nature(tmp_path, text).preview == "\n".join(
        ["f: patched, 1 hunk", "only line endings change", "same: already applied; nothing was changed"]
    )


def test_preview_is_capped_spells_out_control_characters_and_says_why_a_patch_will_fail(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    long = "".join(f"+\x1b[2J{number}\n" for number in range(2000))
    shown = nature(tmp_path, f"--- a/f\n+++ b/f\n@@\n a\n{long}").preview
    assert shown is not None
    assert len(shown) <= PREVIEW_LENGTH_MAX
    assert "\x1b" not in shown
    assert "hunk 1 does not match" in (nature(tmp_path, change("f", "b", "c")).preview or "")
    assert "names no file" in (nature(tmp_path, "words").preview or "")


def test_nature_of_files_too_large_to_look_at_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n" + "x\n" * (PREVIEWED_BYTES_MAX // 2))
    said = nature(tmp_path, change("f", "a", "b"))
    assert (said.writes, "too large" in (said.preview or "")) == ((), True)


NEW_PROGRAM = "diff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+x\n"
KEPT_PROGRAM = "--- a/deploy\n+++ b/deploy\n@@ -1 +1 @@\n-a\n+b\n"
MOVED_PROGRAM = "--- a/deploy\n+++ b/moved\n@@ -1 +1 @@\n-a\n+b\n"
PLAIN = "--- a/notes\n+++ b/notes\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(
    ("patch", "can_run"), [(NEW_PROGRAM, True), (KEPT_PROGRAM, True), (MOVED_PROGRAM, True), (PLAIN, False)]
)
def test_patch_says_whether_it_leaves_what_can_be_executed(tmp_path: Path, patch: str, can_run: bool) -> None:
    for name in ("deploy", "notes"):
        (tmp_path / name).write_text("a\n")
    (tmp_path / "deploy").chmod(0o755)
    assert FsPatch().nature({"patch": patch}, (str(tmp_path),)).makes_executable is can_run
