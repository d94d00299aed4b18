"""The short form of the fault campaign: a sample of its points, a few real deaths, and proof that it can fail."""

from pathlib import Path

import apsw
import pytest

from tests.crash.audit import Problem, Wrong
from tests.crash.full_disks import meet_file_limit, meet_full_file_system, small_file_system
from tests.crash.kills import KillRounds
from tests.crash.ledger import Ledger, Outcome
from tests.crash.points import Kind, Point
from tests.crash.scene import JOURNAL_NAME
from tests.crash.trial import Campaign, Sabotage, Trial, examine_image, run_undisturbed

SEED = 20_260
POINTS_A_KIND = 6
SABOTAGED_POINTS = 24  # Enough that some of them fall between a commit and the sync it should have had.
KILLS_COUNT = 5


def sample(campaign: Campaign, kind: Kind, count: int) -> list[Trial]:
    """Points of one kind, spread over the whole load."""
    length = campaign.first_length()
    total = length.read_count if kind is Kind.READ_ERROR else length.operation_count
    story_seed = campaign.point(1).story_seed
    operations = [1 + (2 * index + 1) * total // (2 * count) for index in range(count)]
    return [campaign.run(Point(at, kind, story_seed, at, chance_seed=at)) for at in operations]


def problems_of(trials: list[Trial]) -> list[str]:
    return [f"{trial.point}: {problem}" for trial in trials for problem in trial.problems]


@pytest.mark.parametrize("kind", Kind)
def test_no_fault_of_the_disk_loses_or_tears_a_commit(kind: Kind, tmp_path: Path) -> None:
    trials = sample(Campaign(SEED, tmp_path), kind, POINTS_A_KIND)
    assert problems_of(trials) == []
    assert all(trial.was_hit for trial in trials)


def test_a_load_is_the_same_in_every_run_so_that_a_point_can_be_repeated(tmp_path: Path) -> None:
    lengths = {Campaign(SEED, tmp_path).first_length() for _ in range(3)}
    assert len(lengths) == 1


def test_no_kill_loses_or_tears_a_commit(tmp_path: Path) -> None:
    rounds = KillRounds(tmp_path, SEED)
    problems = [problem for _ in range(KILLS_COUNT) for problem in rounds.run_round()]
    assert [str(problem) for problem in problems] == []
    assert rounds.ledger.count(Outcome.ACKNOWLEDGED) > KILLS_COUNT


def test_commits_go_on_after_files_may_grow_again(tmp_path: Path) -> None:
    outage = meet_file_limit(tmp_path, SEED)
    assert [str(problem) for problem in outage.problems] == []
    assert outage.failed_count > 0


def test_commits_go_on_after_a_full_file_system_got_room(tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    try:
        with small_file_system(mounted):
            outage = meet_full_file_system(mounted, SEED)
    except PermissionError as reason:
        pytest.skip(str(reason))
    assert [str(problem) for problem in outage.problems] == []
    assert outage.failed_count > 0


@pytest.mark.parametrize(
    "sabotage", [Sabotage(is_disk_lying=True), Sabotage(durability="normal")], ids=["lying_disk", "normal_durability"]
)
def test_audit_notices_acknowledged_commits_that_were_not_synced(sabotage: Sabotage, tmp_path: Path) -> None:
    trials = sample(Campaign(SEED, tmp_path, sabotage), Kind.POWER_LOSS, SABOTAGED_POINTS)
    assert Wrong.LOST in {problem.wrong for trial in trials for problem in trial.problems}


DAMAGES = {
    "a commit is gone": (Wrong.LOST, "DELETE FROM events WHERE at_ms = (SELECT max(at_ms) FROM events)"),
    "half a commit is gone": (
        Wrong.TORN,
        """DELETE FROM events WHERE position IN (
            SELECT max(position) FROM events GROUP BY at_ms HAVING count(*) > 1)""",
    ),
    "a lease is gone": (Wrong.STATE, "DELETE FROM leases WHERE name LIKE 'lease-%'"),
    "a secret came back": (Wrong.STATE, "INSERT INTO sealed_secrets VALUES ('run', 'secret', x'00')"),
    "a projection is another": (Wrong.VERIFY, "UPDATE sessions SET label = 'other'"),
    "an event is another": (
        Wrong.VERIFY,
        """UPDATE events SET data = CAST(replace(CAST(data AS TEXT), '"text":"', '"text":"z') AS BLOB)
            WHERE type = 'message.user'""",
    ),
    "an item is gone": (Wrong.STATE, "DELETE FROM memory_items WHERE number = (SELECT max(number) FROM memory_items)"),
    "an item is in no index": (
        Wrong.VERIFY,
        "DELETE FROM memory_words WHERE rowid = (SELECT max(number) FROM memory_items)",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_audit_notices_damage(name: str, tmp_path: Path) -> None:
    wrong, sql = DAMAGES[name]
    ledger = Ledger()
    run_undisturbed(tmp_path, ledger, SEED)
    connection = apsw.Connection(str(tmp_path / JOURNAL_NAME))
    connection.execute(sql)
    connection.close()
    assert wrong in {problem.wrong for problem in examine_image(tmp_path, ledger)}


def test_audit_notices_a_refused_commit_that_is_there(tmp_path: Path) -> None:
    ledger = Ledger()
    run_undisturbed(tmp_path, ledger, SEED)
    last = [attempt for attempt in ledger.attempts() if attempt.event_counts and attempt.facts][-1]
    ledger.settle(last.number, Outcome.REFUSED)
    assert ghost_of(last.number) in examine_image(tmp_path, ledger)


def ghost_of(number: int) -> Problem:
    return Problem(Wrong.GHOST, f"attempt {number} (refused) is there")
