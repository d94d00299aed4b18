"""How learning does, as lines for a terminal: rates, a small chart of the last weeks, and the items used most.

Does not own: the figures, which the daemon computes.
"""

from palyra.cli.terminal.style import shown
from palyra.core.events.base import JsonObject

BARS = " ▁▂▃▄▅▆▇█"
ITEMS_SHOWN_MAX = 10
STATES = ("pending_review", "accepted", "rejected", "undone", "superseded", "suppressed")


def report_lines(report: JsonObject) -> list[str]:
    counts = report.get("counts")
    held = counts if isinstance(counts, dict) else {}
    lines = ["candidates: " + ", ".join(f"{held.get(state, 0)} {state}" for state in STATES)]
    lines += [
        f"junk among what was found:    {_percent(report.get('junk_bps'))}",
        f"junk among what was kept:     {_percent(report.get('kept_junk_bps'))}   (rejected or undone by you)",
        f"kept items that were used:    {_percent(report.get('use_bps'))}",
        f"uses after which all was well: {_percent(report.get('helped_bps'))}",
    ]
    weeks = _records(report, "weeks")
    if weeks:
        lines += ["", "the last weeks, oldest first"]
        lines += [_chart(title, weeks, member) for title, member in _CHARTS]
    items = _records(report, "items")
    if items:
        lines += ["", "items that were used most"]
        lines += [_item(each) for each in items[:ITEMS_SHOWN_MAX]]
    return lines


_CHARTS = (
    ("found", "found_count"),
    ("junk", "junk_count"),
    ("accepted", "accepted_count"),
    ("rejected", "rejected_count"),
    ("used", "uses_count"),
    ("helped", "helped_count"),
)


def sparkline(values: list[int]) -> str:
    """Returns one bar for each value, in eighths of the largest. Anything above zero is visible."""
    most = max(values, default=0)
    if most <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[max(1, value * (len(BARS) - 1) // most)] if value > 0 else BARS[0] for value in values)


def _chart(title: str, weeks: list[JsonObject], member: str) -> str:
    values = [_number(week.get(member)) for week in weeks]
    return f"{title:>9} |{sparkline(values)}| {values[-1]} this week, {sum(values)} in all"


def _item(item: JsonObject) -> str:
    used, helped = _number(item.get("uses_count")), _number(item.get("helped_count"))
    corrected, failed = _number(item.get("corrected_count")), _number(item.get("failed_count"))
    target = shown(str(item.get("target")))
    return f"  {target}: {used} uses, {helped} helped, {corrected} corrected, {failed} failed"


def _percent(bps: object) -> str:
    return f"{bps / 100:.0f}%" if isinstance(bps, int) else "nothing to count yet"


def _records(report: JsonObject, member: str) -> list[JsonObject]:
    found = report.get(member)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
