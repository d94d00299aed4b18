"""A routine and its history in words: when it runs, what comes next, what came of a time.

Does not own: what a routine is (core.routines), the commands that show it (cli.commands.routines).
"""

from palyra.cli.terminal.style import date_time_zone, in_one_line, member_text, time_text
from palyra.core.events.base import JsonObject

PROMPT_SHOWN_MAX = 60
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


def routine_row(routine: JsonObject) -> tuple[object, ...]:
    return (
        routine.get("name"),
        when_text(routine),
        time_text(routine.get("next_at_ms")),
        routine.get("state"),
        last_text(routine),
        routine.get("fired_count"),
        routine.get("skipped_count"),
        in_one_line(member_text(routine, "prompt"), PROMPT_SHOWN_MAX),
    )


def when_text(routine: JsonObject) -> str:
    every_s = routine.get("every_s")
    if isinstance(every_s, int):
        return f"every {_interval_text(every_s)}"
    if routine.get("cron") is not None:
        return f"{member_text(routine, 'cron')} ({member_text(routine, 'timezone')})"
    return f"at {member_text(routine, 'at')}"


def _interval_text(every_s: int) -> str:
    """Returns an interval in the largest unit that fits it exactly, since nobody counts 86400 seconds."""
    seconds, unit = next(((size, unit) for size, unit in _UNITS if every_s % size == 0), (1, "s"))
    return f"{every_s // seconds} {unit}"


def next_text(routine: JsonObject) -> str:
    at_ms = routine.get("next_at_ms")
    return date_time_zone(at_ms) if isinstance(at_ms, int) else ""


def misfire_text(routine: JsonObject) -> str:
    rule = member_text(routine, "misfire")
    return f"{rule}, at most {routine.get('misfire_max')}" if rule == "all" else rule


def last_text(routine: JsonObject) -> str:
    """Returns what came of the last time: its run's state and why it failed, or why there was no run."""
    last = routine.get("last")
    return came_of(last) if isinstance(last, dict) else ""


def came_of(fire: JsonObject) -> str:
    reason, state = member_text(fire, "run_reason"), member_text(fire, "run_state") or member_text(fire, "error")
    if fire.get("reason") is not None:
        return f"skipped: {member_text(fire, 'reason')}"
    return f"{state}: {reason}" if state in ("failed", "cancelled") and reason not in ("", state) else state


def outcome_text(fire: JsonObject) -> str:
    manual = ", by hand" if fire.get("is_manual") else ""
    if fire.get("reason") is None:
        return f"{member_text(fire, 'outcome')}{manual}"
    count = fire.get("count")
    several = f", {count} times" if isinstance(count, int) and count > 1 else ""
    return f"{member_text(fire, 'outcome')}: {member_text(fire, 'reason')}{several}{manual}"
