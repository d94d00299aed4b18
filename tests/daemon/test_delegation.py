"""Delegation in a real daemon: killed in the middle it goes on, and the command line shows the tree."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from palyra.app.stop_signals import SAME_STOP_S
from tests.support.daemons import ANSWER_TIMEOUT_S, Daemon, plain_environment
from tests.support.waiting import wait_until

SCRIPT = """
[[scripts]]
when = "^go$"
[[scripts.turns]]
calls = [
  {tool = "agent.delegate", arguments = {prompt = "look slowly"}},
  {tool = "agent.delegate", arguments = {prompt = "look quickly", agent = "helper"}},
]
[[scripts.turns]]
text = "Both have looked."

[[scripts]]
when = "slowly"
[[scripts.turns]]
chunks = [CHUNKS]

[[scripts]]
when = "quickly"
[[scripts.turns]]
text = "Seen at once."
""".replace("CHUNKS", ", ".join(f'{{text = "word{number} ", delay_ms = 20}}' for number in range(60)))
AGENTS = '[[agent]]\nname = "main"\n[[agent]]\nname = "helper"\ntools = ["fs.*"]\ndelegates = []\n'


def palyra(daemon: Daemon, *arguments: str) -> str:
    own = {"PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}
    command = [sys.executable, "-m", "palyra", *arguments]
    done = subprocess.run(
        command, env={**plain_environment(), **own}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_killed_daemon_goes_on_with_the_same_children_and_shows_their_tree(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "home", SCRIPT)
    with (daemon.home / "palyra.toml").open("a") as file:
        file.write(AGENTS)
    with daemon:
        _, run = daemon.call("POST", "/api/v1/runs", {"text": "go"})
        while len(_children(daemon, run["id"])) < 2:
            pass
        began = {child["id"] for child in _children(daemon, run["id"])}
        daemon.kill()
        daemon.start()
        events = list(daemon.follow(run["id"]))
        assert events[-1]["type"] == "run.done"
        children = _children(daemon, run["id"])
        assert {child["id"] for child in children} == began
        assert {child["state"] for child in children} == {"done"}
        shown = palyra(daemon, "runs", "tree", run["id"])
        assert "├─" in shown
        assert "look slowly" in shown
        assert "helper" in shown
        tree = json.loads(palyra(daemon, "runs", "tree", run["id"], "--json"))
        assert tree["runs_count"] == 3
        assert palyra(daemon, "runs", "tree", "last") == shown
        assert "3 runs, " in shown
        told = palyra(daemon, "runs", "show", run["id"][:-1].lower())
        assert "with children  " in told
        assert "main by http" in palyra(daemon, "runs", "list")
        child = children[0]["id"]
        assert child in palyra(daemon, "runs", "show", child[:-1])
        assert run["id"] in palyra(daemon, "runs", "show", child)
        assert child in palyra(daemon, "runs", "show", run["id"])
        assert child not in palyra(daemon, "runs", "list")
        assert child in palyra(daemon, "runs", "list", "--delegated")
        assert children[0]["session_id"] not in palyra(daemon, "sessions", "list")
        assert children[0]["session_id"] in palyra(daemon, "sessions", "list", "--delegated")
    assert json.loads(palyra(daemon, "verify", "--json"))["ok"] is True


def test_a_second_interrupt_stops_at_once_and_the_next_start_resumes_the_children(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "home", SCRIPT.replace("delay_ms = 20", "delay_ms = 2000"), PALYRA_RUN__DRAIN_S="120")
    with (daemon.home / "palyra.toml").open("a") as file:
        file.write(AGENTS)
    daemon.start()
    _, run = daemon.call("POST", "/api/v1/runs", {"text": "go"})
    wait_until(lambda: len(_children(daemon, run["id"])) == 2, "the children")
    daemon.process.send_signal(signal.SIGINT)
    wait_until(lambda: "Ctrl-C again" in daemon.log(), "the drain")
    time.sleep(SAME_STOP_S)
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.process.wait(timeout=ANSWER_TIMEOUT_S) == 0
    assert "Traceback" not in daemon.log()
    assert daemon.log().rstrip().endswith("stopped")
    with daemon:
        states = {child["state"] for child in _children(daemon, run["id"])}
        assert "cancelled" not in states
        assert daemon.call("GET", f"/api/v1/runs/{run['id']}")[1]["state"] == "in_progress"
        daemon.kill()


def _children(daemon: Daemon, run_id: str) -> list[dict[str, str]]:
    _, tree = daemon.call("GET", f"/api/v1/runs/{run_id}/tree")
    children: list[dict[str, str]] = tree["root"]["children"]
    return children
