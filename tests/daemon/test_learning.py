"""Learning with a real daemon that is killed in between: a compaction's finds, their document, and the commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palyra.cli.main import app
from palyra.core.ids import Principal
from palyra.core.learning.documents import notes_path
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "It is done."\n'
LINE = "We decided to use PostgreSQL 17 for the ledger."


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "home", SCRIPT)
    monkeypatch.setenv("PALYRA_HOME", str(made.home))
    monkeypatch.setenv("PALYRA_SERVER__HTTP", f"127.0.0.1:{made.port}")
    with made:
        yield made


def palyra(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["learning", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def say(daemon: Daemon, text: str) -> str:
    status, run = daemon.call("POST", "/api/v1/runs", {"text": text, "session_key": "s"})
    assert status == 202
    assert [event for event in daemon.follow(run["id"]) if event["type"] == "run.done"]
    return str(run["session_id"])


def test_a_decision_goes_to_the_document_and_back_in_spite_of_kills(daemon: Daemon) -> None:
    session_id, *_ = [say(daemon, text) for text in (LINE, "Always answer in French.", *["Tell me of the sea."] * 8)]
    status, _ = daemon.call("POST", f"/api/v1/sessions/{session_id}/compact", {})
    assert status == 200
    daemon.kill()
    daemon.start()
    file = daemon.home / "memory" / notes_path(Principal("user:owner"), str(daemon.home / "workspace"))
    wait_until(lambda: file.exists() and LINE in file.read_text(), "the block in the document")
    wait_until(lambda: [each for each in palyra("list")["items"] if each["applied_to"]], "the end of the job")
    (applied,) = [each for each in palyra("list", "--status", "accepted")["items"] if each["content"] == LINE]
    assert applied["applied_to"].startswith("notes:user-owner-")
    assert not (daemon.home / "workspace" / "MEMORY.md").exists()
    (waiting,) = palyra("list", "--status", "pending_review")["items"]
    assert (waiting["kind"], waiting["content"]) == ("preference", "Always answer in French.")
    assert palyra("reject", waiting["id"])["status"] == "rejected"
    assert palyra("undo", applied["id"][:12])["status"] == "undone"
    assert LINE not in file.read_text()
    daemon.kill()
    daemon.start()
    assert palyra("report")["counts"]["undone"] == 1
