"""A compaction is recorded whole or not at all, and can be undone, wherever the daemon is killed."""

from pathlib import Path

from tests.support.commit_kills import points_of


def test_killed_at_every_step_a_session_is_compacted_once_and_goes_on(tmp_path: Path) -> None:
    points = points_of("compaction_kills", str(tmp_path))
    # The compaction and the checkpoint before it are one commit.
    assert {(point["found_count"], point["checkpoints_count"]) for point in points} == {(0, 0), (1, 1)}
    assert {point["after_count"] for point in points} == {1}
    assert all(point["is_restored"] and point["has_rule"] for point in points)
    assert {state for point in points for state in point["states"]} == {"done"}
