"""Daemons for tests: a real `palyra serve` process on a free port, and a plain client for it.

The process is the daemon itself, without a supervisor: tests that kill it mean the daemon.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.waiting import WAIT_S, wait_until

READY_TIMEOUT_S = WAIT_S
ANSWER_TIMEOUT_S = WAIT_S
MODEL_VARIABLES = ("ANTHROPIC_", "OPENAI_")
SYSTEMD_VARIABLES = ("INVOCATION_ID", "NOTIFY_SOCKET")  # They would switch the supervisor off.


class Daemon:
    """One home, whose process can be started and ended several times."""

    program: tuple[str, ...] = ("-m", "palyra")
    options: tuple[str, ...] = ("--no-supervisor",)

    def __init__(self, home: Path, script: str = "", **environment: str) -> None:
        self.home = home
        self._environment = environment
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        if script:
            (home / "script.toml").write_text(script)
            (home / "palyra.toml").write_text(
                '[[provider]]\nname = "scripted"\nkind = "scripted"\nfile = "script.toml"\n'
            )

    def start(self) -> "Daemon":
        own = {"PALYRA_SERVER__HTTP": f"127.0.0.1:{self.port}", "PALYRA_HOME": str(self.home)}
        environment = {**plain_environment(), **own, **self._environment}
        command = [sys.executable, *self.program, "serve", *self.options]
        with (self.home / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()  # Nobody else would: leaving the block of a daemon that did not start is never reached.
            raise
        return self

    def kill(self) -> None:
        """Ends the process as a power cut does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ends the process as an operator does, and returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=ANSWER_TIMEOUT_S)

    def __enter__(self) -> "Daemon":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def token(self) -> str:
        return (self.home / "admin.token").read_text().strip()

    def log(self) -> str:
        return (self.home / "daemon.log").read_text()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        with self.open(method, path, body) as response:
            answer = response.read()
            return response.status, json.loads(answer) if answer else None

    @contextmanager
    def open(self, method: str, path: str, body: object = None, **headers: str) -> Iterator[HTTPResponse]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_TIMEOUT_S)) as connection:
            head = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            extra = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, json.dumps(body) if body is not None else None, {**head, **extra})
            with connection.getresponse() as response:
                yield response

    def follow(self, run_id: str, after_seq: int | None = None) -> Generator[dict[str, Any], None, None]:
        """Yields recorded events and live frames of a run, as they come."""
        cursor = {"Last_Event_ID": str(after_seq)} if after_seq is not None else {}
        path = f"/api/v1/runs/{run_id}/events"
        with self.open("GET", path, None, Accept="text/event-stream", **cursor) as response:
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended: {self.log()}")
            try:
                status, _ = self.call("GET", "/healthz")
                if status == 200:
                    return
            except (OSError, ValueError):
                time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the daemon is not ready: {self.log()}")


class SupervisedDaemon(Daemon):
    """A daemon as users run it: `process` is the supervisor, and `child` the process id of the daemon itself."""

    options = ()

    @property
    def child(self) -> int | None:
        """Returns None between two lives."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = children.read_text().split() if children.exists() else []
        return int(pids[0]) if pids else None

    def kill_child(self) -> int:
        """Kills the daemon, and waits until the supervisor has started another one. Returns its process id."""
        old = self.child
        assert old is not None
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: self.child not in (None, old), "a new daemon")
        new = self.child
        assert new is not None
        return new


def plain_environment() -> dict[str, str]:
    """Returns this environment without keys and addresses of models, so that none of this machine decides a test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(MODEL_VARIABLES)}
    for name in SYSTEMD_VARIABLES:
        kept.pop(name, None)
    return {**kept, "PALYRA_SERVER__DETECT": "[]", "PALYRA_SERVER__GRPC": "off"}
