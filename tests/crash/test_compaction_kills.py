"""A compaction is recorded whole or not at all, and can be undone, wherever the daemon is killed."""

import json
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 240.0


def test_killed_at_every_step_a_session_is_compacted_once_and_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.compaction_kills", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    points = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [point["was_killed"] for point in points] == [True] * (len(points) - 1) + [False]
    # The compaction and the checkpoint before it are one commit.
    assert {(point["found_count"], point["checkpoints_count"]) for point in points} == {(0, 0), (1, 1)}
    assert {point["after_count"] for point in points} == {1}
    assert all(point["is_whole"] and point["is_restored"] and point["has_rule"] for point in points)
    assert {state for point in points for state in point["states"]} == {"done"}
