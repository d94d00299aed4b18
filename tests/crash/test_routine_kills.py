"""A routine's due time has one run, wherever the daemon is killed while it fires."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.routines import START_MS

TIMEOUT_S = 300.0
POINTS_MIN = 8  # On either side of firing, claiming the job, driving the run, and ending the job.


def test_killed_at_every_step_a_due_time_fires_exactly_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.routine_kills", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    points = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(points) > POINTS_MIN
    assert [point["was_killed"] for point in points] == [True] * (len(points) - 1) + [False]
    once = {"fired_count": 1, "runs": ["done"], "history": [[START_MS + 60_000, None, "done"]], "counted": 1}
    for number, point in enumerate(points, 1):
        assert {name: point[name] for name in once} == once, number
        assert not point["is_broken"]
