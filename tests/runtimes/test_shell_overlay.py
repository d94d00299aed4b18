"""Where no overlay can be had: commands read, are told what to do about writing, and the machine says why."""

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from palyra.adapters.runtimes.shell import overlay as overlays
from palyra.adapters.runtimes.shell.overlay import NoOverlay, OverlayCheck
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.runtimes.shell.tools import DRAFTS, ShellTools
from palyra.app import Home
from palyra.app.tools import try_drafts
from palyra.core.events.tool import Outcome
from tests.runtimes.shells import found_sandbox, make_context, make_setup

pytestmark = pytest.mark.anyio


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OverlayCheck, "_try", lambda self: NoOverlay("drafts do not work here; move the folder"))


async def test_without_overlays_a_command_reads_and_cannot_write(tmp_path: Path, without: None) -> None:
    (tmp_path / "a").write_text("x")
    tool = ShellRun(found_sandbox(), make_setup())
    read = await tool.execute({"command": "cat a"}, make_context(tmp_path))
    assert (read.outcome, read.output, read.draft) == (Outcome.OK, "x", None)
    wrote = await tool.execute({"command": "echo y > a"}, make_context(tmp_path))
    assert wrote.outcome is Outcome.FAILED
    assert "drafts do not work here; move the folder. To write, use fs.write or direct" in wrote.output
    assert (tmp_path / "a").read_text() == "x"


async def test_a_direct_command_still_writes_there(tmp_path: Path, without: None) -> None:
    tool = ShellRun(found_sandbox(), make_setup())
    await tool.execute({"command": "echo y > a", "direct": True}, make_context(tmp_path))
    assert (tmp_path / "a").read_text() == "y\n"


def test_the_list_of_tools_and_the_doctor_say_which_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ShellTools(make_setup()).missing() == ()
    assert try_drafts(Home(tmp_path))[0]
    monkeypatch.setattr(OverlayCheck, "_try", lambda self: NoOverlay("drafts do not work here; move the folder"))
    (missing,) = ShellTools(make_setup()).missing()
    assert (missing.name, missing.reason) == (DRAFTS, "drafts do not work here; move the folder")
    assert try_drafts(Home(tmp_path)) == (False, "drafts do not work here; move the folder")


def test_an_overlay_that_hides_deletions_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlays, "_is_deletion", lambda path: False)
    (tmp_path / "root").mkdir()
    missing = OverlayCheck(found_sandbox(), tmp_path / "drafts").missing((str(tmp_path / "root"),))
    assert missing is not None
    assert "deletions do not show" in missing.reason
    assert list((tmp_path / "drafts").iterdir()) == []


def test_a_root_that_holds_the_drafts_cannot_be_one(tmp_path: Path) -> None:
    missing = OverlayCheck(found_sandbox(), tmp_path / "home" / "drafts").missing((str(tmp_path),))
    assert missing is not None
    assert "lies in the workspace" in missing.reason


def test_a_root_in_which_something_is_mounted_has_no_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    root.mkdir()
    check = OverlayCheck(found_sandbox(), tmp_path / "drafts")
    assert check.missing((str(root),)) is None
    monkeypatch.setattr(overlays, "mount_points", lambda: ("/", str(root), f"{root}/node_modules"))
    missing = check.missing((str(root),))
    assert missing is not None
    assert f"is mounted at {root}/node_modules" in missing.reason


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a second file system")
def test_a_root_on_another_file_system_is_tried_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    real = OverlayCheck._try_over

    def trying(check: OverlayCheck, root: str) -> NoOverlay | None:
        tried.append(root)
        return real(check, root)

    monkeypatch.setattr(OverlayCheck, "_try_over", trying)
    check = OverlayCheck(found_sandbox(), tmp_path / "drafts")
    with TemporaryDirectory(dir="/dev/shm") as root:
        assert (check.missing((root,)), check.missing((root,))) == (None, None)
        assert (tried, os.listdir(root)) == ([root], [])
    assert list((tmp_path / "drafts").iterdir()) == []


def test_a_disk_that_is_full_now_is_a_reason_and_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    check = OverlayCheck(found_sandbox(), tmp_path / "drafts")
    with monkeypatch.context() as full:
        full.setattr(overlays, "mkdtemp", refuse)
        here, roots = check.missing_here(), check.missing((str(tmp_path),))
    assert here is not None
    assert "No space left on device" in here.reason
    assert roots is not None
    assert check.missing_here() is None


def test_looking_at_drafts_makes_no_home(tmp_path: Path) -> None:
    assert try_drafts(Home(tmp_path / "absent"))[0]
    assert list(tmp_path.iterdir()) == []
