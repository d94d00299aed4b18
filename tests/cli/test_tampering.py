"""Tampering that must end in plain words, never in a traceback: odd cells, altered schemas, invented nodes."""

import hashlib
import json
import shutil
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner, Result

from palyra.adapters.store.sqlite.archive import Archive
from palyra.cli.main import app
from palyra.core.chain import link, prepare
from palyra.core.checkpoint import anchor_line, anchor_of
from palyra.core.errors import Corrupt
from palyra.core.events.codec import decode_data, encode_erased
from palyra.core.events.system import CheckpointSigned, Erased, SeqRange
from palyra.core.ids import StreamId
from tests.support.homes import TestHome
from tests.support.journals import draft
from tests.support.verification import verify_summary

EVENTS_LOOSE = (
    "ALTER TABLE events RENAME TO strict_events",
    "DROP INDEX events_by_tape",
    "CREATE TABLE events (position INTEGER PRIMARY KEY, tape_id, seq, run_id, type, at_ms, actor, trust, data, salt, "
    "digest, hash)",
    "INSERT INTO events SELECT * FROM strict_events",
    "DROP TABLE strict_events",
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    return TestHome(tmp_path_factory.mktemp("tampering") / "home").fill()


@pytest.fixture
def home(pristine: TestHome, tmp_path: Path) -> TestHome:
    return pristine.copy_to(tmp_path / "home")


def palyra(home: TestHome, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--home", str(home.home.root), *arguments])


def alter(home: TestHome, *statements: str) -> None:
    connection = apsw.Connection(str(home.home.journal))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def assert_refused(home: TestHome, code: str, *words: str) -> None:
    """By verify, and by the rebuild, which trusts nothing that verify would not."""
    for command in (["verify"], ["projections", "rebuild"]):
        result = palyra(home, *command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"error: {code}: ")
        for word in words:
            assert word in result.stderr


@pytest.mark.parametrize("seq", [-1, 0])
def test_checkpoint_moved_to_a_seq_that_no_tape_has_is_named(home: TestHome, seq: int) -> None:
    home.spoil(f"UPDATE events SET seq = {seq} WHERE {home.event(home.system, 1)}")
    result = palyra(home, "verify")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"session {home.system} seq {seq}: a tape has no such seq here")


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["CREATE TRIGGER spy AFTER INSERT ON events BEGIN DELETE FROM usage; END"], "trigger spy was added"),
        (["DROP INDEX runs_by_session"], "index runs_by_session is missing"),
        (["CREATE TABLE notes (text TEXT)"], "table notes was added"),
        (["CREATE VIEW peek AS SELECT data FROM events"], "view peek was added"),
        (["ALTER TABLE runs ADD COLUMN extra TEXT"], "table runs was altered"),
        (["DROP TABLE usage"], "table usage is missing"),
        (EVENTS_LOOSE, "table events was altered"),
        ([*EVENTS_LOOSE, "UPDATE events SET hash = 'text' WHERE seq = 3"], "table events was altered"),
        ([*EVENTS_LOOSE, "UPDATE events SET type = NULL WHERE seq = 3"], "table events was altered"),
    ],
)
def test_altered_schema_is_named(home: TestHome, statements: list[str], words: str) -> None:
    alter(home, *statements)
    assert_refused(home, "schema_altered", words)


@pytest.mark.parametrize("table", ["events", "tapes"])
def test_table_of_facts_that_is_gone_is_named(home: TestHome, table: str) -> None:
    alter(home, f"DROP TABLE {table}")
    assert_refused(home, "schema_altered", table)


def test_name_of_an_added_table_cannot_move_the_cursor(home: TestHome) -> None:
    alter(home, 'CREATE TABLE "x\x1b[2J" (text TEXT)')
    assert_refused(home, "schema_altered", "table x?[2J was added")


def test_schema_is_checked_over_http_too(home: TestHome) -> None:
    alter(home, "DROP INDEX events_by_tape")
    with pytest.raises(Corrupt) as caught:
        verify_summary(home.home)
    assert caught.value.code == "schema_altered"


def test_restore_refuses_a_backup_with_an_altered_schema(home: TestHome, tmp_path: Path) -> None:
    alter(home, "CREATE TABLE notes (text TEXT)")
    assert palyra(home, "backup", str(tmp_path / "backup")).exit_code == 0
    result = palyra(home, "restore", "--replace", "--yes", str(tmp_path / "backup"))
    assert (result.exit_code, result.stderr.split(":")[1]) == (1, " schema_altered")


def test_rebuild_sees_a_damaged_tape_behind_a_hundred_wrong_rows(home: TestHome) -> None:
    alter(
        home,
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120) INSERT INTO runs "
        "SELECT 'invented' || i, session_id, principal, agent, origin, state, reason, NULL, accepted_seq, answer_seq, "
        "ended_seq, input_tokens, output_tokens, cost_nano_usd, unpriced_count, created_at_ms, updated_at_ms, seq, NULL "
        f"FROM n, (SELECT * FROM runs WHERE session_id = '{home.first}')",
    )
    home.spoil(f"UPDATE events SET at_ms = 7 WHERE {home.event(home.second, 5)}")
    result = palyra(home, "projections", "rebuild")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: tape_damaged: session {home.second} seq 5: ")
    assert home.ask("SELECT count(*) FROM runs WHERE id LIKE 'invented%'") == 120


