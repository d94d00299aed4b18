"""What tests of daemon commands share: a stand-in for the daemon, and the variables that lead to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stand_in import TOKEN, StandIn


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    daemon = StandIn().start()
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture
def reaching(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a command that speaks to the stand-in."""
    environment = {
        "PALYRA_HOME": str(tmp_path / "home"),
        "PALYRA_TOKEN": TOKEN,
        "PALYRA_SERVER__HTTP": f"127.0.0.1:{stand_in.port}",
        "PALYRA_SERVER__DETECT": "[]",
        "NO_COLOR": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment
