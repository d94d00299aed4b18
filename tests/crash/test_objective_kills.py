"""A run whose answer is under review, killed around every commit: it is checked once, and no review is made twice."""

from pathlib import Path

from tests.support.commit_kills import points_of


def test_a_run_killed_at_any_step_ends_with_the_one_review_of_its_answer(tmp_path: Path) -> None:
    found = points_of("objective_kills", str(tmp_path))
    assert len(found) > 10
    charges = [left.pop("charges_count") for left in found]
    for left, charges_count in zip(found, charges, strict=True):
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
