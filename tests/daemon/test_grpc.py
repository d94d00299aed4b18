"""A real daemon serves gRPC beside HTTP: its start does not wait for it, and its stop lets streams end."""

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from palyra.gateway.v1 import runs_pb2
from tests.support.daemons import Daemon
from tests.support.waiting import WAIT_S, wait_until

SCRIPT = """
[[scripts]]
when = "slowly"
[[scripts.turns]]
delay_ms = 100
text = "{words}"
[[scripts]]
[[scripts.turns]]
text = "All is well."
""".format(words="word " * 500)


def grpc_state(daemon: Daemon) -> dict[str, str]:
    found: dict[str, str] = daemon.call("GET", "/readyz")[1]["grpc"]
    return found


def stream(channel: grpc.Channel, token: str, text: str) -> Any:
    method = channel.stream_stream(
        "/palyra.gateway.v1.Gateway/RunStream",
        request_serializer=runs_pb2.RunStreamRequest.SerializeToString,
        response_deserializer=runs_pb2.RunStreamResponse.FromString,
    )
    start = runs_pb2.RunStreamRequest(start=runs_pb2.RunStart(text=text))
    return method(iter([start]), metadata=(("authorization", f"Bearer {token}"),), timeout=WAIT_S)


def test_a_run_over_grpc_and_a_stop_that_leaves_the_run_to_the_next_start(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home", SCRIPT, PALYRA_SERVER__GRPC="127.0.0.1:0", PALYRA_RUN__DRAIN_S="0") as daemon:
        wait_until(lambda: grpc_state(daemon)["state"] == "ok", "gRPC")
        with grpc.insecure_channel(grpc_state(daemon)["detail"]) as channel:
            assert daemon.call("GET", "/api/v1/journal/verify")[1]["ok"]  # A process of its own does this.
            assert "fork" not in daemon.log()
            messages = list(stream(channel, daemon.token, "go"))
            assert messages[-1].event.type == "run.done"
            call = stream(channel, daemon.token, "slowly")
            run_id = next(call).started.run_id
            while next(call).WhichOneof("message") != "frame":
                pass
            assert daemon.stop() == 0
            with pytest.raises(grpc.RpcError) as ended:
                list(call)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        daemon.start()
        state = daemon.call("GET", f"/api/v1/runs/{run_id}")[1]["state"]
        assert state in ("accepted", "in_progress")


def test_a_taken_port_stops_the_start_only_if_it_was_chosen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = Daemon(tmp_path / "chosen", SCRIPT, PALYRA_SERVER__GRPC=address)
        with suppress(AssertionError):  # HTTP may answer before gRPC fails.
            daemon.start()
        wait_until(lambda: daemon.process.poll() is not None, "the end of the daemon")
        assert "cannot listen" in daemon.log()


def test_the_start_loads_neither_grpc_nor_what_telemetry_needs() -> None:
    """Each takes a tenth of a second, in which nobody could use the daemon."""
    wired = "palyra.app.daemon, palyra.app.grpc_service, palyra.app.telemetry, palyra.gateway.http.application"
    loaded = (
        "[name for name in ('grpc', 'google.protobuf', 'prometheus_client', 'opentelemetry') if name in sys.modules]"
    )
    command = [sys.executable, "-c", f"import sys, {wired}; print({loaded})"]
    assert subprocess.run(command, capture_output=True, timeout=WAIT_S, check=True).stdout.decode().strip() == "[]"


def test_grpc_can_be_switched_off(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home", SCRIPT, PALYRA_SERVER__GRPC="off") as daemon:
        assert grpc_state(daemon) == {"state": "off", "detail": ""}
