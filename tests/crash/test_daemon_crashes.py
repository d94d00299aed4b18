"""The daemon under crashes: every named point, and real SIGKILLs. The long form is `make campaign`."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

KILLS = 25
TIMEOUT_S = 1_800.0  # Far more than it takes on a busy machine.


def test_no_crash_loses_an_event_or_repeats_a_once_effect() -> None:
    campaign = subprocess.run(
        [sys.executable, "-m", "tests.crash.daemon_campaign", "--kills", str(KILLS)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
