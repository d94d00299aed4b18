"""Cron expressions by cronsim.

Owns: which expressions are taken, and what summer time does to them. Does not own: missed times (core.routines.due).

An hour field of `*` means every hour that passes: such times come twice when an hour repeats, and not at all in an hour
that is left out. Every other hour field means times of the local clock. A time that is left out that day comes at the
first minute after the gap, once for all such times. A time that exists twice comes the first time alone.
"""

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from palyra.core.errors import Invalid
from palyra.core.routines.model import CronSchedule
from palyra.core.routines.wish import find_zone

FIELDS_COUNT = 5
TRIES_MAX = 200  # Times in the first pass of a repeated hour lie before a moment in the second: at most 60, or so.
_CHECK_FROM_MS = 1_767_225_600_000  # 2026-01-01. Whether a time ever comes does not depend on the moment.


class SimulatedCron:
    def check(self, schedule: CronSchedule) -> None:
        if self.next_ms(schedule, _CHECK_FROM_MS) is None:
            raise Invalid("cron_invalid", "that cron expression names a day that never comes")

    def next_ms(self, schedule: CronSchedule, after_ms: int) -> int | None:
        zone = find_zone(schedule.timezone)
        after = datetime.fromtimestamp(after_ms // 1000, UTC).astimezone(zone)
        times = _times(_normal(schedule.cron), after)
        for _ in range(TRIES_MAX):
            found = next(times, None)
            if found is None:
                return None
            found_ms = int(found.astimezone(UTC).timestamp()) * 1000
            if found_ms > after_ms:
                return found_ms
        return None


def _normal(expression: str) -> str:
    """Writes `*` and `*/n` as ranges unless the hour is `*`: cronsim takes a star for "as time passes"."""
    fields = expression.split()
    if len(fields) != FIELDS_COUNT:
        hint = '; instead of @daily write "0 0 * * *"' if expression.startswith("@") else ""
        raise Invalid("cron_invalid", f'a cron expression has five fields, such as "30 7 * * 1-5"{hint}')
    minute, hour, *days = fields
    if hour != "*":
        minute, hour = _as_range(minute, "0-59"), _as_range(hour, "0-23")
    return " ".join((minute, hour, *days))


def _as_range(field: str, whole: str) -> str:
    parts = [whole + part[1:] if part == "*" or part.startswith("*/") else part for part in field.split(",")]
    return ",".join(parts)


def _times(expression: str, after: datetime) -> CronSim:
    try:
        return CronSim(expression, after)
    except (CronSimError, ValueError) as cause:
        raise Invalid("cron_invalid", f"not a cron expression: {cause}".lower().replace("bad", "wrong")) from cause
