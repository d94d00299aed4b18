"""The daemon under crashes: every named point, and real SIGKILLs. The long form is `make campaign`."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

KILLS = 25


def test_no_crash_loses_an_event_or_repeats_a_once_effect() -> None:
    campaign = subprocess.run(
        [sys.executable, "-m", "tests.crash.daemon_campaign", "--kills", str(KILLS)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
