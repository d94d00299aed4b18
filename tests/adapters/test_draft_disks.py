"""Drafts on a real disk that is full: while a command writes, while its changes are sealed, and while they are applied."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.ports.drafts import AppliedDraft, DraftFailure
from tests.adapters.test_drafts import Desk
from tests.runtimes.shells import found_sandbox, make_context, make_setup

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk"),
]
MIB = 1 << 20
PIECE = b"\x07" * (64 << 10)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path, left_bytes: int = 0) -> Path:
    """Takes all space of the disk but this much."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize > left_bytes:
            try:
                file.write(PIECE)
            except OSError:
                break
    return filler


async def test_a_command_that_fills_the_disk_of_the_drafts_changes_nothing(disk: Path, tmp_path: Path) -> None:
    desk = Desk(tmp_path, disk / "drafts")
    before = desk.held()
    tool = ShellRun(found_sandbox(), make_setup(drafts=desk.drafts))
    result = await tool.execute({"command": "echo new > a; cat /dev/zero > big"}, make_context(desk.root))
    assert result.error is not None
    assert result.error.code == "draft_not_sealed", result
    assert "No space left on device" in f"{result.output}{result.error.message}"
    assert desk.held() == before
    await desk.drafts.trash.close()
    assert list(desk.drafts.home.iterdir()) == []


async def test_a_full_disk_of_the_workspace_changes_nothing(disk: Path, tmp_path: Path) -> None:
    desk = Desk(disk, tmp_path / "drafts")
    before = desk.held()
    context, found = await desk.run("echo new > a; rm b; head -c 3M /dev/zero > big; mkdir sub; echo x > sub/x")
    filler = fill(disk, MIB)
    failure = await desk.apply(context.effect_id, found)
    assert isinstance(failure, DraftFailure)
    assert "No space left on device" in failure.message
    assert desk.held() == before
    filler.unlink()
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft), "with space it is applied"
    assert (desk.root / "big").stat().st_size == 3 * MIB


async def test_a_disk_too_full_to_keep_what_is_replaced_changes_nothing(disk: Path) -> None:
    desk = Desk(disk)
    (desk.root / "large").write_bytes(os.urandom(MIB))
    content = (desk.root / "large").read_bytes()
    context, found = await desk.run("echo small > large; rm b; echo x > new")
    filler = fill(disk, MIB // 2)
    failure = await desk.apply(context.effect_id, found)
    assert isinstance(failure, DraftFailure)
    assert "No space left on device" in failure.message
    assert (desk.root / "large").read_bytes() == content
    assert (desk.root / "b").read_text() == "old b\n"
    assert not (desk.root / "new").exists()
    filler.unlink()
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert (desk.root / "large").read_text() == "small\n"


async def test_a_command_reaches_no_folder_in_which_a_draft_is_applied(disk: Path, tmp_path: Path) -> None:
    """The workspace is on a disk of its own, so changes are staged in it, under a name that a command can find out."""
    desk = Desk(disk, tmp_path / "drafts")
    left = desk.root / f".palyra-draft-{'f' * 24}"
    left.mkdir()
    (left / "old-0").write_text("the only one\n")
    before = desk.held()
    id_of_draft = "grep -o 'upperdir=[^,]*' /proc/self/mountinfo | grep -oE '[0-9a-f]{64}'"
    command = f"s=.palyra-draft-$({id_of_draft} | cut -c-24); mkdir -p $s; echo evil > $s/old-2; echo told > zz"
    for more in ("rm -r .palyra-draft-*", "mv .palyra-draft-* e", "chmod 0 .palyra-draft-*", "mkdir d/.Palyra-draft-x"):
        context, found = await desk.run(f"{command}; {more}")
        assert [change.path for change in found.changes if not change.path.startswith("e")] == ["zz"], more
        assert found.left_out
        assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
        shutil.rmtree(desk.root / "e", ignore_errors=True)
        assert desk.held() == before | {"zz": "644 told\n"}
        (desk.root / "zz").unlink()
