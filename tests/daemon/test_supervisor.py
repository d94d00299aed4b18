"""The supervisor as users meet it: a real `palyra serve` whose daemon, or which itself, is killed, stopped, interrupted."""

import fcntl
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import pytest

from palyra.cli import supervisor
from tests.crash.daemon_campaign import Home as CrashHome
from tests.support.daemons import Daemon, SupervisedDaemon, plain_environment
from tests.support.examples import examples
from tests.support.sqlite import ruin
from tests.support.waiting import WAIT_S, wait_until

ROOT = Path(__file__).parents[2]
# The suite affords a few restarts; the campaign has the full number.
TURNS_COUNT = min(40, examples(12))
RESTARTS_COUNT = min(20, examples(4))
SLOW_TURN = """
[[scripts.turns]]
delay_ms = 400
calls = [{{tool = "fs.write", arguments = {{path = "notes/{number}.txt", content = "{number}"}}}}]
"""
SCRIPT = (
    '[[scripts]]\nwhen = "work"\n'
    + "".join(SLOW_TURN.format(number=number) for number in range(TURNS_COUNT))
    + '[[scripts.turns]]\ntext = "All written."\n[[scripts]]\n[[scripts.turns]]\ntext = "Yes."\n'
)
# Goes on after the first call however long a restart takes.
ENDLESS = (
    f'[[scripts]]\n{SLOW_TURN.format(number=0)}[[scripts.turns]]\ndelay_ms = 60_000\ntext = "It comes in minutes."\n'
)
ACKS_PIPE_BYTES = 4096  # The daemon can be only so far ahead of the test, so it is killed in the middle of its work.
PATIENT = """
from palyra.cli import supervisor
supervisor.POLICY = supervisor.RestartPolicy(delay_max_s=0.1, restarts_max=1000)
from palyra.cli.main import main
main()
"""
CRASHING = """
import os, sys
from pathlib import Path
from palyra.cli.supervisor import RestartPolicy, supervise
started = Path(sys.argv[1])
supervise(RestartPolicy(delay_first_s=0.01, delay_max_s=0.02, restarts_max=5))
with started.open("a") as file:
    file.write("x")
os.abort() if sys.argv[2] == "abort" else os._exit(int(sys.argv[2]))
"""
STUCK = """
import time
from pathlib import Path
from palyra.cli.main import main
import os

def block_the_loop():
    time.sleep(3600)

def patched(*arguments, **named):
    import palyra.app.daemon as wiring
    from palyra.engine.healing import loop_watch
    frozen, marker = wiring.gc.freeze, Path(os.environ["PALYRA_HOME"]) / "well"
    if not marker.exists():  # The next daemon is well, and may be slow.
        loop_watch.END_S = 3.0
    def freeze():
        if not marker.exists():
            marker.touch()
            block_the_loop()
        frozen()
    wiring.gc.freeze = freeze
    return original(*arguments, **named)

from palyra.cli.commands import serve
original, serve.load_or_explain = serve.load_or_explain, patched
main()
"""
LIVES = """
import sys
from pathlib import Path
from tests.crash.daemon_campaign import _run_child
from palyra.cli.supervisor import RestartPolicy, supervise
supervise(RestartPolicy(delay_max_s=0.1, restarts_max=1000))
_run_child(Path(sys.argv[1]), int(sys.argv[2]), "")
"""


@pytest.fixture
def daemon(tmp_path: Path) -> SupervisedDaemon:
    return SupervisedDaemon(tmp_path / "home", SCRIPT)


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_killed_daemon_answers_again_at_its_address_and_resumes_its_run(tmp_path: Path) -> None:
    daemon = SupervisedDaemon(tmp_path / "home", ENDLESS)
    with daemon:
        _, record = daemon.call("POST", "/api/v1/runs", {"text": "work"})
        wait_until(lambda: (daemon.home / "workspace" / "notes" / "0.txt").exists())
        daemon.kill_child()
        daemon.wait_until_ready()
        assert daemon.call("GET", f"/api/v1/runs/{record['id']}")[1]["state"] == "in_progress"
        assert "run.resumed" in {frame["type"] for frame in _first(daemon, record["id"], "run.resumed")}
        daemon.call("POST", f"/api/v1/runs/{record['id']}/cancel")
        assert daemon.stop() == 0
    lines = daemon.log().splitlines()
    assert sum("its token is in" in line for line in lines) == 1
    assert sum("again, restarted after it was killed by SIGKILL" in line for line in lines) == 1
    assert sum("models: " in line for line in lines) <= 1


