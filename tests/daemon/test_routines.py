"""Routines as their users meet them: a real daemon and the real command line, with kills and restarts between."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palyra.cli.main import app
from tests.support.daemons import Daemon, plain_environment
from tests.support.waiting import wait_until

SCRIPT = '[[scripts]]\n[[scripts.turns]]\ntext = "Done."\n'
RESTARTS_COUNT = 6


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "home", SCRIPT)


def palyra(daemon: Daemon, *arguments: str, group: str = "routines") -> subprocess.CompletedProcess[str]:
    environment = {
        **plain_environment(), "PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}",
        "NO_COLOR": "1", "TZ": "UTC",
    }  # fmt: skip
    command = [sys.executable, "-m", "palyra", group, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def history(daemon: Daemon, routine_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = daemon.call("GET", f"/api/v1/routines/{routine_id}/history?limit=400")[1]["items"]
    return items


def ended(daemon: Daemon, routine_id: str) -> int:
    return sum(item["run_state"] == "done" for item in history(daemon, routine_id))


def test_the_command_line_does_all_there_is_to_do(daemon: Daemon) -> None:
    with daemon:
        added = palyra(daemon, "add", "tick", "Say something.", "--every", "1")
        assert (added.returncode, added.stderr) == (0, "")
        assert added.stdout.startswith("added tick (every 1 s); next: ")
        assert added.stdout.endswith(" UTC\n")
        record = json.loads(palyra(daemon, "show", "tick", "--json").stdout)
        wait_until(lambda: ended(daemon, record["id"]) >= 2)
        assert palyra(daemon, "pause", "tick").stdout == "paused tick (every 1 s); state: paused\n"
        shown = palyra(daemon, "show", "tick").stdout
        assert shown.endswith("\n\nSay something.\n")
        assert "misfire: skip\n" in shown
        assert "last: done" in shown
        edited = palyra(daemon, "edit", "tick", "--prompt", "Say more.", "--every", "2h")
        assert edited.stdout.startswith("changed tick (every 2 h); state: paused")
        assert "Say more." in palyra(daemon, "show", "tick").stdout
        assert palyra(daemon, "edit", "tick").returncode == 2
        palyra(daemon, "edit", "tick", "--every", "1s")
        listed = palyra(daemon, "list").stdout.splitlines()
        assert listed[0].split() == ["name", "when", "next", "state", "last", "fired", "skipped", "prompt"]
        assert listed[1].startswith("tick  every 1 s  –     paused  done")
        assert palyra(daemon, "list", "--everyone", "--json").returncode == 0
        assert palyra(daemon, "resume", "tick").stdout.startswith("resumed tick (every 1 s); next: ")
        assert palyra(daemon, "run", "tick").returncode == 0
        lines = palyra(daemon, "history", "tick").stdout.splitlines()
        assert lines[0].split() == ["due", "outcome", "run", "state"]
        assert any("fired, by hand" in line or "skipped: overlap, by hand" in line for line in lines)
        assert "routine tick" in palyra(daemon, "list", group="sessions").stdout
        assert palyra(daemon, "remove", "tick").stdout.startswith("removed tick; its history: palyra routines history ")
        assert "no routine tick" in palyra(daemon, "show", "tick").stderr
        assert "fired" in palyra(daemon, "history", record["id"]).stdout
        assert "fired" in palyra(daemon, "history", "tick").stdout
        assert "removed" in palyra(daemon, "list", "--removed").stdout


REFUSED: list[tuple[list[str], str]] = [
    (["--cron", "99 * * * *"], "not a cron expression: wrong minute"),
    (["--cron", "0 9 * * 1", "--timezone", "Mars"], "timezone is the name of a time zone"),
    (["--every", "5", "--cron", "* * * * *"], "give one of --every, --cron and --at"),
    (["--at", "2020-01-01T00:00"], "that time has passed already"),
    ([], "give one of --every, --cron and --at"),
    (["--every", "0"], "a number of seconds, or a time such as 15m"),
    (["--cron", "@daily"], 'instead of @daily write "0 0 * * *"'),
    (["--every", "soon"], "a number of seconds, or a time such as 15m"),
    (["--every", "5", "--agent", "nobody"], "nobody"),
]


def test_bad_input_is_told_and_adds_nothing(daemon: Daemon) -> None:
    with daemon:
        for arguments, told in REFUSED:
            refused = palyra(daemon, "add", "bad", "Say something.", *arguments)
            assert refused.returncode == 1
            assert told in refused.stderr
        assert daemon.call("GET", "/api/v1/routines")[1]["items"] == []


def test_a_routine_of_the_file_runs_and_follows_the_file(daemon: Daemon) -> None:
    file = daemon.home / "palyra.toml"
    base = file.read_text()
    file.write_text(f'{base}\n[[routine]]\nname = "tick"\nprompt = "Tick."\nevery_s = 1\nsession_key = "clock"\n')
    with daemon:
        (record,) = daemon.call("GET", "/api/v1/routines")[1]["items"]
        assert (record["source"], record["principal"]) == ("file", "user:owner")
        wait_until(lambda: ended(daemon, record["id"]) >= 1)
        refused = daemon.call("PATCH", f"/api/v1/routines/{record['id']}", {"prompt": "x"})
        assert (refused[0], refused[1]["error"]["code"]) == (409, "routine_configured")
        sessions = daemon.call("GET", "/api/v1/sessions")[1]["items"]
        assert [session["key"] for session in sessions] == ["clock"]
        assert daemon.stop() == 0
        file.write_text(base)
        daemon.start()
        assert daemon.call("GET", "/api/v1/routines")[1]["items"] == []
        assert ended(daemon, record["id"]) >= 1
        assert daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('cron = "99 * * * *"', "palyra.toml:4: routine.cron: its minute must be from 0 to 59"),
        ('every_s = 5\nagent = "nobody"', "palyra.toml:5: routine.agent: there is no [[agent]] of this name"),
        ('every_s = 5\nchannel = "team"', "there is no [[channel]] of this name"),
        ('every_s = 5\nprincipal = "nobody"', "principal"),
        ("every_s = 5\nmisfire_max = 0", "misfire_max"),
        ('at = "2027-03-28T02:30:00"\ntimezone = "Europe/Prague"', "does not exist in Europe/Prague"),
    ],
)
def test_a_routine_that_cannot_be_is_found_by_config_check(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "palyra.toml").write_text(f'[[routine]]\nname = "bad"\nprompt = "p"\n{text}\n')
    checked = CliRunner().invoke(app, ["--home", str(tmp_path), "config", "check"])
    assert checked.exit_code == 1
    assert told in checked.stdout


def test_kills_at_any_moment_lose_and_repeat_no_due_time(daemon: Daemon) -> None:
    """Misfire all makes up for what passed while no daemon ran, so every second has exactly one run in the end."""
    chance = random.Random(7)
    with daemon:
        body = {
            "name": "tick", "prompt": "Tick.", "every_s": 1, "misfire": "all", "misfire_max": 100, "overlap": "queue",
        }  # fmt: skip
        record = daemon.call("POST", "/api/v1/routines", body)[1]
        for _ in range(RESTARTS_COUNT):
            time.sleep(chance.uniform(0.2, 1.5))  # The moment of the kill is what varies here.
            daemon.kill()
            daemon.start()
        assert daemon.call("PATCH", f"/api/v1/routines/{record['id']}", {"paused": True})[0] == 200
        wait_until(lambda: all(item["run_state"] == "done" for item in history(daemon, record["id"])))
        items = history(daemon, record["id"])
        dues = sorted(item["due_at_ms"] for item in items)
        assert dues == list(range(record["next_at_ms"], dues[-1] + 1, 1_000))
        assert Counter(item["outcome"] for item in items) == {"fired": len(items)}
        runs = daemon.call("GET", "/api/v1/runs?limit=400")[1]["items"]
        assert sorted(run["id"] for run in runs) == sorted(item["run_id"] for item in items)
        assert daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True
