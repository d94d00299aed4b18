"""What every test shares: one event loop library, repeatable examples, and no way out of this machine."""

import ast
import gc
import os
import sys
from functools import wraps
from ipaddress import ip_address
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

# The suite takes the same examples each time, so that it fails for whoever broke something, and not for the next one.
# The campaign draws new examples (`new`), and many of them for costly properties (`long`).
settings.register_profile("suite", derandomize=True, deadline=None, max_examples=100, print_blob=True)
settings.register_profile("new", deadline=None, max_examples=500, print_blob=True)
settings.register_profile(
    "long", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


# By default structlog draws tracebacks with all local variables, which takes seconds and holds the loop.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.dev.ConsoleRenderer(colors=False),
    ]
)


# Whoever runs the tests may have keys of their own; no test may be decided by them, nor be able to use them.
for _name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_"))]:
    del os.environ[_name]


def _parse_without_collecting() -> None:
    """Python 3.11 cannot parse while it parses: the collector may run a finalizer, whose traceback parses its line.

    It then raises `SystemError: AST constructor recursion depth mismatch` from whatever was parsing: pytest, Hypothesis
    or a test. Python 3.12 has mended that.
    """
    parse = ast.parse

    @wraps(parse)
    def parse_alone(*arguments: Any, **options: Any) -> Any:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return parse(*arguments, **options)
        finally:
            if was_enabled:
                gc.enable()

    ast.parse = parse_alone


if sys.version_info < (3, 12):
    _parse_without_collecting()


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
