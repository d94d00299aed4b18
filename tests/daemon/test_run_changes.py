"""What a run changed, and putting it back, from the command line with a real daemon."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.adapters.drafts.layers import SessionLayers
from palyra.cli.main import app
from tests.support.daemons import Daemon

SCRIPT = """
[[scripts]]
when = "nothing"
[[scripts.turns]]
text = "Nothing to do."
[[scripts]]
[[scripts.turns]]
calls = [{ tool = "shell.run", arguments = { command = "printf 'one\\ttab\\n' >> notes; rm gone; echo new > made" } }]
[[scripts.turns]]
text = "It is done."
"""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "home", SCRIPT)
    (made.home / "workspace").mkdir()
    (made.home / "workspace/notes").write_text("zero\n")
    (made.home / "workspace/gone").write_text("gone\n")
    monkeypatch.setenv("PALYRA_HOME", str(made.home))
    monkeypatch.setenv("PALYRA_SERVER__HTTP", f"127.0.0.1:{made.port}")
    with made:
        _, run = made.call("POST", "/api/v1/runs", {"text": "go"})
        assert [event for event in made.follow(run["id"]) if event["type"] == "run.done"]
        yield made


def palyra(*arguments: str, said: str = "") -> Result:
    return CliRunner().invoke(app, ["runs", *arguments], input=said)


def test_a_run_is_shown_line_by_line_and_undone_after_a_yes(daemon: Daemon) -> None:
    workspace = daemon.home / "workspace"
    lines = palyra("diff", "last").output.splitlines()
    assert {"modified notes", "+one\ttab", "deleted gone", "-gone", "created made", "+new"} <= set(lines)
    refused = palyra("undo", "last", said="n\n")
    assert ("+new" in refused.output.splitlines(), refused.exit_code) == (True, 1)
    assert (workspace / "made").exists()
    assert "Undone: 1 change of run" in palyra("undo", "last", "--path", "made", "--yes").output
    assert "[undone: it is as it was before]" in palyra("diff", "last", "--path", "made").output
    assert palyra("undo", "last", "--path", "absent").exit_code == 1
    assert palyra("undo", "last", said="y\n").exit_code == 0
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"notes": "zero\n", "gone": "gone\n"}
    assert "[undone: it is as it was before]" in palyra("diff", "last", "--path", "notes").output
    assert palyra("undo", "last").output == "There was nothing to undo: the files are as they were before the run.\n"


def test_a_run_that_changed_nothing_has_nothing_to_undo(daemon: Daemon) -> None:
    _, run = daemon.call("POST", "/api/v1/runs", {"text": "nothing"})
    assert [event for event in daemon.follow(run["id"]) if event["type"] == "run.done"]
    assert palyra("undo", "last").output == "The run changed nothing in the workspace.\n"


def test_an_undo_stops_at_a_file_that_changed_since(daemon: Daemon) -> None:
    (daemon.home / "workspace/notes").write_text("mine\n")
    refused = palyra("undo", "last", "--yes")
    assert refused.exit_code == 1
    assert "notes" in refused.stderr
    assert (daemon.home / "workspace/notes").read_text() == "mine\n"
    assert not (daemon.home / "workspace/gone").exists()


def test_what_a_session_keeps_apart_is_shown_and_applied_after_a_yes(daemon: Daemon) -> None:
    assert palyra("keep").output == "The session keeps nothing apart from the workspace.\n"
    (run, *_) = daemon.call("GET", "/api/v1/runs")[1]["items"]
    workspace = (daemon.home / "workspace").resolve()
    tree = Path(SessionLayers(daemon.home / "drafts")._made(run["session_id"], str(workspace)))
    (tree / "build").mkdir()
    (tree / "build/app").write_bytes(b"\x00")
    (tree / "words").write_text("words\n")
    refused = palyra("keep", "last", said="n\n")
    assert {"created build/app", "created words", "+words"} <= set(refused.output.splitlines())
    assert refused.exit_code == 1
    assert palyra("keep", "last", "--path", "absent", "--yes").exit_code == 1
    assert palyra("keep", "last", "--path", "build/app", "--yes").output == "Applied: 2 changes.\n"
    assert (workspace / "build/app").read_bytes() == b"\x00"
    assert not (workspace / "words").exists()
    assert palyra("keep", said="y\n").exit_code == 0
    assert (workspace / "words").read_text() == "words\n"
    assert palyra("keep").output == "The session keeps nothing apart from the workspace.\n"
