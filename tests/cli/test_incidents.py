"""`palyra incidents` and `palyra doctor` against a stand-in: what is asked, and what people read."""

import json
from collections.abc import Iterator

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from palyra.cli.commands.incidents import age
from palyra.cli.main import app
from tests.support.stand_in import Json, StandIn

FIRST = "01JD3V9Q6M1R8Z5X2C4B7N0KTE"


def incident(**changes: object) -> Json:
    record: Json = {
        "id": FIRST,
        "domain": "run",
        "subject": "01JD3V9Q6M1R8Z5X2C4B7N0RUN",
        "severity": "critical",
        "status": "open",
        "resolution": None,
        "evidence": "run X: no heartbeat for 130 s\n\x1b[2Jsecond line",
        "remediation": "Look at it with palyra runs show.",
        "remedy": "redrive_run",
        "remedy_words": "give up what the run waits for",
        "first_seen_ms": 1_750_000_000_000,
        "last_seen_ms": 1_750_000_030_000,
        "opened_count": 1,
        "actions_count": 0,
        "acted_at_ms": None,
        "resolved_at_ms": None,
        "last": "",
    }
    return {**record, **changes}


class Watched(StandIn):
    """Gives `items` to lists, and keeps what else is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Json] = [incident()]
        self.asked: list[tuple[str, str, Json]] = []

    def _routes(self) -> list:
        return [
            *super()._routes(),
            ("GET", "/api/v1/incidents", self._list),
            ("GET", "/api/v1/incidents/{id}", self._show),
            ("POST", "/api/v1/incidents/{id}/{what}", self._change),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self.asked.append(("list", "", dict(request.query)))
        return web.json_response({"items": self.items, "next_after": None})

    async def _show(self, request: web.Request) -> web.Response:
        self.asked.append(("show", request.match_info["id"], {}))
        return web.json_response(self.items[0])

    async def _change(self, request: web.Request) -> web.Response:
        self.asked.append((request.match_info["what"], request.match_info["id"], await request.json()))
        if request.match_info["what"] == "act":
            return web.json_response({"outcome": "2 effects were given up", "incident": self.items[0]})
        return web.json_response(self.items[0])


@pytest.fixture
def stand_in() -> Iterator[Watched]:
    daemon = Watched()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.usefixtures("reaching")
def test_a_list_tells_what_is_wrong_since_when_and_what_to_do(stand_in: Watched) -> None:
    told = palyra("incidents", "list")
    assert told.exit_code == 0
    lines = told.output.splitlines()
    assert lines[0].startswith("critical  run  open for ")
    assert lines[1:] == [
        "  run X: no heartbeat for 130 s",
        "  Look at it with palyra runs show.",
        f"  palyra incidents act {FIRST}  (give up what the run waits for)",
    ]
    assert stand_in.asked[0][2]["status"] == "open"


@pytest.mark.usefixtures("reaching")
def test_nothing_wrong_is_said_too_and_all_shows_what_is_over(stand_in: Watched) -> None:
    stand_in.items = []
    assert palyra("incidents", "list").output == "nothing is stuck or degraded\n"
    stand_in.items = [incident(status="resolved", resolved_at_ms=1_750_000_060_000, actions_count=2)]
    told = palyra("incidents", "list", "--all")
    assert "resolved" in told.output
    assert "acted on 2 times" in told.output
    assert "incidents act" not in told.output
    assert "status" not in stand_in.asked[-1][2]


@pytest.mark.usefixtures("reaching")
def test_one_is_shown_whole_and_without_control_characters(stand_in: Watched) -> None:
    told = palyra("incidents", "show", FIRST)
    assert told.exit_code == 0
    assert "second line" in told.output
    assert "\x1b" not in told.output
    assert "subject:    01JD3V9Q6M1R8Z5X2C4B7N0RUN" in told.output


@pytest.mark.usefixtures("reaching")
def test_acting_and_resolving_ask_the_daemon(stand_in: Watched) -> None:
    assert palyra("incidents", "act", FIRST).output.splitlines()[0] == "2 effects were given up"
    assert palyra("incidents", "resolve", FIRST, "--reason", "planned").output == f"{FIRST} is resolved\n"
    assert stand_in.asked == [("act", FIRST, {}), ("resolve", FIRST, {"reason": "planned"})]


@pytest.mark.usefixtures("reaching")
@pytest.mark.parametrize("arguments", [("list",), ("show", FIRST), ("act", FIRST), ("resolve", FIRST)])
def test_json_is_the_daemons_answer(stand_in: Watched, arguments: tuple[str, ...]) -> None:
    told = palyra("incidents", *arguments, "--json")
    assert told.exit_code == 0
    answer = json.loads(told.output)
    found = {"list": lambda: answer["items"][0], "act": lambda: answer["incident"]}.get(arguments[0], lambda: answer)()
    assert found == incident()


@pytest.mark.usefixtures("reaching")
def test_doctor_explains_each_open_incident(stand_in: Watched) -> None:
    stand_in.items = [incident(), incident(id="2", domain="disk", severity="warning", remedy="")]
    told = palyra("doctor", "--json")
    findings = {found["check"]: found for found in json.loads(told.output)["checks"]}
    assert findings["run incident"]["mark"] == "fail"
    assert f"palyra incidents act {FIRST}" in findings["run incident"]["remedy"]
    assert findings["disk incident"]["mark"] == "warn"


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [(-5, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (3_600_000, "1 h"), (200_000_000, "2 d")],
)
def test_ages_have_the_largest_unit_that_fits(duration_ms: int, words: str) -> None:
    assert age(duration_ms) == words


@pytest.mark.usefixtures("reaching")
@pytest.mark.parametrize("text", ["last", FIRST[:12].lower()])
def test_an_incident_is_named_by_the_beginning_of_its_id_or_as_the_newest_open_one(
    stand_in: Watched, text: str
) -> None:
    older, newer = f"{FIRST[:-1]}0", "01JZ3V9Q6M1R8Z5X2C4B7N0KTE"
    stand_in.items = [incident(id=newer, status="resolved"), incident()]
    if text == "last":
        stand_in.items.append(incident(id=older))
    assert palyra("incidents", "show", text).exit_code == 0
    assert stand_in.asked[-1][:2] == ("show", FIRST)


@pytest.mark.usefixtures("reaching")
def test_an_incident_that_is_not_there_is_said(stand_in: Watched) -> None:
    assert "no incident's id begins with 'zz'" in palyra("incidents", "show", "zz").output
    stand_in.items = []
    assert "there are no incidents" in palyra("incidents", "show", "last").output
