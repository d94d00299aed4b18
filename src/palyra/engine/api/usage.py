"""Reports of settled spend.

Owns: whose spend a query covers, and which time its words mean. Does not own: the sums (the store).
Invariant: a principal sees only the runs accepted for them (L11), unless the query is about everyone.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from palyra.core.errors import Invalid
from palyra.core.ids import Principal
from palyra.core.projections.usage import QUARTER_MS
from palyra.engine.api.requests import UsageQuery
from palyra.ports.clock import Clock
from palyra.ports.views import UsageFilter, UsageReport, UsageViews

HOUR_MS = 60 * 60 * 1000
YEARS = range(1970, 9999)  # Dates that a timestamp can express, with the day after them.

_AGO = re.compile(r"([1-9][0-9]{0,3})([hd])")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class UsageService:
    views: UsageViews
    clock: Clock

    async def report(self, principal: Principal, query: UsageQuery) -> UsageReport:
        zone, now_ms = find_zone(query.timezone), self.clock.now_ms()
        since_ms = begin_of(query.since, zone, now_ms)
        until_ms = None if query.until is None else end_of(query.until, zone, now_ms)
        if until_ms is not None and until_ms <= since_ms:
            raise Invalid("span_empty", "until is not after since; swap them, or leave until out")
        asked = UsageFilter(
            group=query.by,
            since_ms=since_ms,
            until_ms=until_ms,
            principal=None if query.is_everyone else principal,
            reader=principal,
            zone=zone,
            after=query.after,
            limit=query.limit,
        )
        return await self.views.report(asked)


def find_zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as cause:  # Which error depends on whether the name could be a path.
        message = "there is no such time zone; use an IANA name such as Europe/Prague"
        raise Invalid("timezone_unknown", message) from cause


def begin_of(text: str, zone: tzinfo, now_ms: int) -> int:
    """Returns the first quarter hour of `text`.

    That is `24h` ago, the midnight six days before today for `7d`, or a date's midnight.
    """
    ago = _AGO.fullmatch(text)
    if ago is None:
        return _midnight_ms(_date_in(text), zone)
    count = int(ago[1])
    if ago[2] == "h":
        return _quarter_ms(now_ms - count * HOUR_MS)
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).date()
    return _midnight_ms(today - timedelta(days=count - 1), zone)


def end_of(text: str, zone: tzinfo, now_ms: int) -> int:
    """Returns the quarter hour after the last one of `text`: a date means the whole day."""
    if _AGO.fullmatch(text) is not None:
        return begin_of(text, zone, now_ms)
    return _midnight_ms(_date_in(text) + timedelta(days=1), zone)


def _date_in(text: str) -> date:
    message = "a time is given as 7d, 24h or a date such as 2026-01-31"
    if _DATE.fullmatch(text) is None:
        raise Invalid("time_invalid", message)
    try:
        found = date.fromisoformat(text)
    except ValueError as cause:
        raise Invalid("time_invalid", message) from cause
    if found.year not in YEARS:
        raise Invalid("time_invalid", f"a date is of the years {YEARS.start} to {YEARS.stop - 1}")
    return found


def _midnight_ms(day: date, zone: tzinfo) -> int:
    """Returns the beginning of a day.

    A day without midnight begins where clocks were set forward, which fold 0 gives.
    """
    return _quarter_ms(int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1000)


def _quarter_ms(at_ms: int) -> int:
    return max(0, at_ms // QUARTER_MS * QUARTER_MS)