def invent_node(home: TestHome, data: Erased) -> StreamId:
    """A system tape with fitting hashes whose name derives from nobody's key."""
    stream = StreamId("system:" + "Z" * 26)
    salt = bytes(16)
    prepared = prepare(stream, 1, draft(data), salt)
    home.spoil("INSERT INTO tapes (stream) VALUES (?)", stream)
    home.spoil(
        "INSERT INTO events SELECT (SELECT max(position) + 1 FROM events), id, 1, NULL, ?, ?, ?, ?, ?, ?, ?, ? "
        "FROM tapes WHERE stream = ?",
        prepared.header.type,
        prepared.header.at_ms,
        prepared.header.actor,
        prepared.header.trust.value,
        prepared.data_bytes,
        salt,
        prepared.digest,
        link(bytes(32), prepared.header_bytes, prepared.digest),
        stream,
    )
    return stream


def test_erasure_on_record_of_an_invented_node_excuses_nothing(home: TestHome) -> None:
    span = SeqRange(first=3, last=3)
    invented = invent_node(home, Erased(stream=home.second, ranges=(span,), reason="asked"))
    home.spoil(f"UPDATE events SET data = ?, salt = NULL WHERE {home.event(home.second, 3)}", encode_erased("asked"))
    lines = palyra(home, "verify").stdout.splitlines()
    assert f"session {invented} seq 1: no key of this node lies beside the journal" in lines
    assert any(line.startswith(f"session {home.second} seq 3: its data was erased, and no event") for line in lines)


def rewrite(home: TestHome) -> None:
    """What somebody with the disk and without the key can do: no checkpoints, another text, and a chain that fits."""
    home.spoil(f"DELETE FROM events WHERE {home.tape(home.system)}")
    home.spoil("DELETE FROM tapes WHERE stream = ?", home.system)
    with Archive(home.home.journal) as archive:
        stored = list(archive.events(home.second))
    previous = bytes(32)
    for event in stored:
        data = event.data.replace(b"hello", b"hullo")
        digest = hashlib.sha256((event.salt or b"") + data).digest()
        header = {
            "actor": event.actor, "at_ms": event.at_ms, "run_id": event.run_id, "seq": event.seq,
            "session_id": home.second, "trust": event.trust, "type": event.type,
        }  # fmt: skip
        previous = hashlib.sha256(previous + json.dumps(header, separators=(",", ":")).encode() + digest).digest()
        sql = f"UPDATE events SET data = ?, digest = ?, hash = ? WHERE {home.event(home.second, event.seq)}"
        home.spoil(sql, data, digest, previous)


def test_a_rewritten_journal_shows_and_no_start_signs_it_anew(home: TestHome) -> None:
    rewrite(home)
    result = palyra(home, "verify")
    assert result.exit_code == 1
    assert "has signed before, and no checkpoint by it is here" in result.stdout
    with pytest.raises(Corrupt) as refused:
        home.run(lambda journal: journal.checkpoint())
    assert refused.value.code == "checkpoints_gone"


def test_a_journal_signed_anew_by_another_key_does_not_match_its_anchors(home: TestHome, tmp_path: Path) -> None:
    """Whoever also removes the keys has a journal that looks whole; what was written elsewhere shows it."""
    anchors = tmp_path / "anchors.jsonl"
    with Archive(home.home.journal) as archive:
        events = list(archive.events(home.system))
    checkpoints = [decode_data(event.type, event.data) for event in events if event.type == CheckpointSigned.TYPE]
    anchors.write_bytes(b"".join(anchor_line(anchor_of(each, 0)) for each in checkpoints))  # type: ignore[arg-type]
    assert palyra(home, "verify", "--anchor", str(anchors)).exit_code == 0
    rewrite(home)
    shutil.rmtree(home.home.public_keys)
    home.home.signing_key.unlink()
    home.spoil("DELETE FROM events WHERE type = 'tool.finished'")
    result = palyra(home, "verify", "--anchor", str(anchors))
    assert result.exit_code == 1
    assert "which was anchored elsewhere, is not here" in result.stdout


@pytest.mark.parametrize("content", [b"", b"nothing\n", None])
def test_a_file_without_anchors_is_a_clear_error(home: TestHome, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "anchors.jsonl"
    if content is not None:
        path.write_bytes(content)
    result = palyra(home, "verify", "--anchor", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: anchor_")


def test_anchors_are_not_read_from_a_device_that_never_ends(home: TestHome) -> None:
    result = palyra(home, "verify", "--anchor", "/dev/zero")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: anchor_missing: /dev/zero is a device")


@pytest.mark.parametrize("name", ["none", "file"])
def test_keys_that_are_no_directory_are_a_clear_error(home: TestHome, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    result = palyra(home, "verify", "--keys", str(tmp_path / name))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: keys_missing: ")


def test_source_of_a_restore_that_is_a_file_is_a_clear_error(home: TestHome, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("")
    result = palyra(home, "restore", "--replace", "--yes", str(source))
    assert (result.exit_code, result.stderr.split(":")[1]) == (1, " backup_missing")


def test_manifest_that_is_a_directory_is_a_clear_error(home: TestHome, tmp_path: Path) -> None:
    (tmp_path / "source" / "manifest.json").mkdir(parents=True)
    result = palyra(home, "restore", "--replace", "--yes", str(tmp_path / "source"))
    assert (result.exit_code, result.stderr.split(":")[1]) == (1, " backup_unreadable")
