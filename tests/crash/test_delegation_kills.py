"""A delegation that is killed around every commit: the child runs once, its answer arrives, and no child is left."""

from pathlib import Path

import pytest

from tests.support.commit_kills import points_of


def test_a_parent_killed_at_any_step_gets_the_answer_of_the_one_child(tmp_path: Path) -> None:
    found = points_of("delegation_kills", "finish", str(tmp_path))
    assert len(found) > 12
    for left in found:
        assert left == {
            "answer": "All done.",
            "outputs": ["Seen."],
            "children": ["done"],
            "runs_count": 2,
            "accepted_count": 1,
            "ends_count": 1,
        }


def test_a_cancel_reaches_the_child_whatever_is_killed_between(tmp_path: Path) -> None:
    found = points_of("delegation_kills", "cancel", str(tmp_path))
    assert len(found) > 4
    assert [left["states"] for left in found] == [["cancelled", "cancelled"]] * len(found)


@pytest.mark.anyio
async def test_a_run_without_children_queues_no_job(tmp_path: Path) -> None:
    from tests.support.asking import says
    from tests.support.delegating import delegating, run

    async with delegating(tmp_path, ("", (says("Done."),))).open() as engine:
        await run(engine)
        counts = await engine.jobs.counts()
    assert [count for count in counts if count.kind == "delegation"] == []
