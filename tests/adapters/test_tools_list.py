"""fs.list: what lies in a folder, in order, within limits, and never what lies behind a link."""

import asyncio
import os
from pathlib import Path
from threading import Event

import pytest

from palyra.adapters.tools import fs_list
from palyra.adapters.tools.fs_list import ENTRIES_MAX, FsList
from palyra.core.events.tool import Outcome
from tests.support.tool_calls import code_of, execute

pytestmark = pytest.mark.anyio


async def listed(root: Path, path: str = ".", depth: int = 1) -> list[str]:
    result = await execute(FsList(), {"path": path, "depth": depth}, root)
    assert result.outcome is Outcome.OK
    return result.output.split("\n")


async def test_entries_are_sorted_with_kinds_and_sizes_and_hidden_ones_too(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("12345")
    (tmp_path / "a").mkdir()
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    assert await listed(tmp_path) == [".hidden 0", "a/", "b.txt 5", "link -> /etc", "pipe (device, pipe or socket)"]


async def test_depth_enters_folders_but_neither_links_nor_others_work(tmp_path: Path) -> None:
    for folder in ("a/b/c", ".git/objects", "node_modules/x"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").write_text("x")
    (tmp_path / "out").symlink_to("/etc")
    assert await listed(tmp_path, depth=1) == [".git/", "a/", "node_modules/", "out -> /etc"]
    assert await listed(tmp_path, depth=3) == [
        ".git/",
        "a/",
        "a/b/",
        "a/b/c/",
        "a/b/f 1",
        "node_modules/",
        "out -> /etc",
    ]
    assert await listed(tmp_path, ".git") == ["objects/"]
    assert await listed(tmp_path, "a/b/../b") == ["c/", "f 1"]


async def test_as_many_entries_as_the_limit_are_shown_and_one_more_is_told(tmp_path: Path) -> None:
    for number in range(ENTRIES_MAX):
        (tmp_path / f"{number:05}").touch()
    assert len(await listed(tmp_path)) == ENTRIES_MAX
    (tmp_path / "z").touch()
    lines = await listed(tmp_path)
    assert lines[-2:] == [
        "00999 0",
        "[At least 1 more entries are not shown; list a folder of it, or with less depth.]",
    ]


async def test_long_names_are_capped_by_bytes(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number:03}{'x' * 200}").touch()
    result = await execute(FsList(), {"path": "."}, tmp_path)
    assert len(result.output.encode()) <= fs_list.OUTPUT_BYTES_MAX + 200
    assert "more entries are not shown" in result.output


async def test_huge_folder_is_read_in_part_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(fs_list, "FOLDER_ENTRIES_MAX", 4)
    assert len(await listed(tmp_path)) == 4
    monkeypatch.setattr(fs_list, "FOLDER_ENTRIES_MAX", 3)
    assert (await listed(tmp_path))[-1].startswith("[A folder has more than 3 entries")


async def test_names_that_could_fake_lines_or_are_no_text_are_spelled_out(tmp_path: Path) -> None:
    (tmp_path / "a\nb 5").touch()
    (tmp_path / os.fsdecode(b"\xff")).touch()
    (tmp_path / "link").symlink_to("x\x1b[2J")
    assert await listed(tmp_path) == ["a\\nb 5 0", "link -> x\\x1b[2J", "? 0"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("..", "outside_workspace"),
        ("/etc", "outside_workspace"),
        ("no", "not_found"),
        ("f", "not_a_folder"),
        ("link", "symlink_refused"),
        ("link/x", "symlink_refused"),
        ("\x00", "path_invalid"),
    ],
)
async def test_what_is_no_folder_inside_is_refused(tmp_path: Path, path: str, code: str) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "link").symlink_to("/etc")
    assert code_of(await execute(FsList(), {"path": path}, tmp_path)) == code


async def test_empty_folder_says_so_and_a_second_root_is_listed_by_its_path(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "f").touch()
    assert await listed(first) == ["[The folder is empty.]"]
    assert (await execute(FsList(), {"path": str(second)}, first, second)).output == "f 0"


async def test_paths_of_what_is_shown_are_told_as_they_are_and_no_others(tmp_path: Path) -> None:
    real, root = tmp_path / "real", tmp_path / "root"
    (real / "sub" / "in\nner").mkdir(parents=True)
    root.symlink_to(real)
    (real / "sub" / "in\nner" / "f").touch()
    (real / "sub" / os.fsdecode(b"\xff")).touch()
    (real / "sub" / "link").symlink_to("f")
    result = await execute(FsList(), {"path": "sub", "depth": 2}, root)
    assert result.named == (f"{real}/sub/in\nner/", f"{real}/sub/in\nner/f", f"{real}/sub/link")
    assert (await execute(FsList(), {"path": "."}, root)).named == (f"{real}/sub/",)


async def test_no_more_paths_are_told_than_entries_are_shown(tmp_path: Path) -> None:
    for number in range(ENTRIES_MAX + 1):
        (tmp_path / f"{number:05}").touch()
    assert len((await execute(FsList(), {"path": "."}, tmp_path)).named) == ENTRIES_MAX


def test_nature_shows_the_root_as_a_dot(tmp_path: Path) -> None:
    for path in (".", "a/..", str(tmp_path)):
        nature = FsList().nature({"path": path}, (str(tmp_path),))
        assert (nature.paths, nature.is_in_workspace) == ((".",), True)
    assert not FsList().nature({"path": ".."}, (str(tmp_path),)).is_in_workspace


async def test_cancelled_walk_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (tmp_path / str(number)).mkdir()
    read, seen, is_in, may_go = fs_list._read_entries, [], asyncio.Event(), Event()
    loop = asyncio.get_running_loop()

    def read_slowly(folder: int) -> object:
        seen.append(folder)
        loop.call_soon_threadsafe(is_in.set)
        may_go.wait(30)
        return read(folder)

    monkeypatch.setattr(fs_list, "_read_entries", read_slowly)
    task = asyncio.create_task(execute(FsList(), {"path": ".", "depth": 2}, tmp_path))
    await is_in.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_go.set()
    await asyncio.to_thread(lambda: None)
    assert len(seen) == 1
