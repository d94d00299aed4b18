"""What the tests of the gateway share: the event loop that the daemon uses, one engine for a module, and a scene for a test."""

from collections.abc import AsyncIterator

import pytest

from tests.gateway.prepared import Prepared, open_prepared
from tests.gateway.scene import Scene


@pytest.fixture(scope="package")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(scope="module")
async def prepared(anyio_backend: object, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prepared]:
    async with open_prepared(tmp_path_factory.mktemp("gateway")) as prepared:
        yield prepared


@pytest.fixture
async def scene(prepared: Prepared) -> Scene:
    """What a test changes in it is its own; what it changes in the engine is not."""
    return Scene(prepared.engine, prepared.ids)
