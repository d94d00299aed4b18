"""Settings of the engine, as the configuration has them."""

from pathlib import Path

import pytest

from palyra.app import Home
from palyra.app.engine_builder import make_agents, make_settings
from palyra.config.choices import Headless
from palyra.config.records import AgentConfig, ApprovalConfig, Config
from palyra.core.errors import Invalid


@pytest.mark.parametrize(("headless", "is_waiting"), [(Headless.DENY, False), (Headless.WAIT, True)])
def test_headless_runs_wait_only_where_that_is_configured(headless: Headless, is_waiting: bool) -> None:
    settings = make_settings(Config(approvals=ApprovalConfig(headless=headless, timeout_s=60)))
    assert (settings.waits_headless, settings.approval_timeout_ms) == (is_waiting, 60_000)


@pytest.mark.parametrize("root", [".", "..", "/", "policies", "workspace/../skills", "link", "artifacts/x"])
def test_workspace_that_would_open_the_home_is_refused(tmp_path: Path, root: str) -> None:
    home = Home(tmp_path / "home")
    home.workspace.mkdir(parents=True)
    (tmp_path / "home" / "link").symlink_to(tmp_path / "home")
    with pytest.raises(Invalid) as caught:
        make_agents(home, Config(agents=(AgentConfig(name="a", workspace=(root,)),)))
    assert caught.value.code == "workspace_invalid"


@pytest.mark.parametrize("root", ["workspace", "workspace/a", "../elsewhere"])
def test_workspace_beside_or_below_its_place_is_taken(tmp_path: Path, root: str) -> None:
    home = Home(tmp_path / "home")
    home.workspace.mkdir(parents=True)
    agents = make_agents(home, Config(agents=(AgentConfig(name="a", workspace=(root,)),)))
    assert agents["a"].workspace == (str(home.root / root),)
