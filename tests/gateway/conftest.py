"""What the tests of the HTTP side share: the event loop that the daemon uses, and a scene."""

import pytest

from tests.gateway.scene import Scene


@pytest.fixture(scope="package")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def scene() -> Scene:
    return Scene()
