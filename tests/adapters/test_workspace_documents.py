"""Workspace documents as files: read within the workspace, and replaced whole or not at all."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.adapters.documents.files import FILE_BYTES_MAX, WorkspaceDocumentFiles
from palyra.core.errors import Conflict, Invalid, Unauthorized

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_a_document_is_created_replaced_and_read_byte_for_byte(tmp_path: Path) -> None:
    files = WorkspaceDocumentFiles()
    assert (await files.read(str(tmp_path), "memory/day.md")).text is None
    await files.replace(str(tmp_path), "memory/day.md", "a\r\nb", None)
    (tmp_path / "memory/day.md").chmod(0o640)
    found = await files.read(str(tmp_path), "memory/day.md")
    assert (found.root, found.path, found.text) == (os.path.realpath(tmp_path), "memory/day.md", "a\r\nb")
    await files.replace(str(tmp_path), "memory/day.md", "c", digest("a\r\nb"))
    assert (tmp_path / "memory/day.md").read_bytes() == b"c"
    assert (tmp_path / "memory/day.md").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in (tmp_path / "memory").iterdir()] == ["day.md"]


async def test_a_document_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    files = WorkspaceDocumentFiles()
    (tmp_path / "a.md").write_text("mine")
    for before in (digest("yours"), None):
        with pytest.raises(Conflict, match="document_changed"):
            await files.replace(str(tmp_path), "a.md", "new", before)
    with pytest.raises(Conflict, match="document_changed"):
        await files.replace(str(tmp_path), "b.md", "new", digest("gone"))
    assert (tmp_path / "a.md").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


async def test_links_keys_folders_and_binary_files_are_refused(tmp_path: Path) -> None:
    files = WorkspaceDocumentFiles()
    outside = tmp_path / "outside.md"
    outside.write_text("secret")
    root = tmp_path / "root"
    (root / "folder.md").mkdir(parents=True)
    (root / "link.md").symlink_to(outside)
    (root / "up").symlink_to(tmp_path)
    (root / "binary.md").write_bytes(b"\x00\xff")
    for path in ("link.md", "up/outside.md", "../outside.md", ".ssh/notes.md"):
        with pytest.raises(Unauthorized):
            await files.read(str(root), path)
        with pytest.raises(Unauthorized):
            await files.replace(str(root), path, "x", digest("secret"))
    for path in ("folder.md", "binary.md"):
        with pytest.raises(Invalid):
            await files.read(str(root), path)
    assert outside.read_text() == "secret"


async def test_documents_are_bounded(tmp_path: Path) -> None:
    files = WorkspaceDocumentFiles()
    (tmp_path / "a.md").write_text("x" * (FILE_BYTES_MAX + 1))
    with pytest.raises(Invalid, match="file_too_large"):
        await files.read(str(tmp_path), "a.md")
    with pytest.raises(Invalid, match="file_too_large"):
        await files.replace(str(tmp_path), "b.md", "x" * (FILE_BYTES_MAX + 1), None)


@pytest.mark.parametrize("act", ["create", "replace"])
@pytest.mark.parametrize("how", ["kill", "full"])
def test_a_document_is_old_or_new_whenever_writing_is_stopped(tmp_path: Path, how: str, act: str) -> None:
    command = [sys.executable, "-m", "tests.support.document_kills", how, act, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    points = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(points) > 5
    assert not points[-1]["was_stopped"]
    before = "none" if act == "create" else "old"
    assert {point["holds"] for point in points} == {before, "new"}
    assert all((point["then_holds"], point["then_files"]) == ("new", ["day.md"]) for point in points)
