"""A run whose answer is under review, killed around every commit: it is checked once, and no review is made twice."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600


def test_a_run_killed_at_any_step_ends_with_the_one_review_of_its_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.objective_kills", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert found[-1].pop("was_killed") is False
    assert len(found) > 10
    charges = [left.pop("charges_count") for left in found]
    for left, charges_count in zip(found, charges, strict=True):
        left.pop("was_killed", None)
        assert left.pop("asked_count") <= charges_count
        assert left == {
            "state": "done",
            "answer": "By the almanac.",
            "objectives": ["met", "met"],
            "checks_count": 1,
            "reviews": ["done"],
            "is_replayed": True,
        }
    # Only a kill between the intent of the call and its outcome costs the reservation of the lost call too (L9).
    assert set(charges) == {1, 2}
