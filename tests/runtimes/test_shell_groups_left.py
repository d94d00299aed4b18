"""Control groups that cannot be made or entered, and that none is left: by commands, and by daemons that were killed."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.runtimes.shell import groups as groups_module
from palyra.adapters.runtimes.shell import sandbox as sandboxes
from palyra.adapters.runtimes.shell.groups import GROUPS_MAX, ControlGroup, Groups, NoGroups
from palyra.adapters.runtimes.shell.groups_find import open_groups, owner_name, sweep
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.run import ShellRun
from palyra.adapters.runtimes.shell.sandbox import Sandbox, find_sandbox
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome
from tests.runtimes.shell_groups import branches, code_of, folders_of, groups, own_folders, start_inside
from tests.runtimes.shells import found_sandbox, make_context, make_setup, run
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
__all__ = ["groups"]


async def test_group_is_gone_after_the_end_a_failure_and_a_timeout(groups: Groups, tmp_path: Path) -> None:
    for command, timeout_s in [("true", 20), ("exit 3", 20), ("sleep 60 & sleep 60", 0.3)]:
        await run(command, tmp_path, timeout_s=timeout_s)
        await until(lambda: own_folders() == [])


async def test_ending_a_command_ends_its_group_besides(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed: list[ControlGroup] = []
    monkeypatch.setattr(ControlGroup, "kill", lambda group: killed.append(group))
    await run("true", tmp_path)
    assert killed == []
    await run("sleep 60", tmp_path, timeout_s=0.2)
    assert len(killed) == 1


async def test_group_is_gone_after_cancelling_at_any_moment(groups: Groups, tmp_path: Path) -> None:
    for pause_s in (0.0, 0.001, 0.003, 0.01, 0.03):
        tool = ShellRun(found_sandbox(), make_setup())
        task = asyncio.create_task(tool.execute({"command": "sleep 60"}, make_context(tmp_path)))
        await asyncio.sleep(pause_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: own_folders() == [])


async def test_groups_of_a_killed_daemon_are_swept_and_those_of_a_living_one_are_not(
    groups: Groups, tmp_path: Path
) -> None:
    living, killed = start_daemon(tmp_path / "living"), start_daemon(tmp_path / "killed")
    try:
        await until((tmp_path / "living" / "begun").exists)
        await until((tmp_path / "killed" / "begun").exists)
        living_owner, killed_owner = (owner_name_of(daemon.pid) for daemon in (living, killed))
        # Beside the command's there may be the trial's of a start: found busy once, it goes before the next group is made.
        assert len(folders_of(killed_owner)) >= len(branches())
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        open_groups(branches())
        await until(lambda: sweep(branches()) == ())
        assert folders_of(killed_owner) == []
        assert len(folders_of(living_owner)) >= len(branches())
    finally:
        for daemon in (living, killed):
            daemon.kill()
            daemon.wait()
        await until(lambda: sweep(branches()) == ())
    assert folders_of(living_owner) == []


def start_daemon(root: Path) -> subprocess.Popen[bytes]:
    root.mkdir()
    script = f"""
