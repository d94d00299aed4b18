"""Backup and restore: complete or absent, checked before anything is replaced, and safe to kill at every step."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from palyra.adapters.store.sqlite.connection import JournalSettings, WriterLock
from palyra.adapters.store.sqlite.journal import open_journal
from palyra.adapters.store.sqlite.migrations import known_migrations
from palyra.app import Home, back_up, back_up_with_keys, open_archive, open_public_keys, restore, restore_replacing
from palyra.core.errors import PalyraError
from palyra.core.verification import VerifyReport, verify
from palyra.ports.journal import Append
from tests.support.homes import TestHome
from tests.support.journals import FixedClock

NEWEST = known_migrations()[-1].number

ROOT = Path(__file__).parents[2]


def in_silence(done: int, total: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    return TestHome(tmp_path_factory.mktemp("backup") / "home").fill()


@pytest.fixture(scope="module")
def saved(filled: TestHome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of `filled`, keys included: 56 events."""
    destination = tmp_path_factory.mktemp("saved") / "backup"
    back_up_with_keys(filled.home, destination, in_silence)
    return destination


def report_of(home: Home) -> VerifyReport:
    with open_archive(home) as archive:
        return verify(archive.evidence(open_public_keys(home.public_keys)))


def refusal(act: object) -> str:
    assert callable(act)
    with pytest.raises(PalyraError) as caught:
        act()
    return caught.value.code


