"""SIGKILL while commands run, are sealed, judged and applied: none is lost, none happens twice, none is uncertain.

The daemon is killed at the moment when an event of a draft is seen, or a little later, so that the kill falls into the
step behind that event. After each kill a new daemon takes the run up.
"""

import json
import random
import time
from pathlib import Path
from typing import Any

from tests.support.daemons import Daemon
from tests.support.examples import examples
from tests.support.waiting import wait_until

COMMANDS = [
    "for n in 1 2 3 4 5 6; do echo line $n >> log; done",
    "mkdir -p build && for n in $(seq 15); do echo $n > build/$n; done",
    "echo more >> log && rm build/7 && mv build/8 eight",
    "sed -i 's/line/LINE/' log && chmod +x eight && ln -sf eight link",
    "rm -r build && mkdir build && cat log | wc -l > build/count",
    "echo last >> log; false",
]
POINTS = ("tool.started", "tool.drafted", "draft.judged", "draft.applying", "tool.finished")
DELAYS_MS = (0, 0, 1, 3, 8, 20)
KILLS = examples(2)


def prepare(home: Path) -> Daemon:
    turns = [{"calls": [{"tool": "shell.run", "arguments": {"command": command}}]} for command in COMMANDS]
    home.mkdir(parents=True)
    (home / "script.json").write_text(json.dumps({"scripts": [{"turns": [*turns, {"text": "Over."}]}]}))
    (home / "palyra.toml").write_text('[[provider]]\nname = "scripted"\nkind = "scripted"\nfile = "script.json"\n')
    return Daemon(home)


def held(home: Path) -> dict[str, str]:
    root = home / "workspace"
    return {
        str(path.relative_to(root)): f"{path.lstat().st_mode:o} {path.read_text() if path.is_file() else ''}"
        for path in sorted(root.rglob("*"))
    }


def killed_once(daemon: Daemon, run_id: str, luck: random.Random, seen: set[tuple[str, int]]) -> bool:
    """Kills the daemon at a point that was not tried yet. Returns False if the run was over before."""
    wanted, delay_ms = luck.choice(POINTS), luck.choice(DELAYS_MS)
    for frame in daemon.follow(run_id):
        if frame["type"].startswith("run.") and frame["type"] in ("run.done", "run.failed", "run.cancelled"):
            return False
        key = (frame["type"], frame.get("seq", 0))
        if frame["type"] == wanted and key not in seen:
            seen.add(key)
            time.sleep(delay_ms / 1000)
            daemon.kill()
            return True
    return False


def test_no_kill_loses_repeats_or_doubts_a_command(tmp_path: Path) -> None:
    luck = random.Random(17)
    whole = prepare(tmp_path / "whole")
    with whole:
        _, record = whole.call("POST", "/api/v1/runs", {"text": "go"})
        calm = [frame for frame in whole.follow(record["id"]) if "seq" in frame]
    kills = 0
    rounds = 0
    while kills < KILLS and rounds < KILLS * 3:
        rounds += 1
        home = tmp_path / f"round{rounds}"
        events, count = disturbed(prepare(home), luck)
        kills += count
        check(events, calm)
        assert held(home) == held(tmp_path / "whole")
    assert kills >= KILLS


def disturbed(daemon: Daemon, luck: random.Random) -> tuple[list[dict[str, Any]], int]:
    """Plays the run, with a few kills on the way: a run that three restarts interrupt without progress is given up."""
    count = 0
    seen: set[tuple[str, int]] = set()
    daemon.start()
    _, record = daemon.call("POST", "/api/v1/runs", {"text": "go"})
    while count < 4 and killed_once(daemon, record["id"], luck, seen):
        count += 1
        daemon.start()
    events = [frame for frame in daemon.follow(record["id"]) if "seq" in frame]
    assert daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True
    daemon.kill()
    with daemon:
        wait_until_empty(daemon.home / "drafts")
    return events, count


def wait_until_empty(drafts: Path) -> None:
    """A kill just behind `tool.finished` leaves the folder of a draft, which the next start removes."""
    wait_until(lambda: list(drafts.glob("[0-9a-f]*")) == [], "the end of the drafts")


def check(events: list[dict[str, Any]], calm: list[dict[str, Any]]) -> None:
    types = [event["type"] for event in events]
    assert types[-1] == "run.done"
    assert "tool.uncertain" not in types
    assert outcomes(events) == outcomes(calm)


def outcomes(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [
        (event["data"]["outcome"], event["data"].get("changes_count", 0))
        for event in events
        if event["type"] == "tool.finished"
    ]
