"""What every test shares: one event loop library, repeatable examples, and no way out of this machine."""

import os
import sys
from ipaddress import ip_address

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100, print_blob=True)
settings.register_profile(
    "long", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


# Whoever runs the tests may have keys of their own; no test may be decided by them, nor be able to use them.
for _name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_"))]:
    del os.environ[_name]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def _refuse_outside(event: str, arguments: tuple[object, ...]) -> None:
    """No test may leave the machine. An audit hook sees every connection, whichever library makes it."""
    if event != "socket.connect":
        return
    address = arguments[1]
    if isinstance(address, tuple) and not _is_here(str(address[0])):
        raise PermissionError(f"a test tried to reach {address[0]}")


def _is_here(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


sys.addaudithook(_refuse_outside)
