"""Commands in control groups of their own: what the kernel holds, what is told, and that no group is left.

The watching is switched off where a test is to show that the kernel alone holds.
"""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from palyra.adapters.runtimes.shell.groups import ControlGroup, Groups, NoGroups, tasks_max
from palyra.adapters.runtimes.shell.groups_find import owner_name
from palyra.adapters.runtimes.shell.limits import CommandLimits
from palyra.adapters.runtimes.shell.run import ShellRun, describe
from palyra.adapters.runtimes.shell.watch import LimitCheck
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome
from palyra.core.ids import RunId
from tests.runtimes.shell_groups import branches, code_of, groups, own_folders
from tests.runtimes.shells import USERS, attempt, found_sandbox, make_context, make_setup, open_house, run
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
__all__ = ["groups"]
MIB = 1024 * 1024
SMALL = CommandLimits(memory_bytes=128 * MIB, processes_count=20)
RUN = "01JZ0000000000000000RUN001"
COUNTED_EARLIER = "an ordinary user's processes and threads meet another limit earlier"
HOLDING = "python3 -c 'import time; kept = bytearray({mib} << 20); time.sleep({s})'"


class Ledger:
    """What was in each group when it was let go of, read from outside."""

    def __init__(self) -> None:
        self.peaks: list[int] = []
        self.refused_count = 0

    def note(self, group: ControlGroup) -> None:
        for folder in map(Path, group.folders):
            if (folder / "pids.peak").exists():
                self.peaks.append(int((folder / "pids.peak").read_text()))
            if (folder / "pids.events").exists():
                self.refused_count += int((folder / "pids.events").read_text().split()[1])


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitCheck, "look", lambda _self, _first: None)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    noted, remove = Ledger(), ControlGroup.remove

    def note_and_remove(group: ControlGroup) -> bool:
        noted.note(group)
        return remove(group)

    monkeypatch.setattr(ControlGroup, "remove", note_and_remove)
    return noted


async def test_every_command_says_that_a_group_held_it(groups: Groups, tmp_path: Path) -> None:
    result = await run("true", tmp_path)
    assert result.sandbox == f"{found_sandbox().name}+cgroup"
    without = replace(found_sandbox(), groups=NoGroups("not wanted"))
    result = await ShellRun(without, make_setup()).execute({"command": "true"}, make_context(tmp_path))
    assert result.sandbox == found_sandbox().name


async def test_the_group_is_there_with_its_limits_while_the_command_runs(groups: Groups, tmp_path: Path) -> None:
    tool = ShellRun(found_sandbox(), make_setup(SMALL))
    task = asyncio.create_task(
        tool.execute({"command": "touch begun; sleep 60", "direct": True}, make_context(tmp_path))
    )
    await until((tmp_path / "begun").exists)
    texts = {path.name: path.read_text().strip() for folder in own_folders() for path in folder.glob("*.max")}
    texts |= {
        path.name: path.read_text().strip() for folder in own_folders() for path in folder.glob("*limit_in_bytes")
    }
    assert texts["pids.max"] == str(tasks_max(SMALL))
    assert str(SMALL.memory_bytes) in (texts.get("memory.max"), texts.get("memory.limit_in_bytes"))
    if "memory.memsw.limit_in_bytes" in texts:
        assert texts["memory.memsw.limit_in_bytes"] == str(SMALL.memory_bytes)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_all_of_a_command_is_inside_also_what_left_its_session(groups: Groups, tmp_path: Path) -> None:
    daemon = "setsid bash -c '(trap \"\" HUP TERM; exec sleep 61) >/dev/null 2>&1 </dev/null & touch begun'; sleep 62"
    tool = ShellRun(found_sandbox(), make_setup())
    task = asyncio.create_task(tool.execute({"command": daemon, "direct": True}, make_context(tmp_path)))
    await until((tmp_path / "begun").exists)
    await until(lambda: all(inside(folder) >= {"sleep 61", "sleep 62"} for folder in own_folders()))
    assert len(own_folders()) == len(branches())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_command_sees_only_the_name_of_its_group_and_has_no_way_to_it(groups: Groups, tmp_path: Path) -> None:
    named = await run("cut -d: -f3- /proc/self/cgroup", tmp_path)
    assert {path.rpartition("-")[0] for path in named.output.split()} == {"", f"/{owner_name()}"}
    command = (
        "grep -c palyra /proc/self/mountinfo; ls /sys/fs; ls /proc/self/fd /proc/1/fd | wc -l; env | grep -c cgroup"
    )
    result = await run(command, tmp_path)
    assert "cannot access '/sys/fs'" in result.output
    plain = replace(found_sandbox(), groups=NoGroups("not wanted"))
    without = await ShellRun(plain, make_setup()).execute({"command": command}, make_context(tmp_path))
    assert sorted(result.output.splitlines()) == sorted(without.output.splitlines())


