"""Wrong input against a real daemon: the error says what to do, in commands that exist."""

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from palyra.cli.main import app
from tests.support.daemons import Daemon

SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "It is done."\n'
WRONG = [
    (["runs", "context", "last", "--turn", "99"], 1, "palyra runs context --all"),
    (["runs", "stop", "last", "nope"], 1, "palyra runs processes"),
    (["runs", "replay", "nope"], 1, "palyra runs list"),
    (["runs", "list", "--state", "nope"], 2, "'in_progress'"),
    (["sessions", "trust", "last", "nope"], 1, "palyra sessions taint"),
    (["sessions", "branch", "last", "--at-seq", "9999"], 1, "palyra sessions tape"),
    (["sessions", "delete", "nope"], 1, "palyra sessions list"),
    (["run", "hello", "--must-call", "nope"], 1, "palyra tools"),
    (["channels", "replay", "nope"], 1, "palyra channels dead-letters"),
    (["routines", "add", "r", "hello"], 1, "--every, --cron and --at"),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("wrong") / "home", SCRIPT) as made:
        yield made


@pytest.fixture(autouse=True)
def reaching(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_HOME", str(daemon.home))
    monkeypatch.setenv("PALYRA_SERVER__HTTP", f"127.0.0.1:{daemon.port}")
    monkeypatch.setenv("NO_COLOR", "1")
    assert CliRunner().invoke(app, ["run", "hello"]).exit_code == 0


@pytest.mark.parametrize(("arguments", "code", "told"), WRONG)
def test_wrong_input_is_told_with_what_to_do(arguments: list[str], code: int, told: str) -> None:
    refused = CliRunner().invoke(app, arguments)
    assert (refused.exit_code, told in refused.stderr) == (code, True), refused.stderr


def test_the_last_run_is_replayed() -> None:
    assert CliRunner().invoke(app, ["runs", "replay", "last"]).exit_code == 0
