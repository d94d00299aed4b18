"""LiteLLM's proxy. Owns: starting it before an upstream, as a process of its own. Not: any load, or its environment (_rival).

With its own settings, except for what would reach out of this machine or write a log line for each request. It checks
a bearer token, as we do, and has no database and no callback.
"""

import contextlib
import http.client
import os
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench._rival import FOLDER, LOCK

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 15.0
LOOK_EVERY_S = 0.2
LOCAL = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOG": "ERROR",
    "DISABLE_ADMIN_UI": "True",
    "NO_DOCS": "True",
    "NO_REDOC": "True",
}


class Proxy(msgspec.Struct, frozen=True):
    """One that answers."""

    pid: int
    port: int
    token: str

    @property
    def cpu_s(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def version() -> str:
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith("litellm=="))


@contextlib.contextmanager
def running(upstream_port: int, models: Sequence[str]) -> Iterator[Proxy]:
    """The proxy while the block runs, with one worker, which is its default."""
    with tempfile.TemporaryDirectory(prefix="palyra-bench-litellm-") as folder:
        root = Path(folder)
        (root / "config.yaml").write_text(make_config(upstream_port, models))
        port, token = _free_port(), f"sk-{secrets.token_hex(32)}"
        command = [str(FOLDER / "bin" / "litellm"), "--config", str(root / "config.yaml")]
        command += ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LITELLM_", "PALYRA_"))}
        environment = {**kept, **LOCAL, "LITELLM_MASTER_KEY": token}
        with (root / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=root, env=environment)
            try:
                _wait_until_ready(process, port, root / "log")
                yield Proxy(process.pid, port, token)
            finally:
                _stop(process)


def make_config(upstream_port: int, models: Sequence[str]) -> str:
    """JSON, which is YAML too."""
    base = f"http://127.0.0.1:{upstream_port}/v1"
    listed = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": base, "api_key": "none"}}
        for name in models
    ]
    return msgspec.json.encode({"model_list": listed, "litellm_settings": {"telemetry": False}}).decode()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until_s = time.perf_counter() + READY_TIMEOUT_S
    while time.perf_counter() < until_s and process.poll() is None:
        if _is_ready(port):
            return
        time.sleep(LOOK_EVERY_S)
    raise RuntimeError(
        f"LiteLLM was not ready within {READY_TIMEOUT_S:g} s:\n{log.read_text(errors='replace')[-4_000:]}"
    )


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health/liveliness")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
