"""The picture of `palyra top`: numbers above, times of phases, and the runs that are not over.

Does not own: gathering what is shown (commands.top).
Invariant: names and texts of others are spelled out, so that nothing in them can control the terminal.
"""

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from palyra.cli.metrics import Scrape, quantile, rate
from palyra.cli.terminal.style import duration, in_one_line
from palyra.core.events.base import JsonObject

PHASES = ("queue", "first_text", "model", "tool", "approval", "turn", "run")
TASK_LENGTH = 60
_COLUMNS = ("run", "state", "agent", "principal", "age", "tokens")
MEBIBYTE = 1024 * 1024


class TopState(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is an earlier scrape, for rates. `runs` are those that are not over."""

    address: str
    now: Scrape
    before: Scrape | None
    runs: list[JsonObject]
    at_ms: int
    is_everyone: bool


def draw(state: TopState, rows_max: int) -> RenderableType:
    """A picture of at most so many rows."""
    head = [_headline(state), _loads(state), _rates(state), _spend(state)]
    phases = _phases(state)
    room = max(3, rows_max - len(head) - len(PHASES) - 6)
    return Group(*head, Text(), phases, Text(), _runs(state, room))


def draw_absence(address: str, words: str) -> RenderableType:
    """While the daemon does not answer."""
    return Text.assemble(("palyra top", "bold"), f"  {address}  ", (in_one_line(words, 200), "red"))


def _headline(state: TopState) -> Text:
    whose = "everyone's runs" if state.is_everyone else "your runs"
    return Text.assemble(("palyra top", "bold"), f"  {state.address}  {whose}  ", ("q ends", "dim"))


def _loads(state: TopState) -> Text:
    now = state.now
    runs, jobs = now.values("palyra_runs", "state"), now.values("palyra_jobs", "state")
    parts = [
        _number("running", runs.get("in_progress", 0), "green"),
        _number("queued", runs.get("accepted", 0)),
        _number("waiting", runs.get("waiting", 0), "yellow"),
        _number("approvals", now.value("palyra_approvals_pending"), "yellow"),
        _number("jobs", jobs.get("queued", 0) + jobs.get("running", 0)),
        _number("dead jobs", jobs.get("dead", 0), "red"),
        _number("incidents", now.value("palyra_incidents_open"), "red"),
    ]
    return Text("  ").join(parts)


def _rates(state: TopState) -> Text:
    now, before = state.now, state.before
    words = (
        f"{rate(before, now, 'palyra_runs_ended_total'):.1f} runs/s",
        f"{rate(before, now, 'palyra_tokens_total', kind='output'):.0f} tokens/s out",
        f"{rate(before, now, 'palyra_journal_events_total'):.0f} events/s",
        f"{now.value('palyra_streams_open'):.0f} streams",
    )
    return Text("  ".join(words), style="dim")


def _spend(state: TopState) -> Text:
    now = state.now
    memory = now.value("process_resident_memory_bytes") / MEBIBYTE
    cost = now.total("palyra_cost_usd_total")
    journal = now.value("palyra_journal_file_bytes") / MEBIBYTE
    words = (
        f"${cost:.4f} since its start" if cost else "no cost known",
        f"memory {memory:.0f} MB",
        f"journal {journal:.1f} MB",
    )
    return Text("  ".join(words), style="dim")


def _number(name: str, value: float, style: str = "") -> Text:
    return Text.assemble(f"{name} ", (f"{value:.0f}", style if value else "dim"))


def _phases(state: TopState) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("phase", width=12)
    for name in ("count", "mean", "p50 ≤", "p95 ≤"):
        table.add_column(name, justify="right", width=10)
    for phase in PHASES:
        count = state.now.value("palyra_phase_seconds_count", phase=phase)
        total_s = state.now.value("palyra_phase_seconds_sum", phase=phase)
        mean = duration(1000 * total_s / count) if count else "–"
        table.add_row(phase, f"{count:.0f}", mean, *(_bound(state.now, phase, share) for share in (0.5, 0.95)))
    return table


def _bound(scrape: Scrape, phase: str, share: float) -> str:
    found = quantile(scrape, phase, share)
    if found is None:
        return "–"
    return "over 15 min" if found == float("inf") else duration(1000 * found)


def _runs(state: TopState, room: int) -> Table:
    """Without a column that says the same of every run: a terminal of 80 columns has no room for it."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    left_out = [name for name in ("agent", "principal") if len({str(run.get(name)) for run in state.runs}) < 2]
    names = [name for name in _COLUMNS if name not in left_out]
    for name in names:
        table.add_column(name, no_wrap=True)
    table.add_column("task", ratio=1, no_wrap=True, overflow="ellipsis")
    for run in state.runs[:room]:
        cells = _cells(run, state.at_ms)
        table.add_row(*(cells[name] for name in names), cells["task"])
    if len(state.runs) > room:
        table.add_row(Text(f"and {len(state.runs) - room} more", style="dim"))
    if not state.runs:
        table.add_row(Text("no run is active", style="dim"))
    return table


def _cells(run: JsonObject, at_ms: int) -> dict[str, Text]:
    usage, created = run.get("usage"), run.get("created_at_ms")
    counts = usage if isinstance(usage, dict) else {}
    tokens = sum(int(counts.get(name, 0)) for name in ("input_tokens", "output_tokens"))
    state = str(run.get("state"))
    return {
        "run": _safe(run.get("id"), 26),
        "state": _safe(state, 12, {"in_progress": "green", "waiting": "yellow"}.get(state, "")),
        "agent": _safe(run.get("agent"), 16),
        "principal": _safe(run.get("principal"), 20),
        "age": Text(duration(at_ms - created) if isinstance(created, int) else "–"),
        "tokens": Text(str(tokens)),
        "task": _safe(run.get("task"), TASK_LENGTH),
    }


def _safe(value: object, length: int, style: str = "") -> Text:
    return Text(in_one_line(str(value or "–"), length), style=style)
