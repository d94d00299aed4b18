"""Remembering and forgetting happen whole or not at all, wherever the daemon is killed; index and items always agree."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.memory_kills import ITEMS_COUNT

TIMEOUT_S = 300.0
POINTS_MIN = 6  # On either side of remembering, forgetting, erasing the tape, and noting that.


def test_killed_at_every_step_items_are_there_or_gone_and_never_between(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.memory_kills", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    points = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(points) > POINTS_MIN
    assert [point["was_killed"] for point in points] == [True] * (len(points) - 1) + [False]
    for number, point in enumerate(points, 1):
        assert not point["is_broken"], number
        assert point["is_whole"], number
        assert point["boxes"] in (0, ITEMS_COUNT), number
        assert point["found_boxes"] == point["boxes"], number
        assert point["found_marked"] == point["marked"], number
        assert point["stray"] == 0, number
        assert point["is_in_file"] is bool(point["marked"]), number
    assert (points[-1]["boxes"], points[-1]["marked"]) == (ITEMS_COUNT, 0)
