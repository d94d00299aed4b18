"""A real daemon sends its traces to a configured collector, and refuses to start without what that needs."""

from pathlib import Path

from palyra.adapters.telemetry.traces import trace_id
from palyra.core.ids import RunId
from tests.support.collectors import collecting
from tests.support.daemons import Daemon

SCRIPT = """
[[scripts]]
[[scripts.turns]]
text = "All is well."
"""


PATIENT = """
from palyra.adapters.telemetry import export
export.FLUSH_MS, export.SEND_TIMEOUT_S = 120_000, 120.0  # A collector that is there needs its time on a busy machine.
from palyra.cli.main import main
main()
"""


class PatientDaemon(Daemon):
    program = ("-c", PATIENT)


def test_traces_reach_the_collector_by_the_time_the_daemon_has_stopped(tmp_path: Path) -> None:
    with collecting() as collector:
        variables = {"PALYRA_TELEMETRY__OTLP_URL": collector.url, "PALYRA_TELEMETRY__SERVICE_NAME": "house"}
        with PatientDaemon(tmp_path / "home", SCRIPT, **variables) as daemon:
            run = daemon.call("POST", "/api/v1/runs", {"text": "go"})[1]
            list(daemon.follow(run["id"]))
            assert daemon.stop() == 0
    assert collector.service_names == {"house"}
    names = {span.name for span in collector.spans if span.trace_id == trace_id(RunId(run["id"])).to_bytes(16, "big")}
    assert names == {"invoke_agent main", "queue", "turn", "chat scripted"}
