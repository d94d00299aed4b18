"""fs.write: old or new, never anything between, also when killed; and what a person is shown before."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from palyra.adapters.files.partial import fill_partial
from palyra.adapters.tools import fs_write
from palyra.adapters.tools.fs_write import CONTENT_LENGTH_MAX, FsWrite
from palyra.adapters.tools.preview import PREVIEW_LENGTH_MAX
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass
from palyra.core.tools import ToolResult
from tests.support.tool_calls import code_of, context, execute
from tests.support.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.anyio
KILLS = 6
CHILD = """
import asyncio, sys
from pathlib import Path
from palyra.adapters.tools.fs_write import FsWrite
from tests.support.tool_calls import context

async def main():
    tool, root = FsWrite(), Path(sys.argv[1])
    print("ready", flush=True)
    for number in range(1_000_000):
        letter = "ab"[number % 2]
        await tool.execute({"path": "deep/file.txt", "content": letter * 150_000}, context(root))

asyncio.run(main())
"""


async def write(root: Path, path: str, content: str) -> ToolResult:
    return await execute(FsWrite(), {"path": path, "content": content}, root)


def preview(root: Path, path: str, content: str) -> str:
    shown = FsWrite().nature({"path": path, "content": content}, (str(root),)).preview
    assert shown is not None
    return shown


async def test_one_line_is_told_as_one(tmp_path: Path) -> None:
    assert (await write(tmp_path, "a.txt", "two\n")).output == "a.txt: created, 1 line, 4 bytes"


async def test_file_is_created_with_its_folders_and_then_replaced(tmp_path: Path) -> None:
    created = await write(tmp_path, "a/b/c.txt", "één\ntwo\n")
    assert created.output == "a/b/c.txt: created, 2 lines, 10 bytes"
    replaced = await write(tmp_path, "a/b/c.txt", "")
    assert replaced.output == "a/b/c.txt: replaced, and it is empty"
    assert os.listdir(tmp_path / "a" / "b") == ["c.txt"]


async def test_mode_is_kept_but_never_setuid(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o4751)
    await write(tmp_path, "run.sh", "new")
    assert (script.read_text(), script.stat().st_mode & 0o7777) == ("new", 0o751)


async def test_new_file_has_the_mode_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        await write(tmp_path, "new.txt", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "new.txt").stat().st_mode & 0o777 == 0o640


async def test_partial_file_that_a_crash_left_is_taken_away_by_the_next_attempt(tmp_path: Path) -> None:
    effect = context(tmp_path).effect_id
    (tmp_path / f".palyra-{effect[:24]}.partial").write_text("half")
    assert (await write(tmp_path, "a.txt", "whole")).outcome is Outcome.OK
    assert os.listdir(tmp_path) == ["a.txt"]


async def test_link_in_the_partial_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "outside").write_text("safe")
    effect = context(tmp_path).effect_id
    (tmp_path / "ws" / f".palyra-{effect[:24]}.partial").symlink_to(tmp_path / "outside")
    assert (await write(tmp_path / "ws", "a.txt", "new")).outcome is Outcome.OK
    assert (tmp_path / "outside").read_text() == "safe"


async def test_content_beyond_the_limit_or_no_text_is_refused(tmp_path: Path) -> None:
    for content in ("x" * (CONTENT_LENGTH_MAX + 1), "\ud800", 7, None):
        result = await execute(FsWrite(), {"path": "a", "content": content}, tmp_path)
        assert code_of(result) == "content_invalid"
    assert list(tmp_path.iterdir()) == []


async def test_full_disk_is_a_failure_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("old")

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    result = await write(tmp_path, "a.txt", "new")
    assert code_of(result) == "io_error"
    assert (os.listdir(tmp_path), (tmp_path / "a.txt").read_text()) == (["a.txt"], "old")


async def test_cancelled_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is held before its last step; the cancel reaches it there."""
    (tmp_path / "a.txt").write_text("old")
    entered, released = threading.Event(), threading.Event()
    fill = fill_partial

    def held(*arguments: object) -> None:
        fill(*arguments)  # type: ignore[arg-type]
        entered.set()
        released.wait(WAIT_S)

    monkeypatch.setattr(fs_write, "fill_partial", held)
    task = asyncio.create_task(write(tmp_path, "a.txt", "new"))
    assert await asyncio.to_thread(entered.wait, WAIT_S)
    task.cancel()
    await asyncio.sleep(0)
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (os.listdir(tmp_path), (tmp_path / "a.txt").read_text()) == (["a.txt"], "old")