def test_killed_supervisor_takes_its_daemon_along_and_the_home_is_free(daemon: SupervisedDaemon) -> None:
    with daemon:
        child = daemon.child
        assert child is not None
        daemon.kill()
        wait_until(lambda: not is_alive(child))
        daemon.start()
        assert daemon.call("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_the_supervisor_stops_cleanly(daemon: SupervisedDaemon, number: signal.Signals) -> None:
    with daemon:
        child = daemon.child
        daemon.process.send_signal(number)
        assert daemon.process.wait(WAIT_S) == 0
        assert child is not None
        assert not is_alive(child)
    assert "restarted" not in daemon.log()
    assert "Traceback" not in daemon.log()


def test_signal_to_the_whole_group_is_one_request(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "palyra", "--home", str(tmp_path / "home"), "serve"],
        stderr=subprocess.PIPE,
        text=True,
        env={**plain_environment(), "PALYRA_SERVER__HTTP": "127.0.0.1:0"},
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        while "login-link" not in process.stderr.readline():
            pass
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert "Traceback" not in process.stderr.read()


def test_stopped_daemon_ends_the_supervisor_too(daemon: SupervisedDaemon) -> None:
    with daemon:
        assert daemon.child is not None
        os.kill(daemon.child, signal.SIGTERM)
        assert daemon.process.wait(WAIT_S) == 0


def test_without_a_supervisor_the_process_is_the_daemon(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home") as daemon:
        children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text()
        assert children == ""
        assert "127.0.0.1" in daemon.log()
        daemon.kill()
    assert "restarted" not in daemon.log()


def test_configuration_error_ends_it_at_once(tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text("[sever]\n")
    command = [sys.executable, "-m", "palyra", "--home", str(tmp_path), "serve"]
    done = subprocess.run(command, env=plain_environment(), capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr.count("error: ")) == (1, 1)


@pytest.mark.parametrize(("way", "starts", "code"), [("abort", 6, 1), ("70", 6, 1), ("0", 1, 0), ("3", 1, 3)])
def test_crash_loop_is_given_up_and_other_ends_are_passed_on(tmp_path: Path, way: str, starts: int, code: int) -> None:
    command = [sys.executable, "-c", CRASHING, str(tmp_path / "started"), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ((tmp_path / "started").read_text(), done.returncode) == ("x" * starts, code)
    assert ("5 restarts within 10 minutes" in done.stderr) is (starts > 1)


def test_ctrl_c_in_a_terminal_stops_cleanly_once(tmp_path: Path) -> None:
    environment = {**plain_environment(), "PALYRA_SERVER__HTTP": "127.0.0.1:0", "PALYRA_HOME": str(tmp_path / "home")}
    pid, main = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "palyra", "serve"], environment)
    try:
        seen = _read_until(main, "within 10 minutes")
        os.write(main, b"\x03")
        seen += _read_until(main, None)
    finally:
        os.close(main)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert seen.count("palyra listens on") == 1
    assert "Traceback" not in seen


def test_stop_during_the_wait_for_a_restart_ends_it(tmp_path: Path) -> None:
    code = CRASHING.replace("delay_first_s=0.01, delay_max_s=0.02", "delay_first_s=600.0, delay_max_s=600.0")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "started"), "70"]) as process:
        wait_until((tmp_path / "started").exists)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: children.read_text() == "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def test_hangup_is_ignored_if_whoever_started_it_asks_for_that(tmp_path: Path) -> None:
    daemon = SupervisedDaemon(tmp_path / "home", SCRIPT)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As `nohup` does.
    try:
        daemon.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    with suppress(subprocess.TimeoutExpired):
        daemon.process.send_signal(signal.SIGHUP)
        daemon.process.wait(0.5)
    assert daemon.call("GET", "/healthz")[0] == 200
    assert daemon.stop() == 0


def test_daemon_that_is_stuck_is_started_again_and_reports_it(daemon: SupervisedDaemon) -> None:
    daemon.program = ("-c", STUCK)
    file = daemon.home / "palyra.toml"
    file.write_text(f'{file.read_text()}[healing]\nmode = "auto"\n')
    with daemon:
        wait_until(lambda: "loop_blocked_before" in daemon.log())
        daemon.wait_until_ready()
        assert daemon.stop() == 0
    assert "again, restarted after it ended itself because it was stuck" in daemon.log()
    assert "block_the_loop" in daemon.log()