def files_in(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_backup_holds_what_its_manifest_says(filled: TestHome, saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["format_version"] == 1
    assert (manifest["schema_version"], manifest["last_position"]) == (NEWEST, 56)
    assert files_in(saved) == sorted([*manifest["files"], "manifest.json"])
    sums = {name: hashlib.sha256((saved / name).read_bytes()).hexdigest() for name in manifest["files"]}
    assert sums == manifest["files"]
    assert len([name for name in sums if name.startswith("artifacts/")]) == 1
    assert [path.name for path in saved.parent.iterdir()] == ["backup"]


def test_private_keys_are_copied_only_when_asked(filled: TestHome, saved: Path, tmp_path: Path) -> None:
    back_up(filled.home, tmp_path / "backup", in_silence)
    assert not (tmp_path / "backup" / "signing.key").exists()
    assert (saved / "signing.key").read_bytes() == filled.home.signing_key.read_bytes()
    assert stat.S_IMODE((saved / "signing.key").stat().st_mode) == 0o600


def test_progress_is_told_to_the_end(filled: TestHome, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    back_up(filled.home, tmp_path / "backup", lambda done, total: heard.append((done, total)))
    assert heard[-1][0] == heard[-1][1] > 0


@pytest.mark.anyio
async def test_backup_beside_a_writer_is_one_moment_of_it(filled: TestHome, tmp_path: Path) -> None:
    home = filled.copy_to(tmp_path / "home")
    journal = open_journal(JournalSettings(path=home.home.journal), home.signer, FixedClock())
    await journal.commit([Append(home.first, 14, tuple(home.cycle()))])
    back_up(home.home, tmp_path / "backup", in_silence)
    await journal.commit([Append(home.first, 27, tuple(home.cycle()))])
    await journal.close()
    report = restore(Home(tmp_path / "other"), tmp_path / "backup")
    assert (report.is_whole, report.summary.events_count) == (True, 56 + 13)


def test_existing_destination_is_never_touched(filled: TestHome, tmp_path: Path) -> None:
    assert refusal(lambda: back_up(filled.home, tmp_path, in_silence)) == "backup_exists"
    assert refusal(lambda: back_up(filled.home, tmp_path / "no" / "where", in_silence)) == "directory_missing"
    assert list(tmp_path.iterdir()) == []


def test_failed_backup_leaves_nothing_behind(tmp_path: Path) -> None:
    home = Home(tmp_path / "empty")
    assert refusal(lambda: back_up(home, tmp_path / "backup", in_silence)) == "journal_missing"
    assert list(tmp_path.iterdir()) == []


def test_restore_into_an_empty_home_brings_everything_back(filled: TestHome, saved: Path, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    assert restore(other, saved).summary.events_count == 56
    kept = [name for name in files_in(other.root) if name != "journal.db.lock"]
    assert kept == [name for name in files_in(saved) if name != "manifest.json"]
    assert report_of(other).is_whole
    assert other.signing_key.read_bytes() == filled.home.signing_key.read_bytes()


def test_restored_journal_goes_on(filled: TestHome, saved: Path, tmp_path: Path) -> None:
    restore(Home(tmp_path / "other"), saved)
    other = filled.copy_to(tmp_path / "ignored")
    other.home = Home(tmp_path / "other")
    other.append_run(other.first)
    assert report_of(other.home).summary.unsigned_events_count == 0
    assert report_of(other.home).is_whole


def test_journal_that_is_there_is_not_replaced_unasked(filled: TestHome, saved: Path, tmp_path: Path) -> None:
    home = filled.copy_to(tmp_path / "home")
    before = home.home.journal.read_bytes()
    assert refusal(lambda: restore(home.home, saved)) == "journal_exists"
    assert home.home.journal.read_bytes() == before


def test_replaced_journal_is_moved_aside_and_whole(filled: TestHome, saved: Path, tmp_path: Path) -> None:
    home = filled.copy_to(tmp_path / "home")
    home.append_run(home.first)
    count = report_of(home.home).summary.events_count
    restore_replacing(home.home, saved)
    assert report_of(home.home).summary.events_count == 56
    asides = list(home.home.root.glob("journal.db.replaced-*"))
    assert len(asides) == 1
    asides[0].replace(home.home.journal)
    assert report_of(home.home).summary.events_count == count


def test_keys_of_the_home_are_kept(saved: Path, tmp_path: Path) -> None:
    other = TestHome(tmp_path / "other").fill()
    own = other.home.signing_key.read_bytes()
    restore_replacing(other.home, saved)
    assert other.home.signing_key.read_bytes() == own
    assert len(list(other.home.public_keys.glob("*.pub"))) == 2
    assert report_of(other.home).is_whole


@pytest.mark.parametrize("content", [b"", b"Dear diary, " * 1000])
def test_journal_that_is_beyond_reading_is_set_aside_as_it_lies(saved: Path, tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.journal.write_bytes(content)
    (home.root / "journal.db-wal").write_bytes(b"what is left of a log")
    restore_replacing(home, saved)
    assert report_of(home).summary.events_count == 56
    assert not (home.root / "journal.db-wal").exists()
    assert any(path.read_bytes() == content for path in home.root.glob("journal.db.replaced-*"))


def test_log_of_a_journal_that_was_taken_away_is_not_played_into_the_new_one(saved: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    (home.root / "journal.db-wal").write_bytes(b"orphan")
    restore(home, saved)
    assert report_of(home).summary.events_count == 56
    assert [path.read_bytes() for path in home.root.glob("journal.db.replaced-*-wal")] == [b"orphan"]


def test_restore_beside_a_daemon_is_refused(filled: TestHome, saved: Path, tmp_path: Path) -> None:
    home = filled.copy_to(tmp_path / "home")
    lock = WriterLock(home.home.journal)
    assert refusal(lambda: restore_replacing(home.home, saved)) == "journal_in_use"
    lock.release()


def test_restore_beside_a_reader_is_refused_and_changes_nothing(filled: TestHome, saved: Path, tmp_path: Path) -> None:
    home = filled.copy_to(tmp_path / "home")
    with open_archive(home.home):
        assert refusal(lambda: restore_replacing(home.home, saved)) == "journal_busy"
    assert not list(home.home.root.glob("journal.db.replaced-*"))
    assert report_of(home.home).is_whole


def spoiled(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "spoiled"))


@pytest.mark.parametrize("name", ["journal.db", "signing.key", "artifacts/*/*", "keys/*"])
@pytest.mark.parametrize("is_removed", [True, False])
def test_damaged_backup_is_refused_before_anything_is_touched(
    saved: Path, tmp_path: Path, name: str, is_removed: bool
) -> None:
    backup = spoiled(saved, tmp_path)
    path = next(backup.glob(name))
    if is_removed:
        path.unlink()
    else:
        body = path.read_bytes()
        path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    other = Home(tmp_path / "other")
    assert refusal(lambda: restore(other, backup)) == "backup_damaged"
    assert files_in(other.root) == ["journal.db.lock"]


def rewrite_manifest(backup: Path, **changes: object) -> None:
    members = json.loads((backup / "manifest.json").read_text())
    (backup / "manifest.json").write_text(json.dumps({**members, **changes}))


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "artifacts/../../x", "palyra.toml", "keys/x.pub"])
def test_manifest_cannot_lead_elsewhere(saved: Path, tmp_path: Path, name: str) -> None:
    backup = spoiled(saved, tmp_path)
    files = json.loads((backup / "manifest.json").read_text())["files"]
    rewrite_manifest(backup, files={**files, name: "0" * 64})
    assert refusal(lambda: restore(Home(tmp_path / "other"), backup)) == "backup_name_invalid"


def test_newer_or_unfinished_backup_is_refused(saved: Path, tmp_path: Path) -> None:
    backup = spoiled(saved, tmp_path)
    rewrite_manifest(backup, format_version=2)
    assert refusal(lambda: restore(Home(tmp_path / "other"), backup)) == "backup_newer"
    (backup / "manifest.json").write_text("{")
    assert refusal(lambda: restore(Home(tmp_path / "other"), backup)) == "backup_damaged"
    (backup / "manifest.json").unlink()
    assert refusal(lambda: restore(Home(tmp_path / "other"), backup)) == "backup_missing"


def test_tampered_journal_is_not_restored_though_its_sum_fits(filled: TestHome, tmp_path: Path) -> None:
    home = filled.copy_to(tmp_path / "home")
    home.spoil(f"UPDATE events SET at_ms = 1 WHERE {home.event(home.first, 3)}")
    back_up(home.home, tmp_path / "backup", in_silence)
    with pytest.raises(PalyraError) as caught:
        restore(Home(tmp_path / "other"), tmp_path / "backup")
    assert f"session {home.first} seq 3" in caught.value.message


def kill_points(act: str, home: Path, backup: Path, work: Path) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "tests.support.kill_points", act, str(home), str(backup), str(work)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, timeout=60, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert run.returncode == 0, run.stderr.decode()
    return [msgspec.json.decode(line) for line in run.stdout.splitlines()]


def test_backup_killed_at_any_step_is_complete_or_absent(filled: TestHome, tmp_path: Path) -> None:
    left = kill_points("backup", filled.home.root, tmp_path, tmp_path / "work")
    assert len(left) > 20
    assert [point for point in left if point["exists"] and point["restored"] != 56] == []
    assert (left[0]["exists"], left[-1]["exists"], left[-1]["was_killed"]) == (False, True, False)
    assert report_of(filled.home).is_whole


def test_restore_killed_at_any_step_leaves_the_old_journal_or_the_new(
    filled: TestHome, saved: Path, tmp_path: Path
) -> None:
    home = filled.copy_to(tmp_path / "home")
    home.append_run(home.first)
    old = report_of(home.home).summary.events_count
    left = kill_points("restore", home.home.root, saved, tmp_path / "work")
    assert len(left) > 30
    assert {point["events_count"] for point in left} == {old, 56}
    assert [point for point in left if point["events_count"] == 56 and point["aside_events_count"] != [old]] == []
    tried_again = [(point["again"], point["staging"]) for point in left if "again" in point]
    assert len(tried_again) > 5
    assert [again for again in tried_again if again != (56, [])] == []


@pytest.mark.parametrize("is_in_backup", [True, False])
def test_a_pipe_in_place_of_a_journal_is_refused_and_not_waited_for(
    saved: Path, tmp_path: Path, is_in_backup: bool
) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    backup = shutil.copytree(saved, tmp_path / "backup")
    journal = backup / "journal.db" if is_in_backup else home.journal
    journal.unlink(missing_ok=True)
    os.mkfifo(journal)
    with pytest.raises(PalyraError):
        restore_replacing(home, backup)


def test_the_journal_in_a_backup_is_private(saved: Path) -> None:
    assert stat.S_IMODE((saved / "journal.db").stat().st_mode) == 0o600


def linked(link: Path, elsewhere: Path) -> None:
    """Moves what is there away, and leads to it."""
    elsewhere.parent.mkdir(exist_ok=True)
    link.rename(elsewhere)
    link.symlink_to(elsewhere)


@pytest.mark.parametrize("member", ["artifacts", "artifacts/*", "artifacts/*/*", "keys", "keys/*", "journal.db"])
def test_a_restore_reads_no_member_through_a_link(saved: Path, tmp_path: Path, member: str) -> None:
    """The sums fit: whoever made the backup knew what the link leads to."""
    backup = Path(shutil.copytree(saved, tmp_path / "backup"))
    linked(next(backup.glob(member)), tmp_path / "elsewhere")
    new = Home(tmp_path / "new")
    assert refusal(lambda: restore(new, backup)) == "restore_through_link"
    assert not new.journal.exists()


@pytest.mark.parametrize("folder", ["artifacts", "keys", "artifacts/*"])
def test_a_restore_writes_through_no_link(saved: Path, tmp_path: Path, folder: str) -> None:
    new, elsewhere = Home(tmp_path / "new"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = new.root / next(saved.glob(folder)).relative_to(saved)
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    assert refusal(lambda: restore(new, saved)) == "restore_through_link"
    assert list(elsewhere.iterdir()) == []
    assert not new.journal.exists()
