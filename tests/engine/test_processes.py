"""Background processes through the engine: shown redacted, and stopped, for the owner of their run alone (L11)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.core.errors import NotFound
from palyra.core.ids import RunId
from palyra.engine.api.requests import RunRecord
from palyra.engine.engine import Engine
from tests.support.asking import SEND_THEN_ANSWER, ask, wait_for
from tests.support.engines import ALICE, OWNER, Workshop
from tests.support.processes import STOPPED, FakeProcesses

pytestmark = pytest.mark.anyio

KEY = "AKIAJ5Q7XK2M6WBTN4RD"


class Stage:
    def __init__(self, engine: Engine, processes: FakeProcesses, run: RunRecord, other: RunRecord) -> None:
        self.engine, self.processes, self.run, self.other = engine, processes, run, other


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    workshop = Workshop(tmp_path, SEND_THEN_ANSWER)
    workshop.processes = processes = FakeProcesses()
    async with workshop.open() as engine:
        runs = [await engine.runs.start(OWNER, ask(session_key=key)) for key in ("a", "b")]
        for run in runs:
            await wait_for(engine, run.id, "run.waiting")
        yield Stage(engine, processes, *runs)


async def test_a_runs_processes_are_listed_without_secrets_and_no_others(stage: Stage) -> None:
    process_id = stage.processes.begin(stage.run, f"AWS_ACCESS_KEY_ID={KEY} serve")
    stage.processes.begin(stage.other)
    (record,) = await stage.engine.runs.processes.list(OWNER, stage.run.id)
    assert record.id == process_id
    assert KEY not in record.command
    assert record.command.endswith(" serve")


async def test_a_process_is_stopped_once_and_told_with_its_end(stage: Stage) -> None:
    process_id = stage.processes.begin(stage.run)
    for _ in range(2):
        record = await stage.engine.runs.processes.stop(OWNER, stage.run.id, process_id)
        assert record.exit_code == STOPPED
    assert stage.processes.stopped == [process_id]


async def test_a_process_is_stopped_only_under_its_own_run(stage: Stage) -> None:
    process_id = stage.processes.begin(stage.other)
    for asked in (process_id, "p999", "../p1"):
        with pytest.raises(NotFound, match="process_unknown"):
            await stage.engine.runs.processes.stop(OWNER, stage.run.id, asked)
    assert stage.processes.stopped == []


async def test_nobody_sees_or_stops_anothers(stage: Stage) -> None:
    process_id = stage.processes.begin(stage.run)
    for run_id in (stage.run.id, RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV")):
        with pytest.raises(NotFound, match="run_unknown"):
            await stage.engine.runs.processes.list(ALICE, run_id)
        with pytest.raises(NotFound, match="run_unknown"):
            await stage.engine.runs.processes.stop(ALICE, run_id, process_id)
    assert stage.processes.stopped == []
