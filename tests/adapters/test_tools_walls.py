"""The walls of the workspace: no spelling, link or race leads a tool outside."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.adapters.files import workspace
from palyra.adapters.files.workspace import DEPTH_MAX, locate
from palyra.adapters.tools.fs_list import FsList
from palyra.adapters.tools.fs_patch import FsPatch
from palyra.adapters.tools.fs_read import FsRead
from palyra.adapters.tools.fs_search import FsSearch
from palyra.adapters.tools.fs_write import FsWrite
from palyra.core.errors import PalyraError
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome
from tests.support.tool_calls import code_of, execute

pytestmark = pytest.mark.anyio
SECRET = "outside"
RACE_ROUNDS = 300
CLOSE_RACE = {None, "not_found", "symlink_refused"}  # The race is a race only if every outcome was met.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace beside a folder that nothing may reach."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text(SECRET)
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


async def codes(root: Path, path: str) -> tuple[str | None, str | None]:
    """What reading and writing come to."""
    read = await execute(FsRead(), {"path": path}, root)
    written = await execute(FsWrite(), {"path": path, "content": "evil"}, root)
    return code_of(read), code_of(written)


@pytest.mark.parametrize(
    "path",
    ["../secret/key", "a/../../secret/key", "/etc/passwd", "..", "/", "../ws2/x", "./../secret/key", "//etc/passwd"],
)
async def test_path_that_leaves_is_refused_and_reported_as_outside(root: Path, path: str) -> None:
    assert await codes(root, path) == ("outside_workspace", "outside_workspace")
    for tool in (FsRead(), FsWrite()):
        nature = tool.nature({"path": path, "content": "x"}, (str(root),))
        assert (nature.is_in_workspace, nature.preview) == (False, None)


async def test_path_that_comes_back_and_absolute_path_below_a_root_are_the_same_file(root: Path) -> None:
    (root / "a.txt").write_text("in")
    for path in ("a.txt", "./x/../a.txt", "../ws/a.txt", str(root / "a.txt"), f"/{root}/./a.txt"):
        assert (await execute(FsRead(), {"path": path}, root)).output == "in"
        assert FsRead().nature({"path": path}, (str(root),)).paths == ("a.txt",)


async def test_second_root_is_reached_by_its_absolute_path(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("second")
    assert (await execute(FsRead(), {"path": str(other / "b.txt")}, root, other)).output == "second"
    assert FsRead().nature({"path": str(other / "b.txt")}, (str(root), str(other))).paths == (str(other / "b.txt"),)


async def test_link_to_a_file_or_through_a_folder_is_refused(root: Path, tmp_path: Path) -> None:
    (root / "file").symlink_to(tmp_path / "secret" / "key")
    (root / "folder").symlink_to(tmp_path / "secret")
    (root / "dangling").symlink_to(tmp_path / "secret" / "new")
    (root / "loop").symlink_to("loop")
    for path in ("file", "folder/key", "dangling", "loop", "loop/x", "folder/made/new"):
        assert await codes(root, path) == ("symlink_refused", "symlink_refused")
    assert sorted(os.listdir(tmp_path / "secret")) == ["key"]
    assert (tmp_path / "secret" / "key").read_text() == SECRET


async def test_link_that_stays_inside_is_refused_too(root: Path) -> None:
    (root / "real").write_text("in")
    (root / "link").symlink_to("real")
    assert await codes(root, "link") == ("symlink_refused", "symlink_refused")
    assert (root / "real").read_text() == "in"


async def test_root_within_a_root_is_entered_from_the_outer_one(root: Path, tmp_path: Path) -> None:
    """Whoever may write the outer root could swap the inner one for a link."""
    (root / "inner").symlink_to(tmp_path / "secret")
    result = await execute(FsRead(), {"path": "key"}, root / "inner", root)
    assert code_of(result) == "symlink_refused"


async def test_root_that_is_a_link_is_the_operators_choice(root: Path, tmp_path: Path) -> None:
    (root / "a").write_text("in")
    (tmp_path / "alias").symlink_to(root)
    assert (await execute(FsRead(), {"path": "a"}, tmp_path / "alias")).output == "in"


@pytest.mark.parametrize("path", ["a\x00b", "", "\ud800", "x" * 5000, 7, None, ["a"], "y" * 300])
async def test_what_is_no_path_is_refused(root: Path, path: object) -> None:
    for tool in (FsRead(), FsWrite()):
        result = await execute(tool, {"path": path, "content": "x"}, root)
        assert code_of(result) == "path_invalid"


async def test_path_deeper_than_the_limit_is_refused(root: Path) -> None:
    assert await codes(root, "/".join("d" * (DEPTH_MAX + 1))) == ("path_too_deep", "path_too_deep")
    assert list(root.iterdir()) == []


async def test_folder_pipe_and_socket_are_not_written(root: Path) -> None:
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    assert [(await codes(root, path))[1] for path in ("folder", "pipe", ".")] == [
        "is_folder",
        "not_a_file",
        "is_folder",
    ]


parts = st.sampled_from(["..", ".", "a", "ws", "secret", "", "/", "ws2", "...", " ", "~"])


@given(st.lists(parts, min_size=1, max_size=8).map("/".join))
def test_located_place_is_always_below_its_root(path: str) -> None:
    try:
        place = locate(path, ("/srv/ws",))
    except PalyraError:
        return
    assert place.root == "/srv/ws"
    assert ".." not in place.parts
    assert place.shown == "/".join(place.parts)


async def test_folder_swapped_for_a_link_in_a_race_never_leads_out(root: Path, tmp_path: Path) -> None:
    """A real folder and a link to the secret one change places all the time; no round may read or write outside."""
    (root / "real").mkdir()
    (root / "real" / "key").write_text("inside")
    (root / "evil").symlink_to(tmp_path / "secret")
    done = threading.Event()

    def step(source: str, target: str) -> None:
        try:
            os.rename(root / source, root / target)
        except OSError:
            # A write came to the empty place first and made a folder there; away with it.
            shutil.rmtree(root / "door", ignore_errors=True)

    def swap() -> None:
        while not done.is_set():
            step("real", "door")
            step("door", "real")
            step("evil", "door")
            step("door", "evil")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[str | None] = set()
    try:
        for round_number in range(10 * RACE_ROUNDS):
            if round_number >= RACE_ROUNDS and seen >= CLOSE_RACE:
                break
            result = await execute(FsRead(), {"path": "door/key"}, root)
            assert SECRET not in result.output
            seen.add(code_of(result))
            if round_number % 4 == 0:
                written = await execute(FsWrite(), {"path": "door/new", "content": "evil"}, root)
                seen.add(code_of(written))
    finally:
        done.set()
        thread.join()
    assert os.listdir(tmp_path / "secret") == ["key"]
    assert (tmp_path / "secret" / "key").read_text() == SECRET
    assert seen >= CLOSE_RACE
    assert seen <= {None, "not_found", "symlink_refused", "io_error", "is_folder", "not_a_folder"}


async def test_link_put_in_the_files_place_is_replaced_and_never_followed(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "secret" / "key"
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (root / "next").symlink_to(target)
            os.rename(root / "next", root / "file")
            (root / "file").unlink(missing_ok=True)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(RACE_ROUNDS // 4):
            result = await execute(FsWrite(), {"path": "file", "content": "evil"}, root)
            assert result.outcome is Outcome.OK or code_of(result) == "symlink_refused"
            assert SECRET not in (await execute(FsRead(), {"path": "file"}, root)).output
    finally:
        done.set()
        thread.join()
    assert target.read_text() == SECRET


async def test_file_swapped_for_a_link_after_the_look_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "file").write_text("inside")
    look = workspace.look

    def look_then_lose(folder: int, place: workspace.WorkspacePath) -> os.stat_result:
        found = look(folder, place)
        (root / "file").unlink()
        (root / "file").symlink_to(tmp_path / "secret" / "key")
        return found

    monkeypatch.setattr(workspace, "look", look_then_lose)
    result = await execute(FsRead(), {"path": "file"}, root)
    assert (result.output, code_of(result)) == ("", "symlink_refused")


@contextmanager
def swapping(root: Path, tmp_path: Path) -> Iterator[None]:
    """Beside `root/real`, whose key is inside, `root/door` is by turns that folder, a link to the secret one, and nothing."""
    (root / "real").mkdir()
    (root / "real" / "key").write_text("inside\n")
    (root / "evil").symlink_to(tmp_path / "secret")
    done = threading.Event()

    def step(source: str, target: str) -> None:
        try:
            os.rename(root / source, root / target)
        except OSError:
            shutil.rmtree(root / "door", ignore_errors=True)

    def swap() -> None:
        while not done.is_set():
            for name in ("real", "evil"):
                step(name, "door")
                step("door", name)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert os.listdir(tmp_path / "secret") == ["key"]
    assert set((tmp_path / "secret" / "key").read_text().split(SECRET)) == {""}


async def test_listing_in_a_race_never_shows_what_lies_outside(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret" / "key").write_text(SECRET * 9)
    seen: set[str | None] = set()
    with swapping(root, tmp_path):
        for round_number in range(10 * RACE_ROUNDS):
            if round_number >= RACE_ROUNDS and seen >= CLOSE_RACE:
                break
            whole = await execute(FsList(), {"path": ".", "depth": 3}, root)
            named = await execute(FsList(), {"path": "door"}, root)
            for output in (whole.output, named.output):
                assert f"key {len(SECRET) * 9}" not in output
            seen.add(code_of(named))
    assert seen >= CLOSE_RACE


async def test_search_in_a_race_never_reads_what_lies_outside(root: Path, tmp_path: Path) -> None:
    outcomes: set[bool] = set()
    with swapping(root, tmp_path):
        for number in range(40):
            arguments: JsonObject = {"pattern": "side"} if number % 2 else {"pattern": "side", "path": "door"}
            result = await execute(FsSearch(), arguments, root)
            assert SECRET not in result.output
            assert {file.path.rpartition("/")[2] for file in result.read} <= {"key"}
            outcomes.add("inside" in result.output)
    assert True in outcomes


async def test_patch_in_a_race_never_reads_or_writes_outside(root: Path, tmp_path: Path) -> None:
    seen: set[str | None] = set()
    wrong = "--- a/door/key\n+++ b/door/key\n@@\n-nothing\n+evil\n"
    new = "--- /dev/null\n+++ b/door/new\n@@ -0,0 +1 @@\n+evil\n"
    with swapping(root, tmp_path):
        for round_number in range(10 * RACE_ROUNDS):
            if round_number >= RACE_ROUNDS and seen >= {"hunk_mismatch", "not_found", "symlink_refused"}:
                break
            result = await execute(FsPatch(), {"patch": wrong}, root)
            assert SECRET not in (result.error.message if result.error else "")
            assert SECRET not in (FsPatch().nature({"patch": wrong}, (str(root),)).preview or "")
            seen.add(code_of(result))
            if round_number % 4 == 0:
                await execute(FsPatch(), {"patch": new}, root)
    assert seen >= {"hunk_mismatch", "not_found", "symlink_refused"}


async def test_search_is_not_led_out_by_a_folder_that_becomes_a_link_during_its_walk(
    root: Path, tmp_path: Path
) -> None:
    """Many folders in turn, so that the walk is always near one that is being swapped."""
    for number in range(60):
        (root / f"d{number:02}").mkdir()
        (root / f"d{number:02}" / "key").write_text("inside\n")
    (root / "evil").symlink_to(tmp_path / "secret")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for number in range(60):
                door = root / f"d{number:02}"
                os.rename(door, root / "aside")
                os.rename(root / "evil", door)
                os.rename(door, root / "evil")
                os.rename(root / "aside", door)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(12):
            result = await execute(FsSearch(), {"pattern": "side"}, root)
            assert SECRET not in result.output
            assert "inside" in result.output
    finally:
        done.set()
        thread.join()
