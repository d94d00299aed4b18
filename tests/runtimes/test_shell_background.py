"""Processes that go on after their call: owned by a run, seen by it alone, and never left over."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.adapters.runtimes.shell import processes
from palyra.adapters.runtimes.shell import run as calls
from palyra.adapters.runtimes.shell.background import PAGE_LENGTH_MAX, ShellList, ShellOutput, ShellStop
from palyra.adapters.runtimes.shell.processes import RUNNING_PER_RUN_MAX
from palyra.adapters.runtimes.shell.run import ShellRun, ShellSetup
from palyra.core.events.tool import EffectClass, Outcome
from palyra.core.ids import RunId
from palyra.core.tools import ToolResult
from palyra.ports.processes import Processes
from tests.runtimes.shells import SECRET, found_sandbox, make_context, make_setup
from tests.support.waiting import WAIT_S, until

pytestmark = pytest.mark.anyio
ONE, OTHER = "01JZ0000000000000000RUN001", "01JZ0000000000000000RUN002"


class Desk:
    """The tools of one daemon, called for one run or another."""

    def __init__(self, root: Path) -> None:
        self.setup: ShellSetup = make_setup()
        self.root = root
        self.processes = self.setup.processes

    async def start(self, command: str, run: str = ONE) -> ToolResult:
        tool = ShellRun(found_sandbox(), self.setup)
        return await tool.execute({"command": command, "background": True}, make_context(self.root, run=run))

    async def output(self, run: str = ONE, **arguments: object) -> ToolResult:
        return await ShellOutput(self.setup).execute(dict(arguments), make_context(self.root, run=run))

    async def list(self, run: str = ONE) -> str:
        return (await ShellList(self.processes).execute({}, make_context(self.root, run=run))).output

    async def stop(self, process_id: str, run: str = ONE) -> ToolResult:
        return await ShellStop(self.processes).execute({"id": process_id}, make_context(self.root, run=run))

    def id_of(self, place: int = 0) -> str:
        return self.processes.list()[place].id


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    for place, name in ((processes, "STOP_WAIT_S"), (calls, "CANCEL_WAIT_S")):
        monkeypatch.setattr(place, name, WAIT_S)  # Killing may take a busy machine long.
    made = Desk(tmp_path)
    yield made
    await made.processes.close()
    assert made.processes.list() == ()


async def test_start_returns_at_once_with_an_id_and_the_first_output(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await desk.start("echo ready; sleep 300")
    for wait_s in (5.0, 50.0):  # On a busy machine a sandbox starts later.
        if "ready" not in result.output:
            await desk.processes.end_run(RunId(ONE))
            monkeypatch.setattr(calls, "FIRST_WAIT_S", wait_s)
            result = await desk.start("echo ready; sleep 300")
    assert result.outcome is Outcome.OK
    assert f"[Process {desk.id_of()} runs in the background. Read on with offset 6.]\nready\n" == result.output
    assert result.sandbox.startswith("bwrap+seccomp")
    assert desk.id_of() in await desk.list()


async def test_early_death_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FIRST_WAIT_S", WAIT_S)
    result = await desk.start("echo broken >&2; exit 7")
    assert "has ended with exit status 7" in result.output
    assert "broken" in result.output
    assert desk.processes.list()[0].exit_code == 7


async def test_output_is_read_on_from_an_offset_and_only_its_end_is_kept(desk: Desk) -> None:
    await desk.start("for i in 1 2 3; do echo line $i; done; head -c 400000 /dev/zero | tr '\\0' x; echo end")
    child = desk.processes.find(RunId(ONE), desk.id_of())
    assert child is not None
    await child.child.wait()
    end = child.window.end
    assert end == 400_000 + 25
    latest = await desk.output()
    assert latest.output.endswith("xend\n")
    assert len(latest.output) < PAGE_LENGTH_MAX + 300
    first = await desk.output(id=desk.id_of(), offset=0)
    assert "no longer kept" in first.output
    assert "[read on with offset" in first.output
    assert (await desk.output(offset=end - 4)).output.endswith("]\nend\n")
    assert (await desk.output(offset=end + 10)).output.endswith("]\n")


async def test_stopping_ends_it_and_doing_so_again_changes_nothing(desk: Desk) -> None:
    await desk.start("trap '' TERM INT; sleep 60")
    process_id = desk.id_of()
    for _ in range(2):
        result = await desk.stop(process_id)
        assert (result.outcome, process_id in result.output) == (Outcome.OK, True)
    assert desk.processes.list()[0].exit_code == 137
    assert "was stopped" in (await desk.output(id=process_id)).output
    assert (await desk.stop("p00000000")).outcome is Outcome.OK


async def test_one_run_never_sees_anothers(desk: Desk) -> None:
    await desk.start("echo mine; sleep 60", ONE)
    process_id = desk.id_of()
    assert process_id not in await desk.list(OTHER)
    assert (await desk.output(OTHER, id=process_id)).error is not None
    await desk.stop(process_id, OTHER)
    assert desk.processes.list(RunId(ONE))[0].exit_code is None
    assert desk.processes.list(RunId(OTHER)) == ()


async def test_processes_end_with_their_run(desk: Desk) -> None:
    await desk.start("sleep 60", ONE)
    await desk.start("sleep 60", OTHER)
    child = desk.processes.find(RunId(ONE), desk.id_of())
    assert child is not None
    await desk.processes.end_run(RunId(ONE))
    assert child.child.is_over
    assert [record.run_id for record in desk.processes.list()] == [OTHER]
    assert await desk.processes.stop("p00000000") is False


async def test_there_is_a_largest_number(desk: Desk) -> None:
    for _ in range(RUNNING_PER_RUN_MAX):
        assert (await desk.start("sleep 60")).outcome is Outcome.OK
    refused = await desk.start("sleep 60")
    assert refused.error is not None
    assert refused.error.code == "too_many_processes"
    await desk.stop(desk.id_of())
    assert (await desk.start("sleep 60")).outcome is Outcome.OK


async def test_cancelling_the_start_ends_the_process(desk: Desk) -> None:
    task = asyncio.create_task(desk.start("sleep 60"))
    await until(desk.processes.list)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.processes.list()[0].exit_code == 137


async def test_secrets_of_a_command_are_not_listed(desk: Desk) -> None:
    await desk.start(f"echo {SECRET} >/dev/null; sleep 60")
    assert SECRET not in desk.processes.list()[0].command
    assert SECRET not in await desk.list()


async def test_nothing_started_is_said_and_bad_calls_are_values(desk: Desk) -> None:
    assert "No process" in await desk.list()
    assert "No process" in (await desk.output()).output
    for arguments in ({"offset": -1}, {"offset": "x"}, {"offset": True}, {"id": "p00000000"}, {"id": ""}, {"id": 3}):
        assert (await desk.output(**arguments)).error is not None
    assert (await ShellStop(desk.processes).execute({}, make_context(desk.root))).error is not None


async def test_looking_is_read_only_and_stopping_is_idempotent(desk: Desk) -> None:
    tools = (ShellList(desk.processes), ShellOutput(desk.setup), ShellStop(desk.processes))
    natures = [tool.nature({}, (str(desk.root),)).effect_class for tool in tools]
    assert natures == [EffectClass.READ_ONLY, EffectClass.READ_ONLY, EffectClass.IDEMPOTENT]


def test_registry_is_what_the_engine_wants(tmp_path: Path) -> None:
    registry: Processes = make_setup().processes
    assert registry.list() == ()
