"""The daemon as its users meet it: a real process, real sockets, killed and started again."""

import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.daemons import Daemon, plain_environment

SCRIPT = """
[[scripts]]
when = "slow"
[[scripts.turns]]
chunks = [CHUNKS]

[[scripts]]
when = "ask"
[[scripts.turns]]
calls = [{tool = "fs.write", arguments = {path = ".githooks/pre-commit", content = "x"}}]
[[scripts.turns]]
text = "Written."

[[scripts]]
[[scripts.turns]]
calls = [{tool = "time.now"}]
[[scripts.turns]]
text = "It is late."
""".replace(  # Minutes long, so that it goes on however long a restart takes; its first words come soon.
    "CHUNKS",
    ", ".join(f'{{text = "word{number} ", delay_ms = {1_000 if number > 20 else 20}}}' for number in range(400)),
)


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "home", SCRIPT)


def test_first_start_needs_nothing_and_keeps_secrets_private(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home") as daemon:
        status, record = daemon.call("POST", "/api/v1/runs", {"text": "help"})
        assert status == 202
        assert [frame["type"] for frame in daemon.follow(record["id"])][-1] == "run.done"
        assert "not a language model" in daemon.call("GET", f"/api/v1/runs/{record['id']}")[1]["answer"]
    assert "models: no provider is configured" in daemon.log()
    for name in ("admin.token", "signing.key", "vault.key"):
        assert stat.S_IMODE((daemon.home / name).stat().st_mode) == 0o600


def test_a_stream_resumes_after_a_kill_without_loss_or_repetition(daemon: Daemon) -> None:
    with daemon:
        _, record = daemon.call("POST", "/api/v1/runs", {"text": "slow"})
        seen = []
        with closing(daemon.follow(record["id"])) as frames:
            for frame in frames:
                seen += [frame] if "seq" in frame else []
                if frame["type"] == "model.delta":
                    break
        daemon.kill()
        daemon.start()
        rest = []
        for frame in daemon.follow(record["id"], seen[-1]["seq"]):
            rest += [frame] if "seq" in frame else []
            if frame["type"] == "model.delta":
                assert daemon.call("POST", f"/api/v1/runs/{record['id']}/cancel")[0] in (200, 202)
        seqs = [frame["seq"] for frame in (*seen, *rest)]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert rest[-1]["type"] == "run.cancelled"
        assert daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True


def test_an_approval_survives_a_kill_and_is_decided_once(daemon: Daemon) -> None:
    with daemon:
        _, record = daemon.call("POST", "/api/v1/runs", {"text": "ask"})
        assert "run.waiting" in {frame["type"] for frame in _until(daemon, record["id"], "run.waiting")}
        daemon.kill()
        daemon.start()
        (card,) = daemon.call("GET", "/api/v1/approvals?status=pending")[1]["items"]
        assert card["tool"] == "fs.write"
        assert daemon.call("POST", f"/api/v1/approvals/{card['id']}", {"decision": "allow"})[0] == 200
        assert daemon.call("POST", f"/api/v1/approvals/{card['id']}", {"decision": "deny"})[0] == 409
        assert [frame["type"] for frame in daemon.follow(record["id"])][-1] == "run.done"
    assert (daemon.home / "workspace" / ".githooks" / "pre-commit").read_text() == "x"


def test_same_idempotency_key_is_the_same_run_across_a_kill(daemon: Daemon) -> None:
    with daemon:
        body = {"text": "what time is it?", "idempotency_key": "k"}
        first = daemon.call("POST", "/api/v1/runs", body)[1]
        daemon.kill()
        daemon.start()
        assert daemon.call("POST", "/api/v1/runs", body)[1]["id"] == first["id"]


def test_sigterm_drains_signs_and_exits_cleanly(daemon: Daemon) -> None:
    with daemon:
        _, record = daemon.call("POST", "/api/v1/runs", {"text": "what time is it?"})
        assert daemon.stop() == 0
    verified = _palyra(daemon, "verify", "--json")
    assert verified.returncode == 0, verified.stdout
    assert '"unsigned_events_count":0' in verified.stdout.replace(" ", "")
    with daemon:
        assert daemon.call("GET", f"/api/v1/runs/{record['id']}")[1]["state"] == "done"


def test_a_second_daemon_on_the_same_home_is_refused(daemon: Daemon) -> None:
    with daemon:
        second = _palyra(daemon, "serve", PALYRA_SERVER__HTTP="127.0.0.1:0")
        assert second.returncode == 1
        assert "journal_in_use" in second.stderr


def test_a_recorded_run_replays_to_the_same_decisions(daemon: Daemon) -> None:
    with daemon:
        _, record = daemon.call("POST", "/api/v1/runs", {"text": "what time is it?"})
        list(daemon.follow(record["id"]))
    replayed = _palyra(daemon, "runs", "replay", record["id"])
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def _until(daemon: Daemon, run_id: str, type_name: str) -> list[dict[str, str]]:
    seen = []
    with closing(daemon.follow(run_id)) as frames:
        for frame in frames:
            seen.append(frame)
            if frame["type"] == type_name:
                break
    return seen


def _palyra(daemon: Daemon, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "palyra", *arguments],
        env={**plain_environment(), "PALYRA_HOME": str(daemon.home), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
