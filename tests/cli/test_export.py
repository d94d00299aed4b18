"""`palyra export`: lines that others can check, and the check of such lines."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.adapters.store.sqlite.journal import SqliteJournal
from palyra.cli.main import app
from palyra.core.chain import to_wire
from palyra.core.ids import Principal
from palyra.ports.journal import Erasure
from tests.support.homes import TestHome
from tests.support.journals import START_MS


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    filled = TestHome(tmp_path_factory.mktemp("export") / "home").fill()
    erasure = Erasure(stream=filled.second, seqs=(3,), reason="asked", actor=Principal("user:owner"), at_ms=START_MS)
    filled.run(lambda journal: journal.erase([erasure]))
    return filled


def palyra(home: TestHome, *arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["--home", str(home.home.root), *arguments], input=text)


def test_lines_are_the_export_form_of_the_events(home: TestHome) -> None:
    result = palyra(home, "export", home.first)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [line["seq"] for line in lines] == list(range(1, 15))
    wanted = []

    async def read(journal: SqliteJournal) -> None:
        for event in await journal.read(home.first, 0, 100):
            wanted.append({**to_wire(event), "salt": event.salt, "d": event.digest})

    home.run(read)
    assert lines == json.loads(json.dumps(wanted))
    assert list(lines[0]) == list(wanted[0])


def test_system_tape_is_exported_too(home: TestHome) -> None:
    lines = [json.loads(line) for line in palyra(home, "export", home.system).stdout.splitlines()]
    assert {line["type"] for line in lines} == {"checkpoint.signed", "erased"}


def test_all_tapes_go_into_one_file_system_tapes_first(home: TestHome, tmp_path: Path) -> None:
    result = palyra(home, "export", "--all", "--output", str(tmp_path / "all.jsonl"))
    assert (result.exit_code, result.stdout) == (0, "")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert len(lines) == 58
    assert lines[0]["session_id"] == home.system
    assert [path.name for path in tmp_path.iterdir()] == ["all.jsonl"]
    checked = palyra(home, "export", "--check", str(tmp_path / "all.jsonl"), "--json")
    answer = json.loads(checked.stdout)
    assert (checked.exit_code, answer["ok"]) == (0, True)
    assert (answer["summary"]["tapes_count"], answer["summary"]["erased_count"]) == (5, 1)


def test_check_reads_standard_input(home: TestHome) -> None:
    exported = palyra(home, "export", home.first).stdout
    checked = palyra(home, "export", "--check", "-", text=exported)
    assert checked.exit_code == 0
    assert "nobody" not in checked.stdout  # A file has no keys beside it, which is no finding.
    assert "signatures" in checked.stdout


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"actor":"user:alice"', '"actor":"user:malice"'),
        ('"limit":200', '"limit":201'),
        ('"trust":"operator"', '"trust":"system"'),
    ],
)
def test_check_names_the_first_line_that_was_changed(home: TestHome, old: str, new: str) -> None:
    lines = palyra(home, "export", home.first).stdout.splitlines()
    index = next(index for index, line in enumerate(lines) if old in line)
    lines[index] = lines[index].replace(old, new)
    result = palyra(home, "export", "--check", "-", "--json", text="\n".join(lines))
    first = json.loads(result.stdout)["first_bad"]
    assert (result.exit_code, first["session_id"], first["seq"]) == (1, home.first, index + 1)


def test_check_names_a_line_that_was_taken_out(home: TestHome) -> None:
    lines = palyra(home, "export", home.first).stdout.splitlines()
    del lines[4]
    result = palyra(home, "export", "--check", "-", text="\n".join(lines))
    assert result.exit_code == 1
    assert result.stdout.startswith(f"session {home.first} seq 5: this event is missing\n")


def test_check_refuses_what_is_no_export(home: TestHome) -> None:
    result = palyra(home, "export", "--check", "-", text='{"seq":1}\n')
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: export_line_invalid: line 1: ")


def test_check_of_nothing_is_no_success(home: TestHome, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    for name in (str(tmp_path / "empty.jsonl"), "-"):
        result = palyra(home, "export", "--check", name, text="")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "no events" in result.stderr


def test_missing_file_is_a_clear_error(home: TestHome, tmp_path: Path) -> None:
    assert palyra(home, "export", "--check", str(tmp_path / "none")).stderr.startswith("error: file_unreadable: ")
    unwritable = palyra(home, "export", home.first, "--output", str(tmp_path / "none" / "file"))
    assert unwritable.stderr.startswith("error: file_unwritable: ")


def test_unknown_session_is_a_clear_error(home: TestHome) -> None:
    result = palyra(home, "export", "01JXQ0Z7N8E4T5Y6W7V8S9R0QP")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: session_unknown: ")
    assert palyra(home, "export", "../x").stderr.startswith("error: session_unknown: ")


@pytest.mark.parametrize("arguments", [[], ["--all", "--check", "-"], ["01JXQ0Z7N8E4T5Y6W7V8S9R0QP", "--all"]])
def test_one_thing_must_be_said(home: TestHome, arguments: list[str]) -> None:
    assert palyra(home, "export", *arguments).exit_code == 2


def test_damaged_data_is_not_exported_in_silence(home: TestHome, tmp_path: Path) -> None:
    copy = home.copy_to(tmp_path / "home")
    copy.spoil(f"UPDATE events SET data = x'7b' WHERE {copy.event(copy.first, 3)}")
    result = palyra(copy, "export", copy.first)
    assert result.exit_code == 1
    assert f"session {copy.first} seq 3" in result.stderr


def test_a_session_is_named_by_its_key_or_as_the_last_used(home: TestHome) -> None:
    whole = palyra(home, "export", home.first).stdout
    assert palyra(home, "export", "key-01").stdout == whole
    sessions = {json.loads(line)["session_id"] for line in palyra(home, "export", "last").stdout.splitlines()}
    assert sessions == {"01JXT21Q000000000000000004"}, "the one that was written to last"


@pytest.mark.parametrize("name", ["nope", "", "system:nowhere"])
def test_an_unknown_session_is_told_with_the_command_that_lists_them(home: TestHome, name: str) -> None:
    refused = palyra(home, "export", name)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "session_unknown" in refused.stderr
    assert "palyra sessions list" in refused.stderr or "palyra export --all" in refused.stderr
