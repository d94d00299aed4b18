"""`palyra journal`, `palyra projections`, `palyra backup` and `palyra restore` from outside."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.adapters.store.sqlite.connection import WriterLock
from palyra.adapters.store.sqlite.migrations import known_migrations
from palyra.cli.main import app
from palyra.ports.journal import Append
from tests.support.homes import ARTIFACT, TestHome
from tests.support.journals import BOB, session_created

NEWEST = known_migrations()[-1].number


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    return TestHome(tmp_path_factory.mktemp("maintenance") / "home").fill()


@pytest.fixture
def home(pristine: TestHome, tmp_path: Path) -> TestHome:
    return pristine.copy_to(tmp_path / "home")


def palyra(home: TestHome, *arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["--home", str(home.home.root), *arguments], input=text)


def answer(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.stderr
    members: dict[str, object] = json.loads(result.stdout)
    return members


def test_journal_tells_what_it_holds(home: TestHome) -> None:
    members = answer(palyra(home, "journal", "info", "--json"))
    assert members["path"] == str(home.home.journal)
    assert members["totals"] == {"schema_version": NEWEST, "tapes_count": 5, "events_count": 56, "last_position": 56}
    assert "56" in palyra(home, "journal", "info").stdout


def test_erased_session_is_gone_with_its_artifact_and_still_verifies(home: TestHome) -> None:
    artifact = next(home.home.artifacts.glob("*/*"))
    assert artifact.read_bytes() == ARTIFACT
    erased = palyra(home, "journal", "erase", home.attested, "--reason", "asked", "--yes", "--json")
    assert answer(erased)["erased_count"] == 7
    assert not artifact.exists()
    exported = palyra(home, "export", home.attested).stdout
    assert {json.dumps(json.loads(line)["data"]) for line in exported.splitlines()} == {'{"erased": "asked"}'}
    assert answer(palyra(home, "verify", "--json"))["ok"] is True


def test_a_session_to_erase_is_named_by_the_beginning_of_its_id(home: TestHome, tmp_path: Path) -> None:
    for name, code in ((home.second[:25], "id_ambiguous"), ("7ZZZ", "session_unknown"), ("system:", "session_unknown")):
        refused = palyra(home, "journal", "erase", name, "--reason", "asked", "--yes")
        assert (refused.exit_code, refused.stderr.split(":")[1]) == (1, f" {code}")
    lone = TestHome(tmp_path / "lone")
    lone.run(lambda journal: journal.commit([Append(lone.second, 0, (session_created(),))]))
    for name in (lone.second[:12].lower(), "last"):
        asked = palyra(lone, "journal", "erase", name, "--reason", "asked", text="n\n")
        assert f"in session {lone.second}, for good?" in asked.stderr
    assert palyra(lone, "journal", "erase", lone.second[:12], "--reason", "asked", "--yes").exit_code == 0
    assert palyra(home, "journal", "erase", "key-02", "--reason", "asked", "--yes").stdout == "18 events erased\n"


def test_nobody_leads_an_operator_to_another_session_by_a_name(home: TestHome, tmp_path: Path) -> None:
    """A session's key is its owner's own choice. The newest session of a name is erased only if one principal uses it."""
    shared = TestHome(tmp_path / "shared")
    theirs = (session_created(BOB, key="work"), session_created(BOB, key=home.second[:12]))
    append = [Append(home.second, 0, (session_created(key="work"),))]
    append += [Append(stream, 0, (draft,)) for stream, draft in zip((home.first, home.attested), theirs, strict=True)]
    shared.run(lambda journal: journal.commit(append))
    for name in ("work", home.second[:12], "last"):
        refused = palyra(shared, "journal", "erase", name, "--reason", "asked", "--yes")
        assert (refused.exit_code, refused.stderr.split(":")[1]) == (1, " id_ambiguous")
    assert palyra(shared, "journal", "erase", home.second, "--reason", "asked", "--yes").exit_code == 0
    assert palyra(shared, "export", "work").stdout.count(home.first) == 1


def test_single_events_can_be_erased(home: TestHome) -> None:
    arguments = ["journal", "erase", home.second, "--seq", "3", "--seq", "5-7", "--reason", "held a secret", "--yes"]
    assert palyra(home, *arguments).stdout == "4 events erased\n"
    summary = answer(palyra(home, "verify", "--json"))["summary"]
    assert isinstance(summary, dict)
    assert summary["erased_count"] == 4


def test_session_with_branches_is_erased_only_with_them(home: TestHome) -> None:
    alone = palyra(home, "journal", "erase", home.first, "--reason", "asked", "--yes")
    assert (alone.exit_code, alone.stderr.split(":")[1]) == (1, " has_branches")
    together = palyra(home, "journal", "erase", home.first, "--reason", "asked", "--yes", "--with-branches")
    assert together.stdout == "28 events erased\n"
    assert answer(palyra(home, "verify", "--json"))["ok"] is True


def test_nothing_is_erased_without_a_yes(home: TestHome) -> None:
    before = home.home.journal.read_bytes()
    for text in ("n\n", ""):
        refused = palyra(home, "journal", "erase", home.second, "--reason", "asked", text=text)
        assert refused.exit_code == 1
        assert palyra(home, "journal", "retain", "--older-than", "1h", text=text).exit_code == 1
    assert home.home.journal.read_bytes() == before
    agreed = palyra(home, "journal", "erase", home.second, "--reason", "asked", text="y\n")
    assert agreed.exit_code == 0


@pytest.mark.parametrize("seqs", ["0", "x", "7-3", "1-99999999999"])
def test_seqs_that_are_none_are_wrong_usage(home: TestHome, seqs: str) -> None:
    result = palyra(home, "journal", "erase", home.second, "--seq", seqs, "--reason", "asked", "--yes")
    assert result.exit_code == 2


def test_old_sessions_are_listed_then_erased_with_their_branches(home: TestHome) -> None:
    due = answer(palyra(home, "journal", "retain", "--older-than", "1d", "--dry-run", "--json"))["session_ids"]
    assert due == [home.first, home.branch, home.second, home.attested]
    assert palyra(home, "journal", "retain", "--older-than", "50y", "--yes").stdout == "0 events erased\n"
    done = palyra(home, "journal", "retain", "--older-than", "1d", "--yes", "--json")
    assert answer(done)["erased_count"] == 14 + 18 + 14 + 7
    again = answer(palyra(home, "journal", "retain", "--older-than", "1d", "--dry-run", "--json"))
    assert again["session_ids"] == []
    assert answer(palyra(home, "verify", "--json"))["ok"] is True


@pytest.mark.parametrize("text", ["90", "d", "0d", "-1d", "1.5d", "1m"])
def test_duration_that_is_none_is_a_clear_error(home: TestHome, text: str) -> None:
    result = palyra(home, "journal", "retain", f"--older-than={text}", "--yes")
    assert (result.exit_code, result.stderr.split(":")[1]) == (1, " duration_invalid")


def test_vacuum_keeps_everything(home: TestHome) -> None:
    palyra(home, "journal", "erase", home.second, "--reason", "asked", "--yes")
    assert palyra(home, "journal", "vacuum").exit_code == 0
    assert answer(palyra(home, "verify", "--json"))["ok"] is True


def test_rebuild_prints_and_mends_what_differed(home: TestHome) -> None:
    home.spoil("UPDATE runs SET input_tokens = 7 WHERE session_id = ?", home.first)
    home.spoil("DELETE FROM usage WHERE session_id = ?", home.second)
    result = palyra(home, "projections", "rebuild")
    assert result.exit_code == 0
    assert "input_tokens is 7, its events say 1200" in result.stdout
    assert result.stdout.endswith("2 rows differed and were computed again\n")
    assert answer(palyra(home, "verify", "--json"))["ok"] is True
    assert answer(palyra(home, "projections", "rebuild", "--json")) == {
        "ok": True,
        "rebuilt_count": 0,
        "differences": [],
    }


def test_rebuild_from_a_damaged_tape_is_refused(home: TestHome) -> None:
    home.spoil(f"DELETE FROM events WHERE {home.event(home.first, 8)}")
    result = palyra(home, "projections", "rebuild")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: tape_damaged: session {home.first} seq 8: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["journal", "vacuum"],
        ["journal", "retain", "--older-than", "1d", "--yes"],
        ["projections", "rebuild"],
    ],
)
def test_maintenance_beside_a_daemon_is_refused(home: TestHome, arguments: list[str]) -> None:
    lock = WriterLock(home.home.journal)
    result = palyra(home, *arguments)
    lock.release()
    assert (result.exit_code, result.stderr.split(":")[1]) == (1, " journal_in_use")


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["export", "--all"],
        ["backup", "somewhere"],
        ["journal", "info"],
        ["journal", "vacuum"],
        ["projections", "rebuild"],
    ],
)
def test_home_without_a_journal_is_a_clear_error_and_stays_empty(tmp_path: Path, arguments: list[str]) -> None:
    empty = tmp_path / "home"
    empty.mkdir()
    result = CliRunner().invoke(app, ["--home", str(empty), *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: journal_missing: ")
    assert list(empty.iterdir()) == []


def test_what_is_no_backup_is_told_before_the_journal_that_is_there(home: TestHome, tmp_path: Path) -> None:
    assert palyra(home, "restore", str(tmp_path / "nothing")).stderr.startswith("error: backup_missing: ")


def test_backup_and_restore_go_round(home: TestHome, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    assert answer(palyra(home, "backup", "--with-keys", str(backup), "--json"))["last_position"] == 56
    assert palyra(home, "backup", str(backup)).stderr.startswith("error: backup_exists: ")
    assert palyra(home, "restore", str(backup)).stderr.startswith("error: journal_exists: ")
    home.append_run(home.first)
    assert palyra(home, "restore", "--replace", str(backup), text="n\n").exit_code == 1
    restored = palyra(home, "restore", "--replace", "--yes", str(backup))
    assert restored.stdout == f"{home.home.journal}: 56 events, verified\n"
    assert answer(palyra(home, "verify", "--json"))["ok"] is True
