"""`palyra learning` against a stand-in: which candidate is meant, what is sent, and what people read."""

from collections.abc import Iterator

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from palyra.cli.terminal.lift_chart import report_lines, sparkline
from tests.support.stand_in import Json, StandIn

IDS = [f"01JD3V9Q6M1R8Z5X2C4B7N0KT{letter}" for letter in "ABC"]


def candidate(number: int, status: str) -> Json:
    return {
        "id": IDS[number],
        "kind": "fact",
        "status": status,
        "content": f"Fact number {number}.",
        "confidence_bps": 8_500,
        "trust": "operator",
        "taint": ["http:evil.example"],
        "origin": "reflection",
        "destination": "memory",
        "applied_to": "memory:X" if status == "accepted" else "",
        "reason": "",
        "created_at_ms": 1_750_000_000_000,
        "updated_at_ms": 1_750_000_000_000 + number,
        "diff": ["+ Fact"],
        "excerpts": [{"seq": 3, "actor": "user:owner", "trust": "operator", "text": "so it is"}],
    }


class Learned(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self.items = [candidate(0, "pending_review"), candidate(1, "accepted"), candidate(2, "suppressed")]
        self.posted: list[tuple[str, Json]] = []
        self.queries: list[dict[str, str]] = []

    def _routes(self) -> list:
        return [
            *super()._routes(),
            ("GET", "/api/v1/learning/candidates", self._list),
            ("GET", "/api/v1/learning/report", self._report),
            ("GET", "/api/v1/learning/candidates/{id}", self._show),
            ("POST", "/api/v1/learning/candidates/{id}", self._decide),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self.queries.append(dict(request.query))
        status = request.query.get("status")
        found = [
            each for each in self.items if (each["status"] == status if status else each["status"] != "suppressed")
        ]
        return web.json_response({"items": found, "next_after": None})

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(next(each for each in self.items if each["id"] == request.match_info["id"]))

    async def _decide(self, request: web.Request) -> web.Response:
        self.posted.append((request.match_info["id"], await request.json()))
        return web.json_response(candidate(1, "accepted"))

    async def _report(self, request: web.Request) -> web.Response:
        weeks = [{"found_count": number, "uses_count": 0} for number in range(8)]
        items = [{"target": "memory:X", "uses_count": 4, "helped_count": 3, "corrected_count": 1, "failed_count": 0}]
        counts = {"accepted": 3}
        return web.json_response({"counts": counts, "junk_bps": 1_000, "use_bps": None, "weeks": weeks, "items": items})


@pytest.fixture
def stand_in() -> Iterator[Learned]:
    daemon = Learned()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["learning", *arguments])


pytestmark = pytest.mark.usefixtures("reaching")


def test_list_shows_a_table_and_filters(stand_in: Learned) -> None:
    listed = run("list", "--status", "pending_review", "--kind", "fact")
    assert listed.exit_code == 0, listed.output
    assert "Fact number 0." in listed.output
    assert "85%" in listed.output
    assert {"status": "pending_review", "kind": "fact"}.items() <= stand_in.queries[0].items()


def test_show_tells_evidence_difference_and_sources(stand_in: Learned) -> None:
    shown = run("show", "last")
    assert shown.exit_code == 0, shown.output
    for words in ("http:evil.example", "accepting it changes", "+ Fact", "drawn from", "so it is", "goes to: memory"):
        assert words in shown.output
    assert "\\n" not in shown.output


def test_the_list_is_in_the_order_of_time_not_of_ids(stand_in: Learned) -> None:
    stand_in.items = [{**candidate(0, "pending_review"), "updated_at_ms": 1_760_000_000_000}, candidate(1, "accepted")]
    listed = run("list").output
    assert listed.index("Fact number 1.") < listed.index("Fact number 0.")


def test_a_filter_that_fits_nothing_says_so(stand_in: Learned) -> None:
    assert "no candidate fits" in run("list", "--status", "rejected").output


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_what_is_in_no_notes_is_not_offered_to_be_shared(stand_in: Learned, yes: tuple[str, ...]) -> None:
    told = run("share", "last", *yes)
    assert told.exit_code == 1
    assert "Share it?" not in told.output
    assert "not_in_notes" in told.output
    assert stand_in.posted == []


@pytest.mark.parametrize(
    ("arguments", "posted"),
    [
        (("accept", "last"), (IDS[0], {"action": "accept", "reason": ""})),
        (("accept", IDS[1][:26]), (IDS[1], {"action": "accept", "reason": ""})),
        (("edit", "last", "New words."), (IDS[0], {"action": "edit", "content": "New words.", "reason": ""})),
        (("reject", "last", "--reason", "old"), (IDS[0], {"action": "reject", "reason": "old"})),
        (("undo", "last"), (IDS[1], {"action": "undo", "reason": ""})),
        (("promote", "last"), (IDS[2], {"action": "promote"})),
    ],
)
def test_a_decision_goes_to_the_candidate_that_it_fits(
    stand_in: Learned, arguments: tuple[str, ...], posted: tuple[str, Json]
) -> None:
    decided = run(*arguments)
    assert decided.exit_code == 0, decided.output
    assert stand_in.posted == [posted]
    assert "is accepted; applied to memory:X" in decided.output


def test_an_unknown_beginning_is_an_error_that_says_what_to_do(stand_in: Learned) -> None:
    unknown = run("accept", "ZZZ")
    assert unknown.exit_code == 1
    assert "palyra learning list" in unknown.output
    assert stand_in.posted == []


def test_the_report_has_rates_and_a_chart(stand_in: Learned) -> None:
    told = run("report")
    assert told.exit_code == 0, told.output
    assert "3 accepted" in told.output
    assert "10%" in told.output
    assert "▁▂▃▄▅▆█" in told.output or "▁▂▃▄▅▆▇█" in told.output or "█|" in told.output
    assert "memory:X: 4 uses, 3 helped, 1 corrected, 0 failed" in told.output


def test_a_sparkline_shows_everything_above_nothing() -> None:
    assert sparkline([0, 1, 1_000]) == " ▁█"
    assert sparkline([0, 0]) == "  "
    assert sparkline([]) == ""
    assert report_lines({})
