"""`palyra run` against a stand-in: answers, approvals, cancelling, and connections that break."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from tests.support.stand_in import APPROVAL, SESSION, StandIn
from tests.support.terminals import ROOT, Terminal
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.usefixtures("reaching")


def palyra(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=text)


def test_answer_alone_goes_to_standard_output(stand_in: StandIn) -> None:
    result = palyra("run", "hello")
    assert (result.exit_code, result.stdout) == (0, "You said \\x1b[2Jso: hello\n")
    assert "done" in result.stderr


def test_json_gives_the_record_of_the_ended_run() -> None:
    record = json.loads(palyra("run", "hello", "--json").stdout)
    assert (record["state"], record["answer"]) == ("done", "You said \x1b[2Jso: hello")


def test_failed_run_exits_with_1_and_says_why() -> None:
    result = palyra("run", "fail")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "failed: provider_error: the provider is down" in result.stderr


def test_text_and_options_are_sent(stand_in: StandIn, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    options = ["--session", "garden", "--agent", "a", "--must-call", "fs.read", "--answer-schema", str(schema)]
    assert palyra("run", "-", *options, text="from a pipe").exit_code == 0
    (body,) = stand_in.sent("/runs")
    assert body.pop("idempotency_key").startswith("cli-")
    assert body.pop("typed") == "", "nobody typed what came through a pipe"
    assert body == {"text": "from a pipe", "session_key": "garden", "agent": "a", "must_call": ["fs.read"],
                    "answer_schema": {"type": "object"}}  # fmt: skip


def test_objectives_are_sent_in_their_order(stand_in: StandIn) -> None:
    options = ["--objective", "file:report.md exists", "--objective", "It names every source"]
    assert palyra("run", "hello", *options).exit_code == 0
    assert stand_in.sent("/runs")[0]["objectives"] == ["file:report.md exists", "It names every source"]


def test_session_id_is_told_from_a_key(stand_in: StandIn) -> None:
    palyra("run", "hello", "--session", SESSION)
    assert stand_in.sent("/runs")[0]["session_id"] == SESSION


def test_no_wait_prints_the_id_and_leaves(stand_in: StandIn) -> None:
    assert palyra("run", "slow", "--no-wait").stdout.strip() == stand_in.run_ids()[0]


@pytest.mark.parametrize("arguments", [["run", " "], ["run", "-"]])
def test_empty_text_is_wrong_usage(arguments: list[str]) -> None:
    assert palyra(*arguments, text="").exit_code == 2


def test_broken_stream_goes_on_after_the_last_event(stand_in: StandIn) -> None:
    result = palyra("run", "drop it")
    assert (result.exit_code, result.stdout) == (0, "You said \\x1b[2Jso: drop it\n")
    assert stand_in.cursors == [None, "3"]
    assert "connected again" in result.stderr


def test_without_a_terminal_an_approval_is_left_to_others(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with popen(["run", "approval"], reaching) as running:
        assert running.stderr is not None
        told = ""
        while f"approvals deny {APPROVAL}" not in told:
            told += running.stderr.readline()
        assert palyra("approvals", "deny", APPROVAL, "--reason", "not now", "--end-run").exit_code == 0
        assert running.wait(WAIT_S) == 0
        told += running.stderr.read()
    assert "shell.run asks for approval" in told
    assert told.count(f"the run waits for your answer to approval {APPROVAL}:") == 1
    assert f"palyra approvals show {APPROVAL}\n" in told
    assert f"palyra approvals allow {APPROVAL}\n" in told
    assert stand_in.sent(f"/approvals/{APPROVAL}") == [{"decision": "deny", "end_run": True, "reason": "not now"}]


def test_interrupt_cancels_the_run_and_exits_with_1(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with popen(["run", "slow"], reaching) as running:
        stand_in.wait_for_stream(1)
        running.send_signal(signal.SIGINT)
        assert running.wait(WAIT_S) == 1
        assert running.stderr is not None
        assert "cancelled: asked to" in running.stderr.read()
    assert stand_in.sent(f"/runs/{stand_in.run_ids()[0]}/cancel") == [{}]


def test_terminal_streams_and_asks(stand_in: StandIn, reaching: dict[str, str]) -> None:
    with Terminal(["run", "approval please"], reaching) as terminal:
        terminal.expect("? shell.run asks for approval")
        assert "make test" in terminal.expect("a/s/t/d ›")
        terminal.type("what\n")
        terminal.expect("a/s/t/d ›")
        terminal.type("t 30m\n")
        terminal.expect("✓ shell.run 100 ms")
        terminal.expect("You said \\x1b[2Jso: approval please")
        assert terminal.wait() == 0
    answer = {"decision": "allow", "scope": "timeboxed", "option": 2, "ttl_s": 1800}
    assert stand_in.sent(f"/approvals/{APPROVAL}") == [answer]


def test_question_that_is_settled_at_once_holds_nobody_up(reaching: dict[str, str]) -> None:
    with Terminal(["run", "approval settled"], reaching) as terminal:
        mode = terminal.mode()
        terminal.expect("denied by user:other")
        terminal.expect("You said")
        assert terminal.wait() == 0
        assert terminal.mode() == mode


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"PALYRA_TOKEN": "wrong"}, "token_invalid"),
        ({"PALYRA_TOKEN": ""}, "token_missing"),
        ({"PALYRA_SERVER__HTTP": "127.0.0.1:1"}, "daemon_unreachable"),
        ({"PALYRA_SERVER__HTTP": "192.0.2.1:80"}, "url_insecure"),
        ({"PALYRA_SERVER__HTTP": "nowhere"}, "config_invalid"),
    ],
)
def test_what_keeps_from_the_daemon_is_one_clear_line(
    variables: dict[str, str], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = palyra("run", "hello")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {code}: ")
    assert result.stderr.count("\n") == 1


def test_url_stands_over_the_configuration(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_SERVER__HTTP", "127.0.0.1:1")
    assert palyra("run", "hello", "--url", f"127.0.0.1:{stand_in.port}/").exit_code == 0
    assert "url_invalid" in palyra("run", "hello", "--url", "ftp://x").stderr


def test_token_is_read_from_the_home(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALYRA_TOKEN")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "admin.token").write_text("stand-in-token\n")
    assert palyra("run", "hello").exit_code == 0


def popen(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "palyra", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )
