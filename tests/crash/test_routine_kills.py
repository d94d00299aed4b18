"""A routine's due time has one run, wherever the daemon is killed while it fires."""

from pathlib import Path

from tests.support.commit_kills import points_of
from tests.support.routines import START_MS

POINTS_MIN = 8  # On either side of firing, claiming the job, driving the run, and ending the job.


def test_killed_at_every_step_a_due_time_fires_exactly_once(tmp_path: Path) -> None:
    points = points_of("routine_kills", str(tmp_path))
    assert len(points) > POINTS_MIN
    once = {"fired_count": 1, "runs": ["done"], "history": [[START_MS + 60_000, None, "done"]], "counted": 1}
    for number, point in enumerate(points, 1):
        assert {name: point[name] for name in once} == once, number
