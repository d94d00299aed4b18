"""fs.read: pages of lines, and plain words about what is no text."""

import os
from pathlib import Path

import pytest

from palyra.adapters.files.text_file import FILE_BYTES_MAX
from palyra.adapters.tools.fs_read import LINES_MAX, OUTPUT_BYTES_MAX, FsRead
from palyra.core.events.tool import Outcome
from palyra.core.tools import ToolResult
from tests.support.tool_calls import code_of, execute

pytestmark = pytest.mark.anyio


async def read(root: Path, path: str, **page: int) -> ToolResult:
    return await execute(FsRead(), {"path": path, **page}, root)


async def test_text_is_given_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("čau\r\nsvěte\u2028x\n".encode())
    assert (await read(tmp_path, "a.txt")).output == "čau\r\nsvěte\u2028x"


async def test_offset_counts_lines_from_one_and_limit_says_how_many(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    assert (await read(tmp_path, "a.txt", offset=2, limit=2)).output == (
        "two\nthree\n[Lines 2 to 3 of 4; read on with offset 4.]"
    )
    assert (await read(tmp_path, "a.txt", offset=4)).output == "four"
    assert code_of(await read(tmp_path, "a.txt", offset=5)) == "offset_past_end"


async def test_following_the_offsets_gives_every_line_once(tmp_path: Path) -> None:
    lines = [f"line {number} {'x' * 60}" for number in range(3 * LINES_MAX)]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    found: list[str] = []
    while len(found) < len(lines):
        result = await read(tmp_path, "long.txt", offset=len(found) + 1)
        assert len(result.output.encode()) < OUTPUT_BYTES_MAX + 200
        found += [line for line in result.output.split("\n") if not line.startswith("[")]
    assert found == lines


async def test_line_longer_than_a_page_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("ž" * OUTPUT_BYTES_MAX)
    result = await read(tmp_path, "one.txt")
    assert result.outcome is Outcome.OK
    assert result.output.endswith(f"[Line 1 of 1 has {2 * OUTPUT_BYTES_MAX} bytes and was cut.]")


async def test_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert (await read(tmp_path, "empty")).output == "[The file is empty.]"


@pytest.mark.parametrize("body", [b"\x7fELF\x00\x01", b"caf\xe9", "text".encode("utf-16")])
async def test_binary_file_is_refused(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "blob").write_bytes(body)
    assert code_of(await read(tmp_path, "blob")) == "binary_file"


async def test_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    assert code_of(await read(tmp_path, "huge")) == "file_too_large"


async def test_absent_file_folder_pipe_and_device_have_their_own_codes(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    codes = [code_of(await read(tmp_path, path)) for path in ("absent", "folder", ".", "pipe", "folder/../none/x")]
    assert codes == ["not_found", "is_folder", "is_folder", "not_a_file", "not_found"]
    assert code_of(await execute(FsRead(), {"path": "null"}, Path("/dev"))) == "not_a_file"


async def test_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert code_of(await read(tmp_path, "a.txt/b")) == "not_a_folder"


async def test_missing_workspace_is_said(tmp_path: Path) -> None:
    assert code_of(await read(tmp_path / "gone", "a")) == "workspace_missing"
    assert code_of(await execute(FsRead(), {"path": "a"})) == "workspace_missing"
