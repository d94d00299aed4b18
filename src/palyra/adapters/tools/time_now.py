"""The tool time.now: tells the time in a zone. Does not own: reading a clock; the call's context holds the time."""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from palyra.core.argument_schemas import arguments_schema, text_schema
from palyra.core.events.base import JsonObject
from palyra.core.events.tool import EffectClass, Outcome, ParallelClass, Risk
from palyra.core.tools import CallNature, ToolResult, ToolSpec, failed
from palyra.core.trust import Trust
from palyra.ports.tools import ToolCallContext

ZONE_LENGTH_MAX = 64

SPEC = ToolSpec(
    name="time.now",
    description="Tells the current date and time. Without a timezone it answers in UTC.",
    input_schema=arguments_schema(
        {"timezone": text_schema(ZONE_LENGTH_MAX, "An IANA time zone name such as Europe/Prague or America/New_York.")}
    ),
    effect_class=EffectClass.READ_ONLY,
    parallel_class=ParallelClass.READ_ONLY_SAFE,
    risk=Risk.LOW,
    output_trust=Trust.SYSTEM,
    timeout_s=5.0,
)


class TimeNow:
    spec = SPEC

    def nature(self, arguments: JsonObject, workspace: tuple[str, ...]) -> CallNature:
        return CallNature(effect_class=EffectClass.READ_ONLY, parallel_class=ParallelClass.READ_ONLY_SAFE)

    async def execute(self, arguments: JsonObject, context: ToolCallContext) -> ToolResult:
        name = arguments.get("timezone", "UTC")
        zone = _find_zone(name)
        if zone is None:
            return failed("timezone_unknown", "there is no such time zone; use an IANA name such as Europe/Prague")
        now = datetime.fromtimestamp(context.now_ms / 1000, UTC).astimezone(zone)
        text = f"{now.isoformat(timespec='seconds')} ({_DAYS[now.weekday()]}, {name})"
        return ToolResult(outcome=Outcome.OK, output=text)


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _find_zone(name: object) -> tzinfo | None:
    """Finds a zone. Zone names become paths in zoneinfo, which refuses those that leave its folders."""
    if name == "UTC":
        return UTC
    if not isinstance(name, str) or not 1 <= len(name) <= ZONE_LENGTH_MAX:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
