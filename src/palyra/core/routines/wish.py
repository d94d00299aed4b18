"""A routine as somebody asks for it: by API, by a tool, or in palyra.toml.

Owns: turning the wish into a definition, and back; which wishes are refused and why.
Does not own: whether the name is free (engine.api.routines).
"""

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec

from palyra.core.errors import Invalid
from palyra.core.ids import Principal
from palyra.core.routines.model import (
    CRON_LENGTH_MAX,
    EVERY_S_MAX,
    MISFIRE_MAX_DEFAULT,
    MISFIRE_MAX_LIMIT,
    NAME_LENGTH_MAX,
    PROMPT_LENGTH_MAX,
    ZONE_LENGTH_MAX,
    CronSchedule,
    EverySchedule,
    Misfire,
    OnceSchedule,
    Overlap,
    RoutineDefinition,
    RoutineSchedule,
)

SESSION_KEY_LENGTH_MAX = 256
MOMENT_END_MS = 7_289_654_400_000  # 2201-01-01T00:00:00Z. Near the year 9999 a time zone could not be applied.

CheckCron = Callable[[CronSchedule], None]


class RoutineWish(msgspec.Struct, frozen=True, kw_only=True):
    """One of `every_s`, `cron` and `at` is given. `at` is a date and time; without an offset it is in `timezone`.

    If `misfire` is None, a single moment is made up for once, and other times are skipped. `taint` is where the prompt
    comes from, if a model wrote it.
    """

    name: str
    prompt: str
    every_s: int | None = None
    cron: str | None = None
    at: str | None = None
    timezone: str = "UTC"
    misfire: Misfire | None = None
    misfire_max: int = MISFIRE_MAX_DEFAULT
    overlap: Overlap = Overlap.FORBID
    session_key: str | None = None
    channel: str | None = None
    agent: str | None = None
    taint: tuple[str, ...] = ()


class ConfiguredRoutine(msgspec.Struct, frozen=True, kw_only=True):
    """A routine of palyra.toml, and the principal it runs as."""

    principal: Principal
    definition: RoutineDefinition


def make_definition(wish: RoutineWish, check_cron: CheckCron) -> RoutineDefinition:
    """Returns the definition. Invalid says what is wrong with the wish."""
    _require_text("name", wish.name, NAME_LENGTH_MAX)
    if not wish.name.isprintable():
        raise Invalid("routine_name_invalid", "the name of a routine has no control characters")
    _require_text("prompt", wish.prompt, PROMPT_LENGTH_MAX)
    if wish.session_key is not None:
        _require_text("session_key", wish.session_key, SESSION_KEY_LENGTH_MAX)
    if not 1 <= wish.misfire_max <= MISFIRE_MAX_LIMIT:
        raise Invalid("routine_misfire_max", f"misfire_max is from 1 to {MISFIRE_MAX_LIMIT}")
    schedule = make_schedule(wish)
    if isinstance(schedule, CronSchedule):
        check_cron(schedule)
    default = Misfire.ONCE if isinstance(schedule, OnceSchedule) else Misfire.SKIP
    return RoutineDefinition(
        name=wish.name,
        prompt=wish.prompt,
        schedule=schedule,
        timezone=wish.timezone,
        misfire=default if wish.misfire is None else wish.misfire,
        misfire_max=wish.misfire_max,
        overlap=wish.overlap,
        session_key=wish.session_key,
        agent=wish.agent,
        taint=wish.taint,
        channel=wish.channel,
    )


def make_schedule(wish: RoutineWish) -> RoutineSchedule:
    zone = find_zone(wish.timezone)
    given = [key for key in ("every_s", "cron", "at") if getattr(wish, key) is not None]
    if len(given) != 1:
        told = " and ".join(given) if given else "none"
        raise Invalid("routine_schedule", f"a routine has one of every_s, cron and at, and this one has {told}")
    if wish.every_s is not None:
        if not 1 <= wish.every_s <= EVERY_S_MAX:
            raise Invalid("routine_interval", f"every_s is from 1 to {EVERY_S_MAX} seconds")
        return EverySchedule(wish.every_s)
    if wish.cron is not None:
        if len(wish.cron) > CRON_LENGTH_MAX:
            raise Invalid("cron_invalid", f"a cron expression has at most {CRON_LENGTH_MAX} characters")
        return CronSchedule(" ".join(wish.cron.split()), wish.timezone)
    return OnceSchedule(_parse_moment(wish.at or "", zone, wish.timezone))


def wish_of(definition: RoutineDefinition) -> RoutineWish:
    """Returns the wish that makes this definition again."""
    schedule = definition.schedule
    return RoutineWish(
        name=definition.name,
        prompt=definition.prompt,
        every_s=schedule.every_s if isinstance(schedule, EverySchedule) else None,
        cron=schedule.cron if isinstance(schedule, CronSchedule) else None,
        at=moment_text(schedule.at_ms, definition.timezone) if isinstance(schedule, OnceSchedule) else None,
        timezone=definition.timezone,
        misfire=definition.misfire,
        misfire_max=definition.misfire_max,
        overlap=definition.overlap,
        session_key=definition.session_key,
        agent=definition.agent,
        taint=definition.taint,
        channel=definition.channel,
    )


def find_zone(name: str) -> ZoneInfo:
    if 1 <= len(name) <= ZONE_LENGTH_MAX:
        try:
            return ZoneInfo(name)
        except (ValueError, OSError, KeyError):  # Which error it is depends on whether the text could be a path.
            pass
    raise Invalid("timezone_unknown", 'timezone is the name of a time zone, such as "Europe/Prague"')


def moment_text(at_ms: int, timezone: str) -> str:
    """Returns a moment in its time zone. It never raises, so that one odd row cannot break a list.

    Where the zone is no longer known the moment is in UTC; where no calendar has it, its milliseconds are told.
    """
    try:
        in_utc = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    try:
        return in_utc.astimezone(find_zone(timezone)).isoformat()
    except (Invalid, ValueError, OverflowError):
        return in_utc.isoformat()


def _parse_moment(text: str, zone: ZoneInfo, zone_name: str) -> int:
    """Reads a moment. A local time that exists twice is the first; one that does not exist is refused."""
    try:
        moment = datetime.fromisoformat(text)
        local = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone, fold=0)
        in_utc = local.astimezone(UTC)
        is_there = moment.tzinfo is not None or in_utc.astimezone(zone).replace(tzinfo=None) == moment
        at_ms = int(in_utc.timestamp() * 1000)
    except (ValueError, OverflowError) as cause:
        raise Invalid("time_invalid", "at is a date and time, such as 2027-01-31T07:30:00+01:00") from cause
    if not is_there:
        raise Invalid("time_missing", f"that time does not exist in {zone_name}: the clocks are set forward over it")
    if at_ms < 0:
        raise Invalid("time_invalid", "at lies before 1970")
    if at_ms >= MOMENT_END_MS:
        raise Invalid("time_invalid", "at lies after the year 2200")
    return at_ms


def _require_text(noun: str, text: str, length_max: int) -> None:
    if not text.strip():
        raise Invalid(f"routine_{noun}_empty", f"the {noun} of a routine is not empty")
    if len(text) > length_max:
        raise Invalid(f"routine_{noun}_length", f"the {noun} of a routine has at most {length_max} characters")
