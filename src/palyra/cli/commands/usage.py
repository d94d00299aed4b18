"""`palyra usage`: spend as a table with a bar for each row.

Does not own: the sums, which the daemon computes.
Invariant: an unknown price is never shown as zero, and a sum without it says so.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from palyra.cli.daemon_call import ask_daemon
from palyra.cli.options import CommandGroup, is_json
from palyra.cli.output import print_json
from palyra.cli.terminal.style import cells, in_one_line, style_for
from palyra.core.errors import Unavailable
from palyra.core.events.base import JsonObject
from palyra.ports.views import UsageGroup

if TYPE_CHECKING:
    from rich.console import Console

    from palyra.cli.client import Client

PAGES_MAX = 100
PAGE_ROWS = 400
ROWS_SHOWN_MAX = 40  # Days are all shown. --json has every row.
KEY_CELLS_MAX = 40
BAR_CELLS_MIN, BAR_CELLS_MAX = 4, 32
PIPE_CELLS = 160  # In a pipe, lines may be long.
GAP = 2
WIDE_CELLS, MIDDLE_CELLS = 72, 52

_EIGHTHS = " ▏▎▍▌▋▊▉"
_ZONES = "/zoneinfo/"

app = CommandGroup()


class Sum(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of the answer, or its totals."""

    key: str = ""
    label: str | None = None
    calls_count: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cache_hit_share: float | None
    cost_usd: float | None
    unpriced_calls_count: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class UsageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Sum, ...]
    totals: Sum
    next_after: str | None = None


@app.command()
def usage(
    context: typer.Context,
    by: Annotated[UsageGroup, typer.Option(help="What to sum by.")] = UsageGroup.DAY,
    since: Annotated[str, typer.Option(metavar="7d|24h|DATE", help="From when on.")] = "30d",
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The time zone of the days; by default this machine's.")
    ] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Show all principals; needs the role operator.")] = False,
) -> None:
    """Show what model calls cost: calls, tokens and cost, with a bar for each row.

    A cost that begins with ≥ leaves out calls whose price is not known. `7d` means today and the six days before it.

    Examples:

      palyra usage

      palyra usage --by model --since 7d

      palyra usage --by principal --since 2026-01-01 --timezone Europe/Berlin

      palyra usage --by session --since 24h --json
    """
    zone = timezone or local_zone()
    query = {"by": by.value, "since": since, "timezone": zone} | ({"everyone": "true"} if everyone else {})
    report = ask_daemon(context, lambda client: _read(client, query))
    if is_json(context):
        print_json(report)
        return
    console = _console()
    with console.capture() as drawn:
        if report.totals.calls_count == 0:
            console.print(
                f"No model was called since {since}. Look further back with --since 365d, or start a run: palyra run TEXT"
            )
        else:
            draw(console, report, by, f"by {by.value}, since {since}, time zone {zone}")
    for line in drawn.get().splitlines():
        typer.echo(line.rstrip())


async def _read(client: "Client", query: dict[str, str]) -> UsageAnswer:
    """Returns the items of all pages with the totals of the first."""
    report = _checked(await client.get("/usage", limit=PAGE_ROWS, **query))
    items, after = list(report.items), report.next_after
    for _ in range(PAGES_MAX):
        if after is None:
            break
        following = _checked(await client.get("/usage", limit=PAGE_ROWS, after=after, **query))
        items, after = [*items, *following.items], following.next_after
    return msgspec.structs.replace(report, items=tuple(items), next_after=after)


def _checked(page: JsonObject) -> UsageAnswer:
    try:
        return msgspec.convert(page, UsageAnswer)
    except msgspec.ValidationError as cause:
        raise Unavailable(
            "answer_garbled", "the daemon's answer has another form; check that it runs this release of palyra"
        ) from cause


def local_zone() -> str:
    """Returns the name of this machine's time zone, if the machine names one."""
    from zoneinfo import ZoneInfo

    name = os.environ.get("TZ", "").removeprefix(":") or os.path.realpath("/etc/localtime").partition(_ZONES)[2]
    try:
        return ZoneInfo(name).key if name else "UTC"
    except (ValueError, OSError, KeyError):
        return "UTC"


