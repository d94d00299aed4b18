"""`palyra verify` on real journals that someone has tampered with: each finding names the tape and the seq."""

import hashlib
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from palyra.cli.commands.verify import show_report
from palyra.cli.main import app
from palyra.core.chain import Header
from palyra.core.checkpoint import draft_checkpoint, key_id, sign_bytes
from palyra.core.events.codec import decode_data, encode_data, encode_erased
from palyra.core.events.system import CheckpointSigned
from palyra.core.ids import Principal, StreamId, derive_node_id
from palyra.core.trust import Trust
from palyra.ports.journal import Erasure
from tests.support.evidence import Scene
from tests.support.homes import TestHome
from tests.support.journals import START_MS, FixedSigner, Ids, run_cycle, session_created


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    return TestHome(tmp_path_factory.mktemp("verify") / "home").fill()


@pytest.fixture
def home(pristine: TestHome, tmp_path: Path) -> TestHome:
    return pristine.copy_to(tmp_path / "home")


def verify(home: TestHome, *arguments: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(app, ["--home", str(home.home.root), "verify", "--json", *arguments])
    assert result.stderr == ""
    return result.exit_code, json.loads(result.stdout)


def assert_first_bad(home: TestHome, stream: StreamId, seq: int, words: str) -> None:
    """In JSON and in text, with exit code 1."""
    code, answer = verify(home)
    first = answer["first_bad"]
    assert isinstance(first, dict)
    assert (code, answer["ok"], first["session_id"], first["seq"]) == (1, False, stream, seq)
    assert words in first["what"]
    text = CliRunner().invoke(app, ["--home", str(home.home.root), "verify"])
    assert text.exit_code == 1
    assert text.stdout.startswith(f"session {stream} seq {seq}: {first['what']}\n")


def test_untouched_journal_passes(home: TestHome) -> None:
    code, answer = verify(home)
    assert (code, answer["ok"], answer["first_bad"], answer["findings"]) == (0, True, None, [])
    assert answer["summary"] == {
        "tapes_count": 5,
        "events_count": 14 + 18 + 14 + 7 + 3,
        "erased_count": 0,
        "checkpoints_count": 3,
        "attestations_count": 4,
        "unchecked_attestations_count": 0,
        "unsigned_erased_count": 0,
        "unsigned_events_count": 0,
        "findings_count": 0,
        "key_ids": [key_id(home.signer.public_key)],
    }


def test_flipped_byte_in_data_is_named(home: TestHome) -> None:
    where = home.event(home.second, 3)
    data = bytearray(home.ask(f"SELECT data FROM events WHERE {where}"))
    data[10] ^= 1
    home.spoil(f"UPDATE events SET data = ? WHERE {where}", bytes(data))
    assert_first_bad(home, home.second, 3, "digest")


@pytest.mark.parametrize(
    "change",
    ["actor = 'user:malice'", "at_ms = at_ms + 1", "type = 'run.failed'", "trust = 'system'", "run_id = NULL"],
)
def test_changed_header_column_is_named(home: TestHome, change: str) -> None:
    home.spoil(f"UPDATE events SET {change} WHERE {home.event(home.first, 6)}")
    assert_first_bad(home, home.first, 6, "hash")


def test_text_that_is_no_text_any_more_is_named(home: TestHome) -> None:
    home.spoil(f"UPDATE events SET actor = CAST(x'757365723aff' AS TEXT) WHERE {home.event(home.first, 6)}")
    assert_first_bad(home, home.first, 6, "hash")


@pytest.mark.parametrize("column", ["hash", "digest"])
def test_flipped_byte_in_a_hash_is_named(home: TestHome, column: str) -> None:
    where = home.event(home.first, 4)
    stored = bytearray(home.ask(f"SELECT {column} FROM events WHERE {where}"))
    stored[0] ^= 1
    home.spoil(f"UPDATE events SET {column} = ? WHERE {where}", bytes(stored))
    assert_first_bad(home, home.first, 4, "hash")


def test_removed_event_is_named(home: TestHome) -> None:
    home.spoil(f"DELETE FROM events WHERE {home.event(home.first, 7)}")
    assert_first_bad(home, home.first, 7, "this event is missing")


def test_removed_first_event_is_named(home: TestHome) -> None:
    home.spoil(f"DELETE FROM events WHERE {home.event(home.first, 1)}")
    assert_first_bad(home, home.first, 1, "this event is missing")


def test_swapped_pair_is_named(home: TestHome) -> None:
    for old, new in ((5, 1000), (6, 5), (1000, 6)):
        home.spoil(f"UPDATE events SET seq = {new} WHERE {home.event(home.first, old)}")
    assert_first_bad(home, home.first, 5, "hash")


def test_truncated_tail_is_named(home: TestHome) -> None:
    home.spoil(f"DELETE FROM events WHERE {home.tape(home.second)} AND seq >= 16")
    assert_first_bad(home, home.second, 16, "the tape was cut here")


def test_truncated_system_tape_shows_by_what_it_signed_of_itself(home: TestHome) -> None:
    home.append_run(home.first)
    home.spoil(f"DELETE FROM events WHERE {home.event(home.system, 2)}")
    assert_first_bad(home, home.system, 2, "missing")


def test_removed_tape_is_named(home: TestHome) -> None:
    home.spoil(f"DELETE FROM events WHERE {home.tape(home.branch)}")
    home.spoil("DELETE FROM tapes WHERE stream = ?", home.branch)
    home.spoil("DELETE FROM sessions WHERE id = ?", home.branch)
    home.spoil("DELETE FROM runs WHERE session_id = ?", home.branch)
    home.spoil("DELETE FROM usage WHERE session_id = ?", home.branch)
    assert_first_bad(home, home.branch, 1, "the tape is missing")


def test_events_that_lost_their_tape_are_named(home: TestHome) -> None:
    tape_id = home.ask("SELECT id FROM tapes WHERE stream = ?", home.branch)
    home.spoil("DELETE FROM tapes WHERE stream = ?", home.branch)
    _, answer = verify(home)
    named = [(finding["session_id"], finding["seq"]) for finding in answer["findings"]]  # type: ignore[attr-defined]
    assert named[0] == (home.branch, 1)
    assert (f"tape:{tape_id}", 1) in named


def test_edited_projection_row_is_named(home: TestHome) -> None:
    run = home.ask("SELECT id FROM runs WHERE session_id = ? ORDER BY id", home.first)
    home.spoil("UPDATE runs SET cost_nano_usd = 5 WHERE id = ?", run)
    assert_first_bad(home, home.first, 14, f"runs row {run}: cost_nano_usd is 5, its events say 2100000")


def test_edited_label_is_named_without_its_text(home: TestHome) -> None:
    home.spoil("UPDATE sessions SET label = 'my secret' WHERE id = ?", home.first)
    _, answer = verify(home)
    assert_first_bad(home, home.first, 14, "label is not what its events say")
    assert "secret" not in json.dumps(answer)
    assert "private" not in json.dumps(answer)


def test_invented_and_missing_rows_are_named(home: TestHome) -> None:
    home.spoil("UPDATE approvals SET id = 'invented'")
    code, answer = verify(home)
    words = [finding["what"] for finding in answer["findings"]]  # type: ignore[attr-defined]
    assert code == 1
    assert words[0] == "approvals row invented comes from no event"
    assert words[1].endswith("is missing")


def replace_checkpoint(home: TestHome, seq: int, data: CheckpointSigned) -> None:
    """What a careful forger writes: the event's digest and the chain after it fit the new data."""
    encoded = encode_data(data)
    salt = home.ask(f"SELECT salt FROM events WHERE {home.event(home.system, seq)}")
    home.spoil(
        f"UPDATE events SET data = ?, digest = ? WHERE {home.event(home.system, seq)}",
        encoded,
        hashlib.sha256(salt + encoded).digest(),
    )
    rechain(home, home.system)


def rechain(home: TestHome, stream: StreamId) -> None:
    previous = bytes(32)
    last = home.ask(f"SELECT max(seq) FROM events WHERE {home.tape(stream)}")
    for seq in range(1, last + 1):
        where = home.event(stream, seq)
        header = Header(
            actor=Principal(home.ask(f"SELECT actor FROM events WHERE {where}")),
            at_ms=home.ask(f"SELECT at_ms FROM events WHERE {where}"),
            run_id=home.ask(f"SELECT run_id FROM events WHERE {where}"),
            seq=seq,
            session_id=stream,
            trust=Trust(home.ask(f"SELECT trust FROM events WHERE {where}")),
            type=home.ask(f"SELECT type FROM events WHERE {where}"),
        )
        digest = home.ask(f"SELECT digest FROM events WHERE {where}")
        previous = hashlib.sha256(previous + msgspec.json.encode(header, order="sorted") + digest).digest()
        home.spoil(f"UPDATE events SET hash = ? WHERE {where}", previous)


def checkpoint(home: TestHome, seq: int) -> CheckpointSigned:
    data = decode_data("checkpoint.signed", home.ask(f"SELECT data FROM events WHERE {home.event(home.system, seq)}"))
    assert isinstance(data, CheckpointSigned)
    return data


def test_checkpoint_signed_anew_with_an_unknown_key_is_named(home: TestHome) -> None:
    mallory = FixedSigner(9)
    old = checkpoint(home, 2)
    unsigned = draft_checkpoint(mallory.public_key, old.previous, old.position, old.heads)
    replace_checkpoint(home, 2, msgspec.structs.replace(unsigned, signature=mallory.sign(sign_bytes(unsigned)).hex()))
    assert_first_bad(home, home.system, 2, "a key that does not lie beside the journal")


def test_checkpoint_signed_anew_with_a_planted_key_is_named(home: TestHome) -> None:
    mallory = FixedSigner(9)
    (home.home.public_keys / f"{key_id(mallory.public_key)}.pub").write_text(mallory.public_key.hex() + "\n")
    old = checkpoint(home, 2)
    forged = msgspec.structs.replace(
        draft_checkpoint(mallory.public_key, old.previous, old.position, old.heads),
        node=derive_node_id(home.signer.public_key),
    )
    replace_checkpoint(home, 2, msgspec.structs.replace(forged, signature=mallory.sign(sign_bytes(forged)).hex()))
    assert_first_bad(home, home.system, 2, "a key that is not this node's")


def test_checkpoint_with_edited_heads_is_named(home: TestHome) -> None:
    old = checkpoint(home, 2)
    replace_checkpoint(home, 2, msgspec.structs.replace(old, heads=old.heads[1:]))
    assert_first_bad(home, home.system, 2, "signature does not hold")


def test_checkpoint_edited_without_care_is_named(home: TestHome) -> None:
    old = checkpoint(home, 2)
    home.spoil(
        f"UPDATE events SET data = ? WHERE {home.event(home.system, 2)}",
        encode_data(msgspec.structs.replace(old, heads=())),
    )
    assert_first_bad(home, home.system, 2, "digest")


def test_checkpoint_with_a_bad_signature_is_named(home: TestHome) -> None:
    old = checkpoint(home, 1)
    replace_checkpoint(home, 1, msgspec.structs.replace(old, signature="00" * 64))
    assert_first_bad(home, home.system, 1, "signature does not hold")


def test_tape_rewritten_with_fitting_hashes_is_named_by_what_was_signed(home: TestHome) -> None:
    home.spoil(f"UPDATE events SET actor = 'user:malice' WHERE {home.event(home.first, 6)}")
    rechain(home, home.first)
    assert_first_bad(home, home.first, 14, f"not the event that {home.system} seq 2 signed")


def test_false_attestation_is_named(home: TestHome) -> None:
    where = home.event(home.attested, 6)
    data = home.ask(f"SELECT data FROM events WHERE {where}").replace(
        b'"sandbox":"bubblewrap"', b'"sandbox":"firejail"'
    )
    salt = home.ask(f"SELECT salt FROM events WHERE {where}")
    digest = hashlib.sha256(salt + data).digest()
    home.spoil(f"UPDATE events SET data = ?, digest = ? WHERE {where}", data, digest)
    rechain(home, home.attested)
    assert_first_bad(home, home.attested, 6, "the attestation's signature does not hold")


def test_erasure_that_nobody_recorded_is_named(home: TestHome) -> None:
    home.spoil(
        f"UPDATE events SET data = ?, salt = NULL WHERE {home.event(home.second, 3)}", encode_erased("retention")
    )
    assert_first_bad(home, home.second, 3, "no event on a system tape records that")


def test_erased_event_of_a_system_tape_is_named(home: TestHome) -> None:
    home.spoil(f"UPDATE events SET data = ?, salt = NULL WHERE {home.event(home.system, 1)}", encode_erased("forget"))
    assert_first_bad(home, home.system, 1, "no event on a system tape records that")


def test_journal_with_recorded_erasures_passes(home: TestHome) -> None:
    def erasure(stream: StreamId, seqs: tuple[int, ...] | None) -> Erasure:
        return Erasure(stream=stream, seqs=seqs, reason="asked", actor=Principal("user:owner"), at_ms=START_MS)

    home.run(lambda journal: journal.erase([erasure(home.second, (3, 4, 9)), erasure(home.attested, None)]))
    code, answer = verify(home)
    assert (code, answer["findings"]) == (0, [])
    summary = answer["summary"]
    assert isinstance(summary, dict)
    assert (summary["erased_count"], summary["unsigned_events_count"]) == (10, 0)


def test_keys_kept_elsewhere_can_be_trusted_instead(home: TestHome, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code, answer = verify(home, "--keys", str(elsewhere))
    assert (code, answer["first_bad"]["session_id"]) == (1, home.system)  # type: ignore[index]
    shutil.copytree(home.home.public_keys, elsewhere, dirs_exist_ok=True)
    assert verify(home, "--keys", str(elsewhere))[0] == 0


def test_damaged_pages_are_an_error_of_their_own(home: TestHome) -> None:
    with home.home.journal.open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xa5" * 4096)
    result = CliRunner().invoke(app, ["--home", str(home.home.root), "verify"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: journal_damaged: ")


def test_a_signed_text_that_an_unsigned_record_erased_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    scene, stream = Scene(), StreamId("7" + "Z" * 25)
    scene.append(stream, [session_created(), *run_cycle(Ids().run())])
    scene.checkpoint()
    scene.erase(stream, [3])
    show_report(scene.verify(), as_json=False)
    assert "whole; 1 signed text was erased by a record that nobody has signed" in capsys.readouterr().out
