"""Checkpoints and pins from the command line and in a chat, with a real daemon that restarts in between."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from tests.support.daemons import Daemon
from tests.support.terminals import Terminal

SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "It is done."\n'


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "home", SCRIPT)
    for name, value in environment_of(made).items():
        monkeypatch.setenv(name, value)
    with made:
        yield made


def environment_of(daemon: Daemon) -> dict[str, str]:
    return {
        "PALYRA_HOME": str(daemon.home),
        "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}",
        "NO_COLOR": "1",
    }


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sessions", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = palyra(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    members: dict[str, Any] = json.loads(result.stdout)
    return members


def say(daemon: Daemon, text: str, **session: str) -> str:
    status, run = daemon.call("POST", "/api/v1/runs", {"text": text, **session})
    assert status == 202
    assert [event for event in daemon.follow(run["id"]) if event["type"] == "run.done"]
    return str(run["session_id"])


def test_a_session_is_restored_and_compared_after_a_restart(daemon: Daemon) -> None:
    session_id = say(daemon, "The first thing.", session_key="work")
    checkpoint = answer("checkpoint", "work", "--label", "before")
    assert (checkpoint["label"], checkpoint["reason"]) == ("before", "manual")
    assert "is a checkpoint at event" in palyra("checkpoint", "work", "--at-seq", "2").output
    say(daemon, "The old way.", session_key="work")
    daemon.kill()
    daemon.start()
    assert answer("checkpoints", "work")["items"][0] == checkpoint
    assert "before" in palyra("checkpoints", "work").output
    restored = answer("restore", "work", checkpoint["id"], "--label", "again")
    assert (restored["parent_id"], restored["parent_seq"]) == (session_id, checkpoint["seq"])
    assert palyra("diff", "work", restored["id"]).output.splitlines()[-1].strip() == "nothing was said since"
    say(daemon, "The new way.", session_id=restored["id"])
    found = answer("diff", "work", "again")
    assert found["shared"] == {"session_id": session_id, "seq": checkpoint["seq"]}
    said = [[(each["by"], each["text"]) for each in side["messages"]] for side in found["sides"]]
    assert said == [
        [("user", "The old way."), ("assistant", "It is done.")],
        [("user", "The new way."), ("assistant", "It is done.")],
    ]
    lines = palyra("diff", "work", "again").output.splitlines()
    assert [line[0] for line in lines] == ["b", "-", "-", "-", "+", "+", "+"]
    inner = answer("branch", "again", "--at-seq", "1")
    assert answer("diff", inner["id"], "work")["shared"] == found["shared"]
    other = say(daemon, "Something else.")
    unrelated = palyra("diff", "work", other)
    assert (unrelated.exit_code, "sessions_unrelated" in unrelated.stderr) == (1, True)
    assert palyra("restore", "work", "01ARZ3NDEKTSV4RRFFQ69G5FAV").exit_code == 1


def test_a_chat_in_a_branch_shows_what_was_said_before_it(daemon: Daemon) -> None:
    say(daemon, "The first thing.", session_key="work")
    one = answer("restore", "work", answer("checkpoint", "work")["id"])
    say(daemon, "The old way.", session_key="work")
    say(daemon, "The second thing.", session_id=one["id"])
    two = answer("restore", one["id"], answer("checkpoint", one["id"])["id"])
    with Terminal(["chat", "--session", two["id"]], environment_of(daemon)) as terminal:
        for said in ("› The first thing.", "It is done.", "› The second thing.", "It is done."):
            terminal.expect(said)
        assert "The old way." not in terminal.seen
        terminal.type("/quit\r")
        assert terminal.wait() == 0


def test_checkpoints_pins_and_contexts_are_named_as_elsewhere(daemon: Daemon) -> None:
    say(daemon, "The first thing.", session_key="work")
    first = answer("checkpoint", "work", "--label", "before")
    say(daemon, "The old way.", session_key="work")
    second = answer("checkpoint", "work")
    seqs = [answer("restore", "work", named)["parent_seq"] for named in ("before", "last", second["id"][:-1].lower())]
    assert seqs == [first["seq"], second["seq"], second["seq"]]
    unknown = palyra("restore", "work", "never")
    assert (unknown.exit_code, "palyra sessions checkpoints" in unknown.stderr) == (1, True)
    pin = answer("pin", "work", "Use PostgreSQL.")
    assert answer("unpin", "work", "last")["id"] == pin["id"]
    bar = CliRunner().invoke(app, ["runs", "context", "last"]).output
    assert "turn 1" in bar
    assert "instructions" in bar


def test_pins_are_kept_by_command(daemon: Daemon) -> None:
    say(daemon, "The first thing.", session_key="work")
    own = answer("pin", "work", "Use PostgreSQL.")
    daemon.kill()
    daemon.start()
    assert [each["text"] for each in answer("pins", "work")["items"]] == ["Use PostgreSQL."]
    assert "is pinned: The first thing." in palyra("pin", "work", "--seq", "3").output
    assert "Use PostgreSQL." in palyra("pins", "work").output
    assert palyra("unpin", "work", own["id"]).output == f"{own['id']} is no longer pinned\n"
    assert [each["text"] for each in answer("pins", "work")["items"]] == ["The first thing."]
    for arguments, code in (
        (("pin", "work"), "pin_empty"),
        (("pin", "work", "x" * 4_001), "pin_too_long"),
        (("unpin", "work", own["id"]), "pin_unknown"),
    ):
        refused = palyra(*arguments)
        assert (refused.exit_code, code in refused.stderr) == (1, True), refused.stderr


def test_pins_are_kept_in_a_chat(daemon: Daemon) -> None:
    with Terminal(["chat", "--session", "talk"], environment_of(daemon)) as terminal:
        terminal.expect("›")
        terminal.type("/pin\r")
        terminal.expect("nothing_to_pin")
        terminal.type("/pins\r")
        terminal.expect("nothing is pinned")
        terminal.type("hello\r")
        terminal.expect("It is done.")
        terminal.expect("done")
        terminal.type("/pin Use  PostgreSQL.\r")
        terminal.expect("pinned: Use")
        terminal.type("/pin\r")
        terminal.expect("pinned: It is done.")
        terminal.type("/pins\r")
        terminal.expect("2  It is done.")
        terminal.type("/unpin 7\r")
        terminal.expect("pin_unknown")
        terminal.type("/unpin 1\r")
        terminal.expect("no longer pinned: Use")
        terminal.type("/quit\r")
        assert terminal.wait() == 0
    assert [(each["text"], each["source_seq"] is None) for each in answer("pins", "talk")["items"]] == [
        ("It is done.", False)
    ]
    with Terminal(["chat", "--session", "talk"], environment_of(daemon)) as terminal:
        terminal.expect("›")
        terminal.type("/unpin\r")
        terminal.expect("no longer pinned: It is done.")
        terminal.type("/quit\r")
        assert terminal.wait() == 0


def test_a_session_is_compacted_by_hand_and_restored_after_a_restart(daemon: Daemon) -> None:
    for number in range(8):
        say(daemon, f"Invoice {number} is 77{number}-AB. Always answer in English.", session_key="work")
    dry = palyra("compact", "work", "--dry-run")
    assert "would compact 2 exchanges" in dry.output
    assert answer("checkpoints", "work")["items"] == []
    done = answer("compact", "work")
    assert done["committed"] is True
    assert any("Always answer in English." in each["text"] for each in done["kept"])
    (past,) = answer("compactions", "work")["items"]
    assert past["data"]["checkpoint_id"] == done["checkpoint_id"]
    assert past["record"]["by"] == done["by"]
    assert "kept Always answer in English." in palyra("compactions", "work").output
    daemon.kill()
    daemon.start()
    (checkpoint,) = answer("checkpoints", "work")["items"]
    assert (checkpoint["id"], checkpoint["reason"]) == (done["checkpoint_id"], "compaction")
    back = answer("restore", "work", checkpoint["id"], "--label", "back")
    assert say(daemon, "Go on.", session_id=back["id"]) == back["id"]
    assert "has no checkpoint" in palyra("restore", "work", "VZ52WT36NP28AGP4MT6JAGN835").stderr
