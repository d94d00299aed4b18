"""A daemon to measure. Owns: its home and script, starting it as a process of its own, and what it costs. Not: any load.

Nothing of the daemon runs in the measuring process, and only the process started here is ever stopped.
"""

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench._load import Order, Outcome

ROOT = Path(__file__).resolve().parents[1]
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LOAD_TIMEOUT_S = 600.0
LOOK_EVERY_S = 0.002

SERVE = """
import os, sys
from pathlib import Path
from palyra.app import Home
from palyra.app.daemon import run_daemon
from palyra.config import load
home = Home(Path(sys.argv[1]))
run_daemon(home, load(home.root, os.environ), lambda text, *_: print(text, flush=True))
"""

CONFIG = """
[server]
http = "127.0.0.1:0"
grpc = "127.0.0.1:0"
[[provider]]
name = "script"
kind = "scripted"
file = "script.toml"
[[agent]]
name = "default"
"""

# Two turns with one call of a tool that asks nobody; and a long stream to be cancelled in its middle.
SCRIPT = """
[[scripts]]
when = "talk"
[[scripts.turns]]
delay_ms = 5
text = "{long_text}"

[[scripts]]
[[scripts.turns]]
text = "I shall look at the clock first."
[[scripts.turns.calls]]
tool = "time.now"
[scripts.turns.usage]
input_tokens = 1200
output_tokens = 40
[[scripts.turns]]
text = "It is late, and all is well."
[scripts.turns.usage]
input_tokens = 1260
output_tokens = 20
"""
LONG_TEXT = "and so on " * 2_000


class Daemon(msgspec.Struct, frozen=True):
    """One that answers. `ready_s` is from starting the process to the first 200 of /readyz."""

    pid: int
    port: int
    token: str
    ready_s: float

    @property
    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def private_mb(self) -> float:
        """Memory of its own. Each reader maps the journal, and `rss_mb` counts those pages once for each of them."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) / 1000

    @property
    def cpu_s(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, *, kind: str, count: int, concurrency: int = 1, sessions: Sequence[str] = ()) -> Outcome:
        """In a process of its own, so that client and daemon share no interpreter."""
        order = Order(
            kind=kind,
            port=self.port,
            token=self.token,
            concurrency=concurrency,
            count=count,
            sessions=tuple(sessions),
        )
        command = [sys.executable, "-m", "bench._load", msgspec.json.encode(order).decode()]
        done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True, timeout=LOAD_TIMEOUT_S)
        return msgspec.json.decode(done.stdout, type=Outcome)


@contextlib.contextmanager
def made_home() -> Iterator[Path]:
    """A home with the script, removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="palyra-bench-"))
    try:
        (root / "palyra.toml").write_text(CONFIG)
        (root / "script.toml").write_text(SCRIPT.format(long_text=LONG_TEXT))
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def running(home: Path) -> Iterator[Daemon]:
    """The daemon while the block runs; its log is `daemon.log` in the home."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PALYRA_")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    with (home / "daemon.log").open("ab") as log:
        started_s = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(home)],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            env=environment,
            text=True,
        )
        try:
            port = _read_port(process, home)
            token = (home / "admin.token").read_text().strip()
            _wait_until_ready(process, port, token, home)
            yield Daemon(process.pid, port, token, time.perf_counter() - started_s)
        finally:
            _stop(process)


def _read_port(process: "subprocess.Popen[str]", home: Path) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("http://"):
            return int(line.strip().rpartition(":")[2])
    raise RuntimeError(f"the daemon ended before it listened:\n{_log_end(home)}")


def _wait_until_ready(process: "subprocess.Popen[str]", port: int, token: str, home: Path) -> None:
    until_s = time.perf_counter() + READY_TIMEOUT_S
    while time.perf_counter() < until_s and process.poll() is None:
        if _is_ready(port, token):
            return
        time.sleep(LOOK_EVERY_S)
    raise RuntimeError(f"the daemon was not ready within {READY_TIMEOUT_S:g} s:\n{_log_end(home)}")


def _is_ready(port: int, token: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz", headers={"authorization": f"Bearer {token}"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _log_end(home: Path) -> str:
    return (home / "daemon.log").read_text(errors="replace")[-4_000:]
