"""The parts of an index of git: real indexes are read whole, and cached trees that lie are found. Real git."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.drafts.git_index import lying_trees, read_parts

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def make(folder: Path, *words: str, count: int = 0) -> Path:
    git(folder, "init", "-q", *words)
    for name in ("a", "b/c", "b/d/e", "b.c", "b0", "data/COUNTRY.csv", f"long/{'n' * 200}/{'m' * 200}", "new/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    git(folder, "add", "-A")
    if count:
        blob = git(folder, "hash-object", "-w", "a").strip()
        lines = "".join(f"100644 {blob}\tmany/{at % 50}/{at}\n" for at in range(count))
        subprocess.run(["git", "update-index", "--index-info"], cwd=folder, input=lines, text=True, check=True)
    git(folder, "commit", "-qm", "m")
    return folder


def entries(folder: Path) -> list[tuple[int, str, str]]:
    found = []
    for line in filter(None, git(folder, "ls-files", "-s", "-z").split("\0")):
        head, _, path = line.partition("\t")
        mode, blob, _ = head.split()
        found.append((int(mode, 8), blob, path))
    return found


@pytest.mark.parametrize("id_bytes", [20, 32])
@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("after", [(), ("rm", "-q", "b/c"), ("add", "-N", "late"), ("read-tree", "HEAD")])
def test_an_index_that_git_wrote_is_understood(
    tmp_path: Path, id_bytes: int, version: str, after: tuple[str, ...]
) -> None:
    make(tmp_path, *(("--object-format=sha256",) if id_bytes == 32 else ()))
    (tmp_path / "late").write_text("late")
    git(tmp_path, "update-index", "--index-version", version)
    if after:
        git(tmp_path, *after)
    parts = read_parts((tmp_path / ".git/index").read_bytes(), id_bytes)
    assert "TREE" in parts.names
    assert "UNTR" not in parts.names
    assert lying_trees(parts, entries(tmp_path), id_bytes) == ()


def test_an_index_for_several_readers_is_understood_and_a_false_table_is_not(tmp_path: Path) -> None:
    make(tmp_path, count=300)
    git(tmp_path, "-c", "index.threads=3", "update-index", "--force-write-index")
    body = (tmp_path / ".git/index").read_bytes()
    assert lying_trees(read_parts(body, 20), entries(tmp_path), 20) == ()
    for name in (b"IEOT", b"EOIE"):
        at = body.rfind(name) + (8 if name == b"EOIE" else 12)
        with pytest.raises(ValueError, match="another reader"):
            read_parts(body[: at + 3] + bytes([body[at + 3] ^ 1]) + body[at + 4 :], 20)


def test_a_cached_tree_that_lies_is_found(tmp_path: Path) -> None:
    make(tmp_path)
    body = (tmp_path / ".git/index").read_bytes()
    for folder in ("b/", "b/d/", ""):
        tree = bytes.fromhex(git(tmp_path, "rev-parse", f"HEAD:{folder.rstrip('/')}").strip())
        assert tree in body
        forged = body.replace(tree, hashlib.sha1(b"other", usedforsecurity=False).digest())
        assert lying_trees(read_parts(forged, 20), entries(tmp_path), 20) == (folder,)


@given(st.data())
def test_a_damaged_index_is_an_error_or_is_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        folder.mkdir()
        make(folder)
    body = bytearray((folder / ".git/index").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        lying_trees(
            read_parts(bytes(body[: data.draw(st.integers(0, len(body)))]), 20), [(0o100644, "00" * 20, "a")], 20
        )
    except (ValueError, IndexError):
        return