def test_killed_in_the_middle_the_file_is_old_or_new(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    seen: set[str] = set()
    for number in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, env=environment, cwd=root
        )
        assert child.stdout is not None
        with child.stdout:
            child.stdout.readline()
            # Any moment will do: the claim is about every one of them.
            time.sleep(0.01 + number * 0.0137)
            if number == KILLS - 1:
                wait_until((tmp_path / "deep" / "file.txt").exists)  # A busy machine may not have come so far.
            child.send_signal(signal.SIGKILL)
            child.wait()
        file = tmp_path / "deep" / "file.txt"
        if file.exists():
            text = file.read_text()
            assert text in ("a" * 150_000, "b" * 150_000)
            seen.add(text[0])
    assert seen
    left = [name for name in os.listdir(tmp_path / "deep") if name != "file.txt"]
    assert len(left) <= 1, "every attempt at one effect uses one name, so no more than one can be left"


def test_nature_names_class_path_and_preview_without_touching_anything(tmp_path: Path) -> None:
    nature = FsWrite().nature({"path": "x/../notes/a.md", "content": "one\n"}, (str(tmp_path),))
    assert (nature.effect_class, nature.parallel_class) == (EffectClass.IDEMPOTENT, ParallelClass.PATH_SCOPED)
    assert (nature.paths, nature.is_in_workspace) == (("notes/a.md",), True)
    assert nature.preview == "new file, 1 line\n+one"
    assert list(tmp_path.iterdir()) == []


def test_preview_of_a_change_is_a_unified_diff(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(50)))
    shown = preview(tmp_path, "a.txt", "".join(f"{number}\n" for number in range(50) if number != 30))
    assert "-30" in shown.splitlines()
    assert "a.txt, from line 28 (now)" in shown
    assert len(shown.splitlines()) == 10


@pytest.mark.parametrize(
    ("old", "new", "begins"),
    [
        (b"same\n", "same\n", "no change"),
        (b"\x00\x01", "text", "replaces the whole file: 2 bytes become 4"),
        (b"x" * 100_000, "text", "replaces the whole file: more than 65536 bytes become 4"),
        ("\n".join(str(n) for n in range(9000)).encode(), "\n".join(str(n) for n in range(9000, 0, -1)), "replaces"),
        (b"a\r\n", "a\n", "only line endings change"),
    ],
)
def test_preview_of_what_cannot_be_compared_is_a_sentence(tmp_path: Path, old: bytes, new: str, begins: str) -> None:
    (tmp_path / "f").write_bytes(old)
    shown = preview(tmp_path, "f", new)
    assert shown.startswith(begins)
    assert len(shown) <= PREVIEW_LENGTH_MAX


def test_preview_is_capped_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    shown = preview(tmp_path, "new.txt", "a line of some length\n" * 1000)
    assert len(shown) <= PREVIEW_LENGTH_MAX
    assert shown.splitlines()[-1].endswith("more lines are not shown]")
    assert len(preview(tmp_path, "new.txt", "\u202e" * 100_000)) <= PREVIEW_LENGTH_MAX


def test_preview_spells_out_what_could_hide_on_a_screen(tmp_path: Path) -> None:
    shown = preview(tmp_path, "new.sh", "safe \u202e\x1b[2K\r\x08evil\u200b\u3164\u2800 # one\u2028line\x0b")
    assert shown == ("new file, 1 line\n+safe \\u202e\\x1b[2K\\r\\x08evil\\u200b\\u3164\\u2800 # one\\u2028line\\x0b")


def test_preview_of_a_refused_place_says_why(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert "symbolic link" in preview(tmp_path, "link", "x")


def test_new_content_of_a_file_that_can_be_executed_can_be_executed(tmp_path: Path) -> None:
    (tmp_path / "deploy").write_text("#!/bin/sh\n")
    (tmp_path / "notes").write_text("x\n")
    (tmp_path / "deploy").chmod(0o755)
    asked = {
        path: FsWrite().nature({"path": path, "content": "y"}, (str(tmp_path),)) for path in ("deploy", "notes", "new")
    }
    assert [path for path, nature in asked.items() if nature.makes_executable] == ["deploy"]
