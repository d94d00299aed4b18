"""time.now: the time of the call's context, in a zone that exists."""

import pytest

from palyra.adapters.tools.time_now import TimeNow
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import Outcome
from tests.support.tool_calls import code_of, execute

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "2025-06-15T15:06:40+00:00 (Sunday, UTC)"),
        ({"timezone": "UTC"}, "2025-06-15T15:06:40+00:00 (Sunday, UTC)"),
        ({"timezone": "Europe/Prague"}, "2025-06-15T17:06:40+02:00 (Sunday, Europe/Prague)"),
        ({"timezone": "Pacific/Auckland"}, "2025-06-16T03:06:40+12:00 (Monday, Pacific/Auckland)"),
    ],
)
async def test_time_is_told_in_the_zone_asked_for(arguments: JsonObject, expected: str) -> None:
    result = await execute(TimeNow(), arguments)
    assert (result.outcome, result.output) == (Outcome.OK, expected)


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "Europe", "a\x00b", "\ud800", "x" * 65, 7]
)
async def test_unknown_zone_is_a_failure_with_a_code(zone: object) -> None:
    result = await execute(TimeNow(), {"timezone": zone})
    assert (result.outcome, code_of(result)) == (Outcome.FAILED, "timezone_unknown")
