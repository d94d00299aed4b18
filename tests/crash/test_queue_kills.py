"""Workers that are killed: no job is lost, none is stuck, and an effect that commits with its job happens once."""

from pathlib import Path

from palyra.core.jobs.model import JobState
from tests.crash.queue_campaign import run_campaign

JOBS_COUNT = 600


def test_killed_workers_lose_no_job_and_repeat_no_committed_effect(tmp_path: Path) -> None:
    outcome = run_campaign(tmp_path, JOBS_COUNT, seed=7)
    assert outcome.kills_count > 1
    assert outcome.states == {JobState.DONE: JOBS_COUNT}
    assert (outcome.missing_count, outcome.repeated_exact_count) == (0, 0)
