"""What a command leaves is bounded in bytes, and files of several names pass nothing on to the others."""

import os
import shutil
from pathlib import Path

import pytest

from palyra.adapters.drafts import store, upper
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.core.drafts.changes import describe_left_out
from palyra.core.drafts.judge import deletes_many
from palyra.core.events.draft import ChangeKind
from palyra.ports.drafts import AppliedDraft
from tests.adapters.test_drafts import Desk
from tests.runtimes.shells import found_sandbox, make_context, make_setup

pytestmark = pytest.mark.anyio


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("command", ["truncate -s 1G holes", "truncate -s 300 new; ln new other", "truncate -s 600 a"])
async def test_a_command_that_leaves_too_many_bytes_is_refused_whole(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Holes cost the command nothing, and reading them would hold a thread for days, also after a cancel."""
    monkeypatch.setattr(upper, "BYTES_MAX", 500)
    tool = ShellRun(found_sandbox(), make_setup(drafts=desk.drafts))
    result = await tool.execute({"command": f"echo new > b; {command}"}, make_context(desk.root))
    assert result.error is not None
    assert result.error.code == "draft_too_large"
    assert result.draft is None
    assert (desk.root / "b").read_text() == "old b\n"


async def test_what_a_command_deletes_has_a_limit_of_its_own(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it deletes is read too, for the look at conflicts. What it leaves alone is not."""
    monkeypatch.setattr(upper, "BYTES_MAX", 500)
    (desk.root / "large").write_bytes(b"x" * 400)
    (desk.root / "larger").write_bytes(b"x" * 1000)
    _, found = await desk.run("rm large; truncate -s 400 new")
    assert [change.path for change in found.changes] == ["large", "new"]
    tool = ShellRun(found_sandbox(), make_setup(drafts=desk.drafts))
    result = await tool.execute({"command": "rm larger"}, make_context(desk.root))
    assert result.error is not None
    assert result.error.code == "draft_too_large"
    assert (desk.root / "larger").exists()


async def test_permissions_that_other_names_share_are_left_out_and_named(desk: Desk, tmp_path: Path) -> None:
    """The other name may lie outside the workspace, or be a hook of git: nobody judged that one."""
    outside = tmp_path / "outside"
    os.link(desk.root / "a", outside)
    mode = outside.stat().st_mode
    context, found = await desk.run("chmod 777 a b")
    assert [(change.kind, change.path) for change in found.changes] == [(ChangeKind.MODE, "b")]
    assert "other names" in describe_left_out(found.left_out, found.left_out_count)
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert outside.stat().st_mode == mode


async def test_new_content_parts_a_file_from_its_other_names(desk: Desk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    os.link(desk.root / "a", outside)
    mode = outside.stat().st_mode
    context, found = await desk.run("echo new > a; chmod 777 a")
    assert isinstance(await desk.apply(context.effect_id, found), AppliedDraft)
    assert (outside.read_text(), outside.stat().st_mode) == ("old a\n", mode)
    assert (desk.root / "a").read_text() == "new\n"


@pytest.mark.parametrize(
    ("command", "asks"),
    [
        ("rm -r ./*", True),
        ("rm -r ./*; echo mine > new", True),
        ("rm -r ./*; mkfifo pipe", True),
        ("for file in a b; do : > $file; done", True),
        (": > a; rm b", True),
        (": > none; : > a; : > b", True),
        (": > a", False),
        ("echo new > a; : > b", False),
        ("mkdir inner; mv a b inner", False),
        ("rm b; echo mine > new", False),
    ],
)
async def test_a_workspace_that_loses_all_of_its_files_asks_whatever_comes_instead(
    desk: Desk, command: str, asks: bool
) -> None:
    shutil.rmtree(desk.root / "d")
    (desk.root / "c").unlink()
    _, found = await desk.run(command)
    assert deletes_many(found) is asks


async def test_names_of_links_have_a_bound_and_what_is_beyond_asks(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.root / "run.sh").symlink_to("d")
    monkeypatch.setattr(store, "NAMED_CHARS_MAX", 2 * len("run.sh/1") + 1)
    _, found = await desk.run("echo 1 > d/1; echo 2 > d/2; echo 3 > d/3")
    assert [each.names for each in found.linked] == [("run.sh/1",), ("run.sh/2",), (".git/config",)]


@pytest.mark.parametrize(
    ("command", "asks"),
    [
        ("find . -type f -delete", True),
        ("find . -type f -delete; echo mine > d/new", True),
        ("rm a b c; rm -r d; mkdir d; echo mine > d/new", True),
        ("rm a b c d/x", False),
        ("rm a b c; rm -r d; mkdir d; echo mine > d/x", False),
    ],
)
async def test_folders_that_stay_without_files_hold_nothing(desk: Desk, command: str, asks: bool) -> None:
    (desk.root / "empty/inner").mkdir(parents=True)
    _, found = await desk.run(command)
    assert deletes_many(found) is asks
