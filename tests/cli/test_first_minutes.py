"""The first minutes: an installation that shows how far it is, and a start that ends with what to do next."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminals import ROOT, Terminal
from tests.support.waiting import WAIT_S

INSTALL = ROOT / "requirements" / "install.py"
LOCK = "# What is needed.\n" + "".join(f"package{n}==1.{n}\n" for n in range(12))
# Stands in for pip: names each line of the lock, as pip does, and ends as it is told.
PIP = """
import sys
for number in range(2, 14):
    print(f"Collecting package{number - 2} (from -r lock.txt (line {number}))", flush=True)
print("Installing collected packages: all", flush=True)
sys.exit(int("--fail" in sys.argv))
"""


@pytest.fixture
def pip(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "lock.txt").write_text(LOCK)
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text(PIP)
    (tmp_path / "pip" / "__init__.py").touch()
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def install(folder: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(INSTALL), str(folder / "lock.txt"), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_an_installation_shows_how_far_it_is(tmp_path: Path, pip: dict[str, str]) -> None:
    done = install(tmp_path, pip)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith("Installing 12 packages into ")
    assert lines[1] == "  10 of 12"
    assert lines[-1].startswith("Installed 12 packages in ")


def test_an_installation_that_fails_says_what_pip_said(tmp_path: Path, pip: dict[str, str]) -> None:
    done = install(tmp_path, pip, "--fail")
    assert done.returncode == 1
    assert "Collecting package3 " in done.stderr
    assert "Installed" not in done.stdout


def test_make_run_shows_the_progress_of_the_default_set() -> None:
    recipe = subprocess.run(
        ["make", "--dry-run", "VENV_RUN=no-such-folder", "run"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "no-such-folder/bin/python requirements/install.py requirements/default.txt" in recipe.stdout


def test_a_start_ends_with_one_link_and_a_command_that_reaches_the_daemon(tmp_path: Path) -> None:
    environment = {"PALYRA_SERVER__HTTP": "127.0.0.1:0", "COLUMNS": "80"}
    with Terminal(["--home", str(tmp_path / "home"), "serve"], environment) as terminal:
        terminal.expect("talk to it in another terminal:\n")
        command = terminal.expect("\n").strip()
        before, _, link = terminal.seen.partition("within 10 minutes:\n")
        assert link.startswith("http://")
        assert [line for line in before.splitlines() if len(line) > 80 and " " in line] == []  # A path stays whole.
        shown = terminal.seen[terminal.seen.index("palyra listens on") :]
        assert shown.count("://") == 1
        assert "[info" not in terminal.seen  # The words say it; the log's own lines would say it twice.
        assert command.split(" chat")[0].endswith(f"-m palyra --home {tmp_path / 'home'}")
        done = subprocess.run(
            command.replace(" chat ", " models list "),
            shell=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode, "demo" in done.stdout) == (0, True), done.stderr
        terminal.interrupt()
        assert terminal.process.wait(WAIT_S) == 0