def _console() -> "Console":
    from rich.console import Console

    return Console(
        width=None if sys.stdout.isatty() else PIPE_CELLS,
        color_system="auto" if style_for(sys.stdout).is_coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def draw(console: "Console", report: UsageAnswer, by: UsageGroup, title: str) -> None:
    """Draws days by date, and everything else with the largest first."""
    is_by_cost = bool(report.totals.cost_usd) and report.totals.unpriced_calls_count == 0
    rows = list(report.items)
    if by is not UsageGroup.DAY:
        rows = sorted(rows, key=lambda each: _measure(each, is_by_cost), reverse=True)[:ROWS_SHOWN_MAX]
    console.print(title, style="dim")
    _draw_rows(console, rows, by, is_by_cost)
    if len(rows) < len(report.items):
        console.print(f"and {len(report.items) - len(rows)} more, which --json shows", style="dim")
    console.print(_total_line(report.totals))


def _measure(found: Sum, is_by_cost: bool) -> float:
    """Returns what a bar shows: cost if all of it is known, else tokens, because an unknown cost has no length."""
    return found.cost_usd or 0.0 if is_by_cost else found.tokens


def _draw_rows(console: "Console", rows: Sequence[Sum], by: UsageGroup, is_by_cost: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    measures = [_measure(each, is_by_cost) for each in rows]
    columns = _columns(rows, by, console.width)
    bar_cells = min(BAR_CELLS_MAX, console.width - sum(_cells_of(column) + GAP for column in columns))
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for name, *values in columns:
        is_prose = name == by.value or any("(" in value for value in values)
        table.add_column(name, justify="left" if is_prose else "right", no_wrap=True)
    has_bars = bar_cells >= BAR_CELLS_MIN
    if has_bars:
        table.add_column("" if is_by_cost else "tokens"[:bar_cells], no_wrap=True)
    for index, measure in enumerate(measures):
        cost_style = "yellow" if rows[index].unpriced_calls_count else "green"
        texts = [Text(column[index + 1], style=cost_style if column[0] == "cost" else "") for column in columns]
        drawn = [Text(bar(measure, max(measures), bar_cells), style="cyan")] if has_bars else []
        table.add_row(*texts, *drawn)
    console.print(table)


def _columns(rows: Sequence[Sum], by: UsageGroup, width: int) -> list[list[str]]:
    """Returns the columns that fit, each with its heading. The narrowest choice is the key and the cost."""
    key_cells = min(KEY_CELLS_MAX, max(10, width * 2 // 5))
    keys = [by.value, *(_shortened(in_one_line(each.label or each.key, 200), key_cells) for each in rows)]
    calls = ["calls", *(f"{each.calls_count:,}" for each in rows)]
    given = ["input", *(short_count(each.input_tokens) for each in rows)]
    made = ["output", *(short_count(each.output_tokens) for each in rows)]
    both = ["tokens", *(short_count(each.tokens) for each in rows)]
    brief = ["cost", *(_brief_cost(each) for each in rows)]
    whole = ["cost", *(whole_cost(each) for each in rows)]
    choices = [[keys, calls, given, made, whole], [keys, calls, given, made, brief], [keys, both, brief], [keys, brief]]
    bar_wanted = {WIDE_CELLS: 12, MIDDLE_CELLS: 8}
    for columns, at_least in zip(choices, (WIDE_CELLS, WIDE_CELLS, MIDDLE_CELLS, 0), strict=True):
        taken = sum(_cells_of(column) + GAP for column in columns) + bar_wanted.get(at_least, 0)
        if width >= max(at_least, taken):
            return columns
    return choices[-1]


def _cells_of(column: Sequence[str]) -> int:
    return max(cells(text) for text in column)


def bar(measure: float, measure_max: float, width: int) -> str:
    """Draws a bar as long as its share of the longest, to an eighth of a cell. Any measure above zero is visible."""
    if measure <= 0 or measure_max <= 0 or width <= 0:
        return ""
    eighths = max(1, round(min(1.0, measure / measure_max) * width * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def short_count(count: int) -> str:
    """Returns three digits and a letter: 999, 1.2k, 84k, 3.4M."""
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= unit * 0.9995:
            share = count / unit
            return f"{share:.1f}{letter}" if share < 9.95 else f"{share:,.0f}{letter}"
    return str(count)


def _money(cost_usd: float) -> str:
    if cost_usd == 0 or cost_usd >= 0.1:
        return f"${cost_usd:,.2f}"
    return f"${cost_usd:.4f}" if cost_usd >= 0.0001 else "<$0.0001"


def _brief_cost(found: Sum) -> str:
    if found.cost_usd is None:
        return "unknown"
    return f"≥ {_money(found.cost_usd)}" if found.unpriced_calls_count else _money(found.cost_usd)


def whole_cost(found: Sum) -> str:
    count = found.unpriced_calls_count
    if found.cost_usd is None or count == 0:
        return _brief_cost(found)
    return f"{_brief_cost(found)} ({count:,} {'call' if count == 1 else 'calls'} of unknown price)"


def _total_line(totals: Sum) -> str:
    share = totals.cache_hit_share
    parts = [
        f"total {whole_cost(totals)}" if totals.cost_usd is not None else "total cost unknown",
        f"{totals.calls_count:,} {'call' if totals.calls_count == 1 else 'calls'}",
        f"{short_count(totals.input_tokens)} tokens in, {short_count(totals.output_tokens)} out",
        "no cache hits" if not share else f"cache hits {share:.0%} of input",
    ]
    return ", ".join(parts)


def _shortened(text: str, cells_max: int) -> str:
    """Shortens text in the middle, because names of models and ids of sessions begin alike."""
    if cells(text) <= cells_max:
        return text
    head, tail = text[: cells_max // 2], text[-(cells_max // 2) :]
    while cells(head) + cells(tail) + 1 > cells_max:
        head, tail = (head[:-1], tail) if cells(head) >= cells(tail) else (head, tail[1:])
    return f"{head}…{tail}"
