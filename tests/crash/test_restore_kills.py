"""A restored session is there whole or not at all, wherever the daemon is killed."""

from pathlib import Path

from tests.support.commit_kills import points_of


def test_killed_at_every_step_a_restore_happened_or_did_not(tmp_path: Path) -> None:
    points = points_of("restore_kills", str(tmp_path))
    found = {(*point["pins_count"], point["checkpoints_count"], point["restored_count"]) for point in points}
    # The daemon's own jobs commit beside it, so kills may come at an earlier step, or none at one. Nothing lies between.
    assert {(0, 0, 0), (1, 1, 1, 1)} <= found <= {(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1, 1)}
    assert all(point["is_same"] for point in points)