def inside(folder: Path) -> set[str]:
    """Command lines of what is in a group."""
    found = set()
    for pid in (folder / "cgroup.procs").read_text().split():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        found.add(" ".join(words).strip())
    return found


async def test_fork_bomb_is_stopped_by_the_kernel_and_told(
    groups: Groups, unwatched: None, ledger: Ledger, tmp_path: Path
) -> None:
    result = await run("bomb() { sleep 60 & bomb & bomb & }; bomb; sleep 60", tmp_path, limits=SMALL, timeout_s=60)
    assert max(ledger.peaks) <= tasks_max(SMALL)
    if os.geteuid() == 0:  # An ordinary user's are refused earlier, by the limit that each process has.
        assert (result.outcome, code_of(result)) == (Outcome.FAILED, "process_limit")
        assert ledger.refused_count > 0


@pytest.mark.skipif(os.geteuid() != 0, reason=COUNTED_EARLIER)
async def test_touching_the_limit_for_an_instant_is_told_even_if_the_command_went_on(
    groups: Groups, unwatched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("palyra.adapters.runtimes.shell.child.FIRST_LOOK_S", 3600.0)
    command = f"""python3 - <<'END'
import os, time
pids = []
try:
    for _ in range({tasks_max(SMALL)}):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
        pids.append(pid)
except BlockingIOError:
    print("refused")
for pid in pids:
    os.kill(pid, 9)
END
exit 0"""
    result = await run(command, tmp_path, limits=SMALL)
    assert (result.outcome, code_of(result)) == (Outcome.FAILED, "process_limit")
    assert result.error is not None
    assert "ended with exit status 0, but a part of it failed" in result.error.message
    assert "processes or threads" in result.error.message


@pytest.mark.skipif(os.geteuid() != 0, reason=COUNTED_EARLIER)
async def test_as_many_processes_as_are_allowed_fit_with_their_threads(
    groups: Groups, ledger: Ledger, tmp_path: Path
) -> None:
    count = SMALL.processes_count - 2
    wait = f"[time.sleep(0.01) for _ in iter(lambda: len(os.listdir('/tmp/up')) < {count}, False)]"  # For all others.
    threads = f"[threading.Thread(target=lambda: {wait}).start() for _ in range(2)]"
    one = f"import os, threading, time; open('/tmp/up/$i', 'w').close(); {threads}"
    command = f'mkdir /tmp/up; for i in $(seq 1 {count}); do python3 -c "{one}" & done; wait; echo all'
    result = await run(command, tmp_path, limits=replace(SMALL, memory_bytes=1024 * MIB))
    assert (result.outcome, result.output) == (Outcome.OK, "all\n")
    assert max(ledger.peaks) > SMALL.processes_count
    assert ledger.refused_count == 0


async def test_memory_split_over_processes_is_held_by_the_kernel(
    groups: Groups, unwatched: None, tmp_path: Path
) -> None:
    one = HOLDING.format(mib=40, s=60)
    result = await run(f"for i in 1 2 3 4 5 6; do {one} & done; wait", tmp_path, limits=SMALL, timeout_s=60)
    assert (result.outcome, code_of(result)) == (Outcome.FAILED, "memory_limit")


async def test_one_killed_for_want_of_memory_ends_all_of_the_command(
    groups: Groups, unwatched: None, tmp_path: Path
) -> None:
    many = f"for i in 1 2 3 4; do {HOLDING.format(mib=40, s=60)} & done"
    result = await run(f"{many}; wait; sleep 60; echo went on", tmp_path, limits=SMALL, timeout_s=60)
    assert code_of(result) == "memory_limit"
    assert "went on" not in result.output


async def test_want_of_memory_is_told_of_a_command_that_ended_before_anybody_looked(
    groups: Groups, unwatched: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("palyra.adapters.runtimes.shell.child.FIRST_LOOK_S", 3600.0)
    many = f"for i in 1 2 3 4; do {HOLDING.format(mib=40, s=60)} & done"
    result = await run(f"{many}; wait -n; kill $(jobs -p); wait; exit 0", tmp_path, limits=SMALL, timeout_s=60)
    assert (result.outcome, code_of(result)) == (Outcome.FAILED, "memory_limit")


@pytest.mark.parametrize("folder", ["/tmp", "~", "/dev/shm"])
async def test_private_memory_counts_as_the_commands(
    groups: Groups, unwatched: None, tmp_path: Path, folder: str
) -> None:
    limits = replace(SMALL, temporary_bytes=512 * MIB, shared_memory_bytes=512 * MIB)
    command = f"head -c 100M /dev/zero > {folder}/fits && echo fits; head -c 100M /dev/zero > {folder}/more; sleep 60"
    result = await run(command, tmp_path, limits=limits, timeout_s=60)
    assert (result.output.splitlines()[0], code_of(result)) == ("fits", "memory_limit")


async def test_files_of_the_workspace_fit_though_the_kernel_keeps_them_in_memory(groups: Groups) -> None:
    with open_house() as house:  # Not in tmp_path, which may itself be memory, and then counts.
        command = "head -c 400M /dev/zero > big && cat big | wc -c"
        result = await run(command, house.workspace, limits=SMALL, timeout_s=60)
        assert (result.outcome, result.output) == (Outcome.OK, f"{400 * MIB}\n")


async def test_process_in_the_background_has_one_until_it_is_stopped(groups: Groups, tmp_path: Path) -> None:
    setup = make_setup(SMALL)
    asked: JsonObject = {"command": "sleep 60", "background": True}
    result = await ShellRun(found_sandbox(), setup).execute(asked, make_context(tmp_path))
    assert result.sandbox.endswith("+cgroup")
    assert len(own_folders()) == len(branches())
    await setup.processes.stop(setup.processes.list()[0].id)
    await until(lambda: own_folders() == [])


async def test_process_in_the_background_that_hits_a_limit_says_so(
    groups: Groups, unwatched: None, tmp_path: Path
) -> None:
    setup = make_setup(SMALL)
    many = f"for i in 1 2 3 4; do {HOLDING.format(mib=40, s=60)} & done; wait"
    await ShellRun(found_sandbox(), setup).execute({"command": many, "background": True}, make_context(tmp_path))
    process = setup.processes.find(RunId(RUN), setup.processes.list()[0].id)
    assert process is not None
    await process.child.wait()
    assert "was ended: it took more memory" in describe(process, "")


@pytest.mark.parametrize("controllers", [{"memory"}, {"pids"}])
async def test_one_controller_alone_is_used_and_named(
    groups: Groups, unwatched: None, tmp_path: Path, controllers: set[str]
) -> None:
    only = tuple(branch for branch in branches() if branch.controllers == controllers)
    if not only:  # In cgroup v2 both are in one tree, and nothing has to be told apart.
        assert branches()[0].is_unified
        return
    sandbox = replace(found_sandbox(), groups=Groups(only, owner_name()))
    command = f"{HOLDING.format(mib=40, s=60)} & " * 4 + "wait"
    if controllers == {"pids"}:
        command = "bomb() { sleep 60 & bomb & bomb & }; bomb; sleep 60"
    result = await ShellRun(sandbox, make_setup(SMALL)).execute({"command": command}, make_context(tmp_path))
    assert code_of(result) == ("memory_limit" if controllers == {"memory"} else "process_limit")
    assert result.sandbox == f"{sandbox.name}+cgroup.{next(iter(controllers))}"


@pytest.mark.skipif("nobody" not in USERS, reason="only root can become another user")
def test_ordinary_user_without_a_place_is_told_why_and_watched() -> None:
    with open_house("nobody") as house:
        one = HOLDING.format(mib=40, s=60)
        done = attempt("nobody", f"for i in 1 2 3 4 5 6; do {one} & done; wait", house, SMALL)
        assert (done.outcome, done.code) == ("failed", "memory_limit")
        assert "cgroup" not in done.sandbox
        assert "cannot be written" in done.groups
