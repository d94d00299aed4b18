"""`palyra usage` against a stand-in: what it asks, what it draws at any width, and how it says that a price is unknown."""

import io
import json
from collections.abc import Iterator

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner, Result

from palyra.cli.commands.usage import Sum, UsageAnswer, bar, draw, local_zone, short_count, whole_cost
from palyra.cli.main import app
from palyra.cli.terminal.style import cells
from palyra.ports.views import UsageGroup
from tests.support.stand_in import Json, StandIn
from tests.support.terminals import Terminal

EXAMPLES_COUNT = 60


def counted(**changes: object) -> Json:
    counts: Json = {
        "calls_count": 4,
        "input_tokens": 12_000,
        "output_tokens": 800,
        "cached_tokens": 3_000,
        "reasoning_tokens": 0,
        "cache_hit_share": 0.25,
        "cost_usd": 0.5,
        "unpriced_calls_count": 0,
    }
    return {**counts, **changes}


class Accountant(StandIn):
    """A stand-in that gives the pages of `pages`, one after the other, and keeps the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[Json] = []
        self.queries: list[dict[str, str]] = []

    def answer(self, items: list[Json], totals: Json | None = None) -> None:
        self.pages = [{"items": items, "totals": totals or counted(), "next_after": None}]

    def _routes(self) -> list:
        return [*super()._routes(), ("GET", "/api/v1/usage", self._usage)]

    async def _usage(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        return web.json_response(self.pages[min(len(self.queries), len(self.pages)) - 1])


@pytest.fixture
def stand_in() -> Iterator[Accountant]:
    daemon = Accountant()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def usage(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["usage", *arguments])


@pytest.mark.usefixtures("reaching")
@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ([], {"by": "day", "since": "30d", "timezone": "Asia/Kolkata"}),
        (["--by", "model", "--since", "7d"], {"by": "model", "since": "7d", "timezone": "Asia/Kolkata"}),
        (["--timezone", "Europe/Berlin"], {"by": "day", "since": "30d", "timezone": "Europe/Berlin"}),
        (
            ["--by", "principal", "--everyone"],
            {"by": "principal", "since": "30d", "timezone": "Asia/Kolkata", "everyone": "true"},
        ),
    ],
)
def test_options_are_what_is_asked(
    stand_in: Accountant, monkeypatch: pytest.MonkeyPatch, arguments: list[str], query: dict[str, str]
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    stand_in.answer([counted(key="a")])
    assert usage(*arguments).exit_code == 0
    assert stand_in.queries == [{**query, "limit": "400"}]


@pytest.mark.usefixtures("reaching")
def test_all_pages_are_read(stand_in: Accountant) -> None:
    keys = ["2026-01-01", "2026-01-02", "2026-01-03"]
    totals = counted(calls_count=12)
    stand_in.pages = [
        {"items": [counted(key=key)], "totals": totals, "next_after": key if key != keys[-1] else None} for key in keys
    ]
    answer = json.loads(usage("--json").stdout)
    assert answer == {"items": [counted(key=key) for key in keys], "totals": totals, "next_after": None}
    assert [query.get("after") for query in stand_in.queries] == [None, *keys[:2]]


@pytest.mark.usefixtures("reaching")
def test_days_stay_in_order_and_models_come_by_cost(stand_in: Accountant) -> None:
    stand_in.answer([counted(key="a", cost_usd=0.25), counted(key="b", cost_usd=1.0)], counted(cost_usd=1.25))
    days, models = usage().stdout.splitlines(), usage("--by", "model").stdout.splitlines()
    assert [line.split()[0] for line in days[2:4]] == ["a", "b"]
    assert [line.split()[0] for line in models[2:4]] == ["b", "a"]
    assert models[1].split() == ["model", "calls", "input", "output", "cost"]
    assert models[2].split() == ["b", "4", "12k", "800", "$1.00", "█" * 32]
    assert models[3].split() == ["a", "4", "12k", "800", "$0.25", "█" * 8]
    assert models[4] == "total $1.25, 4 calls, 12k tokens in, 800 out, cache hits 25% of input"


@pytest.mark.usefixtures("reaching")
def test_an_unknown_price_is_said_and_never_zero(stand_in: Accountant) -> None:
    unknown = counted(key="local", cost_usd=None, unpriced_calls_count=4)
    partial = counted(key="mixed", cost_usd=0.12, unpriced_calls_count=3, input_tokens=6_000)
    stand_in.answer([unknown, partial], counted(calls_count=8, cost_usd=0.12, unpriced_calls_count=7))
    lines = usage("--by", "model").stdout.splitlines()
    assert lines[1].split()[-1] == "tokens"
    assert lines[2].split() == ["local", "4", "12k", "800", "unknown", "█" * 32]
    assert "≥ $0.12 (3 calls of unknown price)" in lines[3]
    assert lines[4].startswith("total ≥ $0.12 (7 calls of unknown price), 8 calls")
    assert "$0.00" not in "".join(lines)


@pytest.mark.usefixtures("reaching")
def test_of_many_rows_the_largest_are_shown_and_the_rest_counted(stand_in: Accountant) -> None:
    items = [counted(key=f"s{number:02}", cost_usd=float(number)) for number in range(1, 51)]
    stand_in.answer(items)
    lines = usage("--by", "session").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:-2]] == [f"s{number:02}" for number in range(50, 10, -1)]
    assert lines[-2] == "and 10 more, which --json shows"
    assert len(usage("--by", "day").stdout.splitlines()) == 50 + 3


@pytest.mark.usefixtures("reaching")
def test_nothing_spent_says_what_to_do(stand_in: Accountant) -> None:
    stand_in.answer([], counted(calls_count=0, cost_usd=0.0, cache_hit_share=None))
    result = usage("--since", "7d")
    assert result.exit_code == 0
    assert result.stdout.startswith("No model was called since 7d. ")
    assert "palyra run TEXT" in result.stdout
    assert "--since 365d" in result.stdout


@pytest.mark.usefixtures("reaching")
def test_text_of_others_cannot_harm_the_terminal(stand_in: Accountant) -> None:
    stand_in.answer([counted(key="01", label="\x1b[2Jred\nline \u202e[bold]")])
    result = usage("--by", "session")
    assert "\\x1b[2Jred line \\u202e[bold]" in result.stdout
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 4


@pytest.mark.usefixtures("reaching")
def test_an_answer_of_another_form_is_an_error(stand_in: Accountant) -> None:
    stand_in.pages = [{"items": [{"key": "a"}], "totals": {}}]
    result = usage()
    assert (result.exit_code, result.stderr.split(":")[1].strip()) == (1, "answer_garbled")


def test_wrong_grouping_is_wrong_usage() -> None:
    assert usage("--by", "colour").exit_code == 2


def test_help_has_examples() -> None:
    assert "palyra usage --by model --since 7d" in usage("--help").stdout.partition("Examples:")[2]


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_terminal_of_any_width_is_kept_to(stand_in: Accountant, reaching: dict[str, str], columns: str) -> None:
    items = [counted(key=f"vendor/model-with-a-rather-long-name-{number}", cost_usd=number / 7) for number in range(5)]
    stand_in.answer(items, counted(unpriced_calls_count=2))
    environment = {**reaching, "COLUMNS": columns, "NO_COLOR": ""}
    with Terminal(["usage", "--by", "model"], environment) as terminal:
        assert terminal.wait() == 0
        lines = terminal.seen.splitlines()
    assert max(map(cells, lines)) <= int(columns)
    assert len([line for line in lines if "…" in line and "█" in line]) == 5


@pytest.mark.parametrize(
    ("value", "zone"), [("Europe/Berlin", "Europe/Berlin"), (":Asia/Tokyo", "Asia/Tokyo"), ("CET-1CEST,M3", "UTC")]
)
def test_the_machines_zone_is_a_name_or_utc(monkeypatch: pytest.MonkeyPatch, value: str, zone: str) -> None:
    monkeypatch.setenv("TZ", value)
    assert local_zone() == zone


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 60))
def test_a_bar_is_as_long_as_its_share(measure: float, other: float, width: int) -> None:
    low, high = sorted((measure, other))
    assert len(bar(low, high, width)) <= len(bar(high, high, width)) <= width
    assert len(bar(high, high, width)) == (width if high else 0)
    assert bool(bar(low, high, width)) == (low > 0)


@given(st.integers(0, 10**15))
def test_a_short_count_is_short_and_near(count: int) -> None:
    text = short_count(count)
    digits = text.rstrip("kMG").replace(",", "")
    unit = {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1], 1)
    assert abs(float(digits) * unit - count) <= count * 0.06
    assert len(text) <= 4 or count >= 999_500_000_000


sums = st.builds(
    Sum,
    key=st.text(min_size=1, max_size=60),
    label=st.none() | st.text(max_size=60),
    calls_count=st.integers(1, 10**6),
    input_tokens=st.integers(0, 10**9),
    output_tokens=st.integers(0, 10**9),
    cached_tokens=st.integers(0, 10**9),
    reasoning_tokens=st.just(0),
    cache_hit_share=st.none() | st.floats(0, 1),
    cost_usd=st.none() | st.floats(0, 10**4),
    unpriced_calls_count=st.integers(0, 10**5),
)


@settings(max_examples=EXAMPLES_COUNT)
@given(st.lists(sums, min_size=1, max_size=6), sums, st.sampled_from(UsageGroup), st.integers(24, 200))
def test_whatever_is_drawn_fits_and_has_a_line_for_each_row(
    rows: list[Sum], totals: Sum, by: UsageGroup, width: int
) -> None:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:
        draw(console, UsageAnswer(items=tuple(rows), totals=totals), by, "title")
    lines = drawn.get().splitlines()
    assert max(cell_len(line.rstrip()) for line in lines) <= width
    total = next(index for index, line in enumerate(lines) if line.startswith("total "))
    assert total == len(rows) + 2


@given(sums)
def test_a_cost_is_never_zero_where_it_is_unknown(found: Sum) -> None:
    text = whole_cost(found)
    if found.cost_usd is None:
        assert text == "unknown"
    else:
        assert text.startswith("≥ ") == bool(found.unpriced_calls_count)
        assert (text.removeprefix("≥ ").split()[0] == "$0.00") == (found.cost_usd == 0)