import asyncio
from pathlib import Path
from tests.runtimes.shells import *
asked = {{"command": "touch begun; sleep 300", "direct": True}}
asyncio.run(ShellRun(found_sandbox(), make_setup()).execute(asked, make_context(Path({str(root)!r}))))
"""
    package = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{package}:{package / 'src'}"}
    return subprocess.Popen([sys.executable, "-c", script], env=environment)


async def test_what_still_runs_in_the_group_of_a_dead_daemon_is_ended(groups: Groups) -> None:
    owner = subprocess.Popen(["sleep", "300"])
    group = ControlGroup(branches(), f"{owner_name_of(owner.pid)}-1")
    group.create(CommandLimits())
    orphan = start_inside(group, "sleep", "300")
    try:
        await until(lambda: all((Path(folder) / "cgroup.procs").read_text() for folder in group.folders))
        sweep(branches())
        assert orphan.poll() is None
        owner.kill()
        owner.wait()
        await until(lambda: sweep(branches()) == ())
        assert orphan.wait() == -signal.SIGKILL
    finally:
        for process in (owner, orphan):
            process.kill()
            process.wait()
        group.remove()
    assert not any(map(os.path.exists, group.folders))


def owner_name_of(pid: int) -> str:
    """As it would name itself."""
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"palyra-{owner_name().split('-')[1]}-{pid}-{start}"


async def test_what_a_sweep_could_not_remove_is_removed_before_the_next_group_is_made(groups: Groups) -> None:
    name = f"{owner_name()}-999999"
    stale = ControlGroup(branches(), name)
    stale.create(CommandLimits())
    following = Groups(branches(), owner_name(), (name,))
    made = following.make(CommandLimits())
    assert made is not None
    assert not any(map(os.path.exists, stale.folders))
    following.let_go(made)


async def test_group_that_cannot_be_made_means_a_command_without_one(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_folder = os.mkdir

    def refuse(path: str, mode: int = 0o777) -> None:
        if str(path).startswith("/sys/fs/cgroup/"):
            raise OSError(28, "No space left on device", path)
        make_folder(path, mode)

    monkeypatch.setattr(os, "mkdir", refuse)
    result = await run("echo ran", tmp_path)
    assert (result.outcome, result.output, result.sandbox) == (Outcome.OK, "ran\n", found_sandbox().name)


async def test_limit_that_cannot_be_written_means_no_group_and_leaves_none(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(path: str, value: str) -> None:
        raise OSError(22, "Invalid argument", path)

    monkeypatch.setattr(groups_module, "write", refuse)
    result = await run("echo ran", tmp_path)
    assert (result.outcome, result.output, result.sandbox) == (Outcome.OK, "ran\n", found_sandbox().name)
    assert own_folders() == []


@pytest.mark.parametrize("background", [False, True])
async def test_command_that_cannot_enter_its_group_does_not_run_and_the_next_runs_without(
    groups: Groups, tmp_path: Path, background: bool
) -> None:
    sandbox, setup = replace(found_sandbox(), groups=Vanishing(branches(), owner_name())), make_setup()
    asked: JsonObject = {"command": "touch ran; sleep 0.1", "background": background, "direct": True}
    refused = await ShellRun(sandbox, setup).execute(asked, make_context(tmp_path))
    assert code_of(refused) == "sandbox_failed"
    assert refused.error is not None
    assert "call again" in refused.error.message
    assert not (tmp_path / "ran").exists()
    result = await ShellRun(sandbox, setup).execute({"command": "touch ran", "direct": True}, make_context(tmp_path))
    assert (result.outcome, result.sandbox) == (Outcome.OK, found_sandbox().name)
    assert (tmp_path / "ran").exists()


class Vanishing(Groups):
    """Somebody removes each group before it is entered."""

    def make(self, limits: CommandLimits) -> ControlGroup | None:
        group = super().make(limits)
        for folder in group.folders if group is not None else ():
            os.rmdir(folder)
        return group


async def test_there_is_a_largest_number_of_groups(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert GROUPS_MAX >= 64
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 2)
    made = [groups.make(CommandLimits()) for _ in range(3)]
    assert [group is not None for group in made] == [True, True, False]
    result = await run("echo ran", tmp_path)
    assert (result.output, result.sandbox) == ("ran\n", found_sandbox().name)
    for group in made:
        if group is not None:
            groups.let_go(group)
    assert (await run("true", tmp_path)).sandbox.endswith("+cgroup")


async def test_group_that_is_busy_is_removed_later_without_waiting(groups: Groups) -> None:
    group = groups.make(CommandLimits())
    assert group is not None
    inside_it = start_inside(group, "sleep", "300")
    await until(lambda: (Path(group.folders[-1]) / "cgroup.procs").read_text())
    groups.let_go(group, asyncio.get_running_loop())
    assert len(own_folders()) == len(branches())
    inside_it.kill()
    inside_it.wait()
    await until(lambda: own_folders() == [])


async def test_sandbox_whose_groups_fail_is_found_without_them(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "join_script", lambda *_: "exit 120\n")
    found = find_sandbox()
    assert isinstance(found, Sandbox)
    assert isinstance(found.groups, NoGroups)
    assert "cannot be put into a group" in found.groups.reason
