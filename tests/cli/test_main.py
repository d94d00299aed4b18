"""The command as a process: its options, exit codes, errors, and how fast it starts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from palyra import __version__
from palyra.cli.main import app
from tests.support.homes import TestHome
from tests.support.waiting import WAIT_S

ROOT = Path(__file__).parents[2]


def commands_of(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the path of every command and group, the root first."""
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from commands_of(each, (*path, name))


COMMANDS = tuple(commands_of(get_command(app)))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> TestHome:
    return TestHome(tmp_path_factory.mktemp("main") / "home").fill()


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "palyra", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )


def test_process_verifies_the_home_of_the_environment(home: TestHome) -> None:
    run = process("verify", PALYRA_HOME=str(home.home.root))
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[0].split() == ["result", "whole"]


def test_process_exits_with_1_and_names_the_damage(home: TestHome, tmp_path: Path) -> None:
    copy = home.copy_to(tmp_path / "home")
    copy.spoil(f"DELETE FROM events WHERE {copy.event(copy.first, 2)}")
    run = process("--home", str(copy.home.root), "verify")
    assert run.returncode == 1
    assert run.stdout.startswith(f"session {copy.first} seq 2: this event is missing\n")


def test_process_closed_early_by_its_reader_ends_quietly(home: TestHome) -> None:
    command = [sys.executable, "-m", "palyra", "--home", str(home.home.root), "export", "--all"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert b"Traceback" not in running.stderr.read()


def test_help_loads_no_database_and_no_cryptography() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from palyra.cli.main import app\n"
        "result = CliRunner().invoke(app, ['--help']); assert result.exit_code == 0\n"
        "heavy = {'apsw', 'cryptography', 'asyncio'} & set(sys.modules); print(sorted(heavy))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, env=environment)
    assert (run.stdout, run.stderr) == ("[]\n", "")


def test_json_counts_before_and_after_the_command(home: TestHome) -> None:
    runner, root = CliRunner(), str(home.home.root)
    before = runner.invoke(app, ["--home", root, "--json", "verify"])
    after = runner.invoke(app, ["--home", root, "verify", "--json"])
    assert json.loads(before.stdout) == json.loads(after.stdout)


def test_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"palyra {__version__}\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert " ".join(("palyra", *command)) in result.stdout.partition("Examples:")[2]


@pytest.mark.parametrize("arguments", [["no-such-command"], ["verify", "--no-such-option"], ["backup"]])
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_error_is_one_line_on_standard_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--home", str(tmp_path / "no\x1b[2Jwhere"), "verify"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: journal_missing: ")
    assert "\x1b" not in result.stderr
    assert result.stderr.count("\n") == 1
