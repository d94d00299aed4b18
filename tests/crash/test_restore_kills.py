"""A restored session is there whole or not at all, wherever the daemon is killed."""

import json
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 120.0


def test_killed_at_every_step_a_restore_happened_or_did_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.restore_kills", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    points = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {(*point["pins_count"], point["checkpoints_count"], point["restored_count"]) for point in points}
    # The daemon's own jobs commit beside it, so a later kill may come at an earlier step. Nothing lies in between.
    assert found == {(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1, 1)}
    assert [point["was_killed"] for point in points] == [True] * (len(points) - 1) + [False]
    assert all(point["is_whole"] and point["is_same"] for point in points)
