"""`palyra jobs` against a stand-in: which job is meant, and what people read."""

from collections.abc import Iterator

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from tests.support.stand_in import Json, StandIn

IDS = [f"01JD3V9Q6M1R8Z5X2C4B7N0KT{letter}" for letter in "ABC"]


def job(job_id: str, state: str) -> Json:
    return {
        "id": job_id,
        "kind": "verify",
        "state": state,
        "principal": "user:owner",
        "attempts": 1,
        "payload": {"run_id": "01X"},
        "not_before_ms": 1_750_000_000_000,
        "updated_at_ms": 1_750_000_000_000,
    }


class Queued(StandIn):
    """Has a dead job below a newer one that is done."""

    def __init__(self) -> None:
        super().__init__()
        self.items = [job(IDS[2], "done"), job(IDS[1], "dead"), job(IDS[0], "dead")]
        self.changed: list[str] = []

    def _routes(self) -> list:
        return [
            *super()._routes(),
            ("GET", "/api/v1/jobs", self._list),
            ("GET", "/api/v1/jobs/{id}", self._show),
            ("POST", "/api/v1/jobs/{id}/{what}", self._change),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        state, limit = request.query.get("state"), int(request.query.get("limit", "100"))
        found = [item for item in self.items if state in (None, item["state"])]
        return web.json_response({"items": found[:limit], "next_after": None})

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(job(request.match_info["id"], "dead"))

    async def _change(self, request: web.Request) -> web.Response:
        self.changed.append(f"{request.match_info['what']} {request.match_info['id']}")
        return web.json_response(job(request.match_info["id"], "queued"))


@pytest.fixture
def stand_in() -> Iterator[Queued]:
    daemon = Queued()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


pytestmark = pytest.mark.usefixtures("reaching")


def test_the_last_one_to_retry_is_the_newest_dead_one(stand_in: Queued) -> None:
    assert palyra("jobs", "retry", "last").exit_code == 0
    assert stand_in.changed == [f"retry {IDS[1]}"]
    stand_in.items = stand_in.items[:1]
    assert "no job is dead" in palyra("jobs", "retry", "last").output


def test_the_last_one_to_cancel_is_the_newest(stand_in: Queued) -> None:
    assert palyra("jobs", "cancel", "last").exit_code == 0
    assert stand_in.changed == [f"cancel {IDS[2]}"]


def test_a_list_that_is_cut_says_so() -> None:
    assert "these are the newest 2; --limit shows more" in palyra("jobs", "list", "--limit", "2").stderr
    assert palyra("jobs", "list", "--limit", "3").stderr == ""


def test_a_payload_is_shown_as_json() -> None:
    assert '{"run_id":"01X"}' in palyra("jobs", "show", IDS[0]).output
