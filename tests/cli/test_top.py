"""`palyra top`: numbers of two scrapes, a picture that fits, and a real daemon shown."""

import io
import json
import signal
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from palyra.cli.main import app
from palyra.cli.metrics import quantile, rate, read_scrape
from palyra.cli.terminal.top_view import TopState, draw
from tests.support.daemons import Daemon, plain_environment
from tests.support.examples import examples
from tests.support.terminals import Terminal

TEXT = """# TYPE palyra_runs gauge
palyra_runs{state="in_progress"} 2
# TYPE palyra_runs_ended counter
palyra_runs_ended_total{state="done"} 10
palyra_runs_ended_total{state="failed"} 2
# TYPE palyra_phase_seconds histogram
palyra_phase_seconds_bucket{le="0.1",phase="run"} 8
palyra_phase_seconds_bucket{le="1",phase="run"} 10
palyra_phase_seconds_bucket{le="+Inf",phase="run"} 12
palyra_phase_seconds_count{phase="run"} 12
palyra_phase_seconds_sum{phase="run"} 6
"""


def test_quantiles_are_bounds_of_buckets() -> None:
    scrape = read_scrape(TEXT, 0.0)
    assert [quantile(scrape, "run", share) for share in (0.5, 0.8, 0.95)] == [0.1, 1.0, float("inf")]
    assert quantile(scrape, "tool", 0.5) is None


def test_a_rate_is_what_came_between_and_never_negative() -> None:
    before, now = read_scrape(TEXT, 0.0), read_scrape(TEXT.replace('"done"} 10', '"done"} 14'), 2.0)
    assert rate(before, now, "palyra_runs_ended_total") == 2.0
    assert rate(now, read_scrape(TEXT, 4.0), "palyra_runs_ended_total") == 0.0
    assert rate(None, now, "palyra_runs_ended_total") == 0.0


def picture(runs: list[dict[str, object]], rows: int, columns: int = 100) -> str:
    scrape = read_scrape(TEXT, 0.0)
    state = TopState(address="http://x", now=scrape, before=None, runs=runs, at_ms=5_000, is_everyone=True)
    out = io.StringIO()
    console = Console(file=out, width=columns, height=rows, force_terminal=False)
    console.print(draw(state, rows))
    return out.getvalue()


def test_a_picture_shows_runs_and_says_how_many_are_left_out() -> None:
    runs: list[dict[str, object]] = [
        {"id": f"run{number}", "state": "waiting", "agent": "main", "created_at_ms": 0, "task": "x"}
        for number in range(50)
    ]
    shown = picture(runs, 30)
    assert "run0" in shown
    assert "more" in shown
    assert len(shown.splitlines()) <= 30
    assert "no run is active" in picture([], 30)


def test_a_terminal_of_80_columns_shows_tasks_and_whole_lines() -> None:
    run = {"id": "01M7PFBN7C89B49D5WRBAWVRKG", "state": "in_progress", "agent": "main", "principal": "user:owner"}
    first: dict[str, object] = {**run, "created_at_ms": 0, "task": "tidy up the notes"}
    shown = picture([first], 24, columns=80)
    assert "tidy up the notes" in shown
    assert "principal" not in shown
    assert not [line for line in shown.splitlines()[:4] if line.startswith(("streams", "0.0 MB"))]
    assert shown.splitlines()[4] == ""
    assert "user:alice" in picture([first, {**first, "principal": "user:alice"}], 24, columns=120)


@settings(max_examples=examples(30))
@given(st.text(max_size=80))
def test_no_text_of_others_controls_the_terminal(task: str) -> None:
    shown = picture([{"id": "a", "state": task, "agent": task, "principal": task, "task": task}], 30)
    assert not any(ord(letter) < 32 and letter != "\n" for letter in shown)


def test_a_real_daemon_is_shown_once_as_json_and_live(tmp_path: Path) -> None:
    script = '[[scripts]]\n[[scripts.turns]]\ntext = "Done."\n'
    with Daemon(tmp_path / "home", script) as daemon:
        run = daemon.call("POST", "/api/v1/runs", {"text": "go"})[1]
        list(daemon.follow(run["id"]))
        environment = {
            **plain_environment(),
            "PALYRA_HOME": str(daemon.home),
            "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}",
        }
        told = json.loads(CliRunner().invoke(app, ["--json", "top"], env=environment).stdout)
        assert told["metrics"]['palyra_runs_ended_total{state="done"}'] == 1
        with Terminal(["top", "--every", "0.2"], environment) as terminal:
            terminal.expect_screen("no run is active")
            daemon.stop()
            terminal.expect_screen("no daemon answers")
            daemon.start()
            terminal.expect_screen("no run is active")
            terminal.process.send_signal(signal.SIGINT)
            assert terminal.wait() == 0
        with Terminal(["top", "--every", "60"], environment) as terminal:
            terminal.expect_screen("no run is active")
            terminal.type("q")
            assert terminal.wait() == 0
