"""A delegation that is killed around every commit: the child runs once, its answer arrives, and no child is left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600


def points(act: str, folder: Path) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "tests.support.delegation_kills", act, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_parent_killed_at_any_step_gets_the_answer_of_the_one_child(tmp_path: Path) -> None:
    found = points("finish", tmp_path)
    assert found[-1].pop("was_killed") is False
    assert len(found) > 12
    for left in found:
        left.pop("was_killed", None)
        assert left == {
            "answer": "All done.",
            "outputs": ["Seen."],
            "children": ["done"],
            "runs_count": 2,
            "accepted_count": 1,
            "ends_count": 1,
        }


def test_a_cancel_reaches_the_child_whatever_is_killed_between(tmp_path: Path) -> None:
    found = points("cancel", tmp_path)
    assert found[-1]["was_killed"] is False
    assert len(found) > 4
    assert [left["states"] for left in found] == [["cancelled", "cancelled"]] * len(found)


@pytest.mark.anyio
async def test_a_run_without_children_queues_no_job(tmp_path: Path) -> None:
    from tests.support.asking import says
    from tests.support.delegating import delegating, run

    async with delegating(tmp_path, ("", (says("Done."),))).open() as engine:
        await run(engine)
        counts = await engine.jobs.counts()
    assert [count for count in counts if count.kind == "delegation"] == []
