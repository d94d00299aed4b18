"""Remembering and forgetting happen whole or not at all, wherever the daemon is killed; index and items always agree."""

from pathlib import Path

from tests.support.commit_kills import points_of
from tests.support.memory_kills import ITEMS_COUNT

POINTS_MIN = 6  # On either side of remembering, forgetting, erasing the tape, and noting that.


def test_killed_at_every_step_items_are_there_or_gone_and_never_between(tmp_path: Path) -> None:
    points = points_of("memory_kills", str(tmp_path))
    assert len(points) > POINTS_MIN
    for number, point in enumerate(points, 1):
        assert point["boxes"] in (0, ITEMS_COUNT), number
        assert point["found_boxes"] == point["boxes"], number
        assert point["found_marked"] == point["marked"], number
        assert point["stray"] == 0, number
        assert point["is_in_file"] is bool(point["marked"]), number
    assert (points[-1]["boxes"], points[-1]["marked"]) == (ITEMS_COUNT, 0)
