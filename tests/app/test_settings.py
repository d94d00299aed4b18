"""Settings of the engine, as the configuration has them."""

import pytest

from palyra.app.daemon import make_settings
from palyra.config.choices import Headless
from palyra.config.records import Approvals, Config


@pytest.mark.parametrize(("headless", "is_waiting"), [(Headless.DENY, False), (Headless.WAIT, True)])
def test_headless_runs_wait_only_where_that_is_configured(headless: Headless, is_waiting: bool) -> None:
    settings = make_settings(Config(approvals=Approvals(headless=headless, timeout_s=60)))
    assert (settings.waits_headless, settings.approval_timeout_ms) == (is_waiting, 60_000)