def test_writer_that_ends_is_told_and_leads_to_restarts_until_the_journal_works(daemon: SupervisedDaemon) -> None:
    """The file is ruined under a running daemon, and put back while the supervisor still tries."""
    journal = daemon.home / "journal.db"
    with daemon:
        first = daemon.child
        command = [sys.executable, "-m", "palyra", "--home", str(daemon.home), "backup", str(daemon.home / "kept")]
        subprocess.run(command, env=plain_environment(), check=True, capture_output=True, timeout=WAIT_S)
        ruin(journal)
        wait_until(lambda: _post(daemon) != 202)
        wait_until(lambda: _readiness(daemon) == 503 or daemon.child != first)
        wait_until(lambda: daemon.log().count("journal_closed") > 0)
        wait_until(lambda: "error: not_a_journal" in daemon.log())  # A restart that fails is not the last one.
        for name in ("journal.db-wal", "journal.db-shm"):
            (daemon.home / name).unlink(missing_ok=True)
        os.replace(daemon.home / "kept" / "journal.db", journal)
        wait_until(lambda: "again, restarted after it ended itself" in daemon.log())
        daemon.wait_until_ready()
        assert daemon.child not in (None, first)
        assert _post(daemon) == 202
        assert daemon.stop() == 0


def test_writer_that_ends_makes_the_daemon_unready_and_ends_it_with_the_code_of_a_restart(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home", SCRIPT) as daemon:
        ruin(daemon.home / "journal.db")
        seen = set()
        while daemon.process.poll() is None:
            _post(daemon)
            seen.add(_readiness(daemon))
        assert daemon.process.returncode == supervisor.RESTART_EXIT_CODE
        assert 503 in seen
        assert "error: journal_closed" in daemon.log()


def test_control_groups_take_the_supervisor_for_one_of_ours(tmp_path: Path) -> None:
    code = """
from palyra.cli.supervisor import supervise
import os
supervise()
from palyra.adapters.runtimes.shell.groups_find import _ours
print(_ours() == {os.getpid(), os.getppid()}, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout == "True\n"


def test_many_restarts_in_a_minute_lose_and_repeat_nothing(daemon: SupervisedDaemon) -> None:
    daemon.program = ("-c", PATIENT)
    with daemon:
        _, record = daemon.call("POST", "/api/v1/runs", {"text": "work"})
        for _ in range(RESTARTS_COUNT):
            daemon.kill_child()
            daemon.wait_until_ready()
        frames = [frame for frame in daemon.follow(record["id"]) if "seq" in frame]
        assert frames[-1]["type"] == "run.done"
        seqs = [frame["seq"] for frame in frames]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        finished = [frame for frame in frames if frame["type"] == "tool.finished"]
        assert len(finished) == TURNS_COUNT
        assert daemon.call("GET", "/api/v1/journal/verify")[1]["ok"] is True
    notes = daemon.home / "workspace" / "notes"
    assert {path.name for path in notes.iterdir()} == {f"{number}.txt" for number in range(TURNS_COUNT)}


def test_restarts_repeat_no_effect_that_may_happen_once(tmp_path: Path) -> None:
    home = CrashHome(tmp_path)
    chance = random.Random(7)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, ACKS_PIPE_BYTES)
    command = [sys.executable, "-c", LIVES, str(tmp_path), str(writing)]
    with subprocess.Popen(command, cwd=ROOT, pass_fds=[writing]) as process:
        os.close(writing)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        kills = said = 0
        while process.poll() is None:
            if select.select([reading], [], [], 0)[0]:
                home.acks += os.read(reading, 1 << 20).decode().split("\n")
            pids = children.read_text().split() if children.exists() else []
            if pids and len(home.acks) > said and kills < RESTARTS_COUNT:
                said = len(home.acks) + chance.randint(0, 5)
                with suppress(ProcessLookupError):
                    os.kill(int(pids[0]), signal.SIGKILL)
                    kills += 1
            time.sleep(chance.uniform(0.001, 0.03))
        assert process.returncode == 0
    os.close(reading)
    home.acks = [ack for ack in home.acks if len(ack.split()) == 4 and len(ack.split()[3]) == 64]
    assert kills == RESTARTS_COUNT
    assert home.acks
    assert home.audit() == []


def _post(daemon: Daemon) -> int:
    with suppress(OSError, HTTPException):
        return daemon.call("POST", "/api/v1/runs", {"text": "work"})[0]
    return 0


def _readiness(daemon: Daemon) -> int:
    with suppress(OSError, HTTPException):
        return daemon.call("GET", "/readyz")[0]
    return 0


def _first(daemon: Daemon, run_id: str, type_name: str) -> list[dict[str, str]]:
    seen = []
    for frame in daemon.follow(run_id):
        seen.append(frame)
        if frame["type"] == type_name:
            break
    return seen


def _read_until(descriptor: int, text: str | None) -> str:
    seen = b""
    while text is None or text.encode() not in seen:
        ready, _, _ = select.select([descriptor], [], [], WAIT_S)
        assert ready, seen
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal this way.
            break
        if not piece:
            break
        seen += piece
    return seen.decode(errors="replace")
