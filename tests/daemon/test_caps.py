"""A cap of a dollar, fifty runs at once, and a kill in the middle: spend is accounted for to the last request.

The long form, with kills at seeded moments, is `make campaign`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.cap_campaign import CALL_USD, LIMIT_USD, RUNS_COUNT, SAYS, Cap
from tests.support.bad_providers import Providers
from tests.support.daemons import Daemon, plain_environment
from tests.support.stand_in_provider import Played
from tests.support.waiting import WAIT_S, wait_until

SILENT = Played(is_silent=True)


@pytest.mark.parametrize(
    ("answered_count", "out_count"),
    [
        pytest.param(0, 1, id="during-the-first-call"),  # Its estimate is a guess, so nobody may go beside it.
        pytest.param(8, 10, id="while-many-are-out"),
    ],
)
def test_a_kill_in_the_middle_changes_nothing_about_a_cap(tmp_path: Path, answered_count: int, out_count: int) -> None:
    with Providers() as providers:
        cap = Cap(tmp_path / "home", providers.play(*[SAYS] * answered_count, SILENT))
        cap.daemon.start()
        cap.begin()
        wait_until(lambda: len(cap.meter.asked) >= answered_count + out_count, "the calls")
        cap.daemon.kill()
        unanswered_count = len(cap.meter.asked) - answered_count
        assert unanswered_count >= out_count
        cap.meter.answers = [SAYS]
        with cap.daemon:
            cap.begin()
            cap.finish()
            usage = cap.daemon.call("GET", "/api/v1/usage?by=model&since=2d")[1]
            shown = json.loads(palyra(cap.daemon, "usage", "--since", "2d", "--json").stdout)
        account = cap.account()
    assert account.faults() == []
    assert len(account.estimates) >= unanswered_count
    assert len(cap.run_ids) == RUNS_COUNT
    assert account.denials
    assert len(account.denials) + len(account.answered) == RUNS_COUNT
    assert LIMIT_USD <= account.total_usd + 1e-9 < LIMIT_USD + CALL_USD * 1.1
    for totals in (usage["totals"], shown["totals"]):
        assert totals["calls_count"] == len(account.usages)
        assert totals["cost_usd"] == pytest.approx(account.total_usd)
    assert [item["key"] for item in usage["items"]] == ["metered"]
    verified = palyra(cap.daemon, "verify")
    assert verified.returncode == 0, verified.stdout


def palyra(daemon: Daemon, *arguments: str) -> "subprocess.CompletedProcess[str]":
    own = {"PALYRA_HOME": str(daemon.home), "PALYRA_SERVER__HTTP": f"127.0.0.1:{daemon.port}"}
    return subprocess.run(
        [sys.executable, "-m", "palyra", *arguments],
        env={**plain_environment(), **own},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
