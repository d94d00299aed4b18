"""A kill between the record of an action and the action: the record stays, and the next process goes on from it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.core.healing.model import HealingMode
from palyra.core.run.states import RunState
from tests.support.healing import HangingProvider, watched, watched_workshop
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The folder of an engine that was killed just before its first action."""
    command = [sys.executable, "-m", "tests.crash.watchdog_kill", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=WAIT_S, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    return tmp_path


async def test_a_kill_between_the_record_and_the_action_loses_neither_run_nor_count(killed: Path) -> None:
    workshop = watched_workshop(killed, HangingProvider(), HealingMode.AUTO, provider=HealingMode.OBSERVE_ONLY)
    async with watched(workshop) as scene:
        (row,) = [row for row in await scene.incidents(None) if row.domain.value == "run"]
        assert (row.acted_count, row.told_count) == (1, 0)
        assert (await scene.story())[-1] == "redrive_run begun"
        await scene.pass_s(60)
        run = await scene.engine._setup.views.runs.run(row.subject, None)  # type: ignore[arg-type]
        assert run is not None
        assert run.state is RunState.IN_PROGRESS
        assert "resolved gone" in await scene.story()
