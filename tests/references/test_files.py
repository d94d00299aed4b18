"""Files and folders behind references: what is shown, and that nothing leads out of the workspace."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.adapters.files.text_file import FILE_BYTES_MAX
from palyra.adapters.references.files import WorkspaceFiles
from palyra.adapters.references.folder_walk import ENTRIES_LOOKED_MAX, LISTED_MAX
from palyra.core.errors import PalyraError
from palyra.core.references.model import FOLDER_FILES_MAX
from palyra.ports.references import ReadScope, ReferenceText
from tests.references.repositories import write


def scope(*roots: Path, chars_max: int = 20_000, may_read: Callable[[str], bool] = lambda path: True) -> ReadScope:
    return ReadScope(workspace=tuple(map(str, roots)), chars_max=chars_max, may_read=may_read)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "site"
    made.mkdir()
    (tmp_path / "outside.txt").write_text("OUTSIDE")
    return made


async def refusal(root: Path, path: str) -> str:
    with pytest.raises(PalyraError) as refused:
        await WorkspaceFiles().read_file(path, scope(root))
    return refused.value.code


async def folder(root: Path, path: str = ".", **changes: object) -> ReferenceText:
    return await WorkspaceFiles().read_folder(path, scope(root, **changes))  # type: ignore[arg-type]


def titles(read: ReferenceText) -> list[str]:
    return [part.title for part in read.parts[1:]]


async def test_file_is_read_with_its_hash_and_cut_at_the_limit(root: Path) -> None:
    write(root, {"notes.md": "häh\n" * 10})
    whole = await WorkspaceFiles().read_file("notes.md", scope(root))
    assert (whole.parts[0].text, whole.parts[0].has_more) == ("häh\n" * 10, False)
    assert [file.path for file in whole.read] == ["notes.md"]
    cut = await WorkspaceFiles().read_file("notes.md", scope(root, chars_max=10))
    assert (len(cut.parts[0].text), cut.parts[0].has_more) == (10, True)


async def test_only_paths_with_nothing_behind_them_are_left_out(root: Path) -> None:
    write(root, {"AGENTS.md": "x", "folder/notes.md": "y"})
    (root / "link").symlink_to("/nowhere")
    asked = ("AGENTS.md", "CLAUDE.md", "folder", "folder/notes.md", "none/notes.md", "link", "../outside.txt")
    found = await WorkspaceFiles().find_files(asked, (str(root),))
    assert found == ("AGENTS.md", "folder", "folder/notes.md", "link", "../outside.txt")


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt", "a/../../outside.txt", "/etc/passwd", "//etc/passwd", "..", "../site2/x", "./../outside.txt",
        "a/b/../../../outside.txt", "/proc/self/environ", "/dev/zero", "~/.bashrc/../../../etc/passwd/../passwd/../..",
    ],
)  # fmt: skip
async def test_path_outside_the_workspace_is_refused(root: Path, path: str) -> None:
    assert await refusal(root, path) in ("outside_workspace", "is_folder")


@pytest.mark.parametrize("path", ["", "a\x00b", "x" * 5_000, "a/" * 100 + "b", "\udcff"])
async def test_path_that_means_nothing_is_refused(root: Path, path: str) -> None:
    assert await refusal(root, path) in ("path_invalid", "path_too_deep")


@pytest.mark.parametrize(
    "path", ["..%2foutside.txt", "..\\outside.txt", "....//outside.txt", "%2e%2e/outside.txt", "~"]
)
async def test_other_spellings_of_the_way_out_are_plain_names(root: Path, path: str) -> None:
    assert await refusal(root, path) == "not_found"


async def test_links_are_refused_wherever_they_lead(root: Path, tmp_path: Path) -> None:
    write(root, {"real.txt": "inside", "deep/x.txt": "inside"})
    (root / "out").symlink_to(tmp_path / "outside.txt")
    (root / "in").symlink_to(root / "real.txt")
    (root / "up").symlink_to(tmp_path)
    (root / "gone").symlink_to(tmp_path / "nowhere")
    for path in ("out", "in", "gone", "up/outside.txt", "up/site/real.txt"):
        assert await refusal(root, path) == "symlink_refused"
    listed = await folder(root)
    assert "OUTSIDE" not in "".join(part.text for part in listed.parts)
    assert titles(listed) == ["real.txt", "deep/x.txt"]
    with pytest.raises(PalyraError) as refused:
        await folder(root, "up")
    assert refused.value.code == "symlink_refused"


async def test_devices_pipes_and_sockets_are_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "pipe")
    held = socket.socket(socket.AF_UNIX)
    held.bind(os.path.relpath(root / "socket"))
    names = ["pipe", "socket"]
    try:
        os.mknod(root / "device", 0o666 | 0o020000, os.makedev(1, 5))
        names.append("device")
    except PermissionError:
        pass  # Only the system's administrator makes devices.
    for name in names:
        assert await refusal(root, name) == "not_a_file"
    assert titles(await folder(root)) == []
    held.close()


@pytest.mark.parametrize(
    "path",
    [".git/config", ".ssh/id", ".aws/credentials", ".env", "app/.env.local", "id_rsa", "tls/server.key", "a.PEM"],
)
async def test_files_with_keys_are_refused_by_name_and_left_out_of_folders(root: Path, path: str) -> None:
    write(root, {path: "TOPSECRET", "sub/ok.txt": "fine"})
    assert await refusal(root, path) == "secret_file"
    assert await refusal(root, f"sub/../{path}") == "secret_file"
    shown = await folder(root)
    assert "TOPSECRET" not in "".join(part.text for part in shown.parts)
    assert titles(shown) == ["sub/ok.txt"]
    parent = str(Path(path).parent)
    inner = await folder(root, parent) if not parent.startswith(".") else None
    assert inner is None or "TOPSECRET" not in "".join(part.text for part in inner.parts)


async def test_folder_of_keys_is_refused(root: Path) -> None:
    write(root, {".ssh/config": "x"})
    with pytest.raises(PalyraError) as refused:
        await folder(root, ".ssh")
    assert refused.value.code == "secret_file"


async def test_binary_and_huge_files_have_a_clear_code(root: Path) -> None:
    (root / "data.bin").write_bytes(b"a\x00b")
    (root / "latin.txt").write_bytes(b"caf\xe9")
    with (root / "huge.txt").open("wb") as huge:
        huge.truncate(FILE_BYTES_MAX * 1_000)
    assert await refusal(root, "data.bin") == "binary_file"
    assert await refusal(root, "latin.txt") == "binary_file"
    assert await refusal(root, "huge.txt") == "file_too_large"
    write(root, {"ok.txt": "text"})
    assert titles(await folder(root)) == ["ok.txt"]


async def test_folder_shows_six_files_nearest_first_and_respects_ignore_files(root: Path) -> None:
    write(root, {f"sub/f{number}.txt": str(number) for number in range(9)})
    write(root, {"top.txt": "t", "build/out.txt": "x", "sub/skip.log": "x", "node_modules/m/i.js": "x", ".hidden": "x"})
    write(root, {".gitignore": "build/\n*.log\n", "sub/.ignore": "f0.txt\n"})
    read = await folder(root)
    assert titles(read) == ["top.txt", *(f"sub/f{number}.txt" for number in range(1, 6))]
    assert len(read.read) == FOLDER_FILES_MAX
    listed = read.parts[0].text
    assert "sub/f8.txt" in listed
    for absent in ("build", "skip.log", "f0.txt", "i.js", "hidden"):
        assert absent not in listed
    inner = await folder(root, "sub")
    assert "skip.log" not in inner.parts[0].text
    assert "f0.txt" not in inner.parts[0].text


async def test_each_file_of_a_folder_is_judged_by_itself(root: Path) -> None:
    write(root, {"a.txt": "AAA", "b.txt": "BBB"})
    asked: list[str] = []

    def judge(path: str) -> bool:
        asked.append(path)
        return path == "b.txt"

    read = await folder(root, may_read=judge)
    assert asked == ["a.txt", "b.txt"]
    assert titles(read) == ["b.txt"]


async def test_second_root_is_read_by_its_absolute_path(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write(other, {"x.txt": "of the other root"})
    read = await WorkspaceFiles().read_folder(str(other), scope(root, other))
    assert read.parts[1].text == "of the other root"


async def test_folder_of_ten_thousand_files_stops_early(root: Path) -> None:
    for number in range(10_000):
        (root / f"f{number}").touch()
    began_s = time.process_time()
    read = await folder(root)
    assert time.process_time() - began_s < 2
    assert f"only {ENTRIES_LOOKED_MAX} entries" in read.parts[0].text
    assert read.parts[0].text.count("\n") < LISTED_MAX + 10


async def test_very_deep_tree_and_a_tree_of_empty_folders_end(root: Path) -> None:
    (root / "/".join("d" * 40)).mkdir(parents=True)
    for number in range(300):
        (root / f"e{number}" / "f").mkdir(parents=True)
    read = await folder(root)
    assert len(read.parts) == 1


async def test_missing_folder_and_a_file_in_its_place_say_so(root: Path) -> None:
    write(root, {"a.txt": "x"})
    for path, code in (("nowhere", "not_found"), ("a.txt", "not_a_folder"), ("..", "outside_workspace")):
        with pytest.raises(PalyraError) as refused:
            await folder(root, path)
        assert refused.value.code == code
    (root / "empty").mkdir()
    assert "holds no files" in (await folder(root, "empty")).parts[0].text
