"""The event loop that the daemon uses."""

import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return ("asyncio", {"use_uvloop": True})
