"""`palyra tools`, `runs processes` and `runs stop` against a stand-in: what there is, what is missing, and stopping it."""

import json
from collections.abc import Awaitable, Callable, Iterator

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from tests.support.stand_in import SESSION, Json, StandIn

pytestmark = pytest.mark.usefixtures("reaching")

RUN = "01JZ000000000000000000RUN1"
READ: Json = {
    "id": "fs.read", "name": "fs.read", "available": True, "reason": None, "effect_class": "read_only", "risk": "low",
    "runtime": "internal", "capabilities": ["fs_read"], "output_trust": "local",
}  # fmt: skip
SHELL: Json = {"id": "shell.run", "name": "shell.run", "available": False, "reason": "no sandbox;\n\x1b[2Jinstall one"}
PROCESS: Json = {
    "id": "p/1", "run_id": RUN, "session_id": SESSION, "command": "npm run\nserve", "started_at_ms": 1, "exit_code": None
}  # fmt: skip


class WithTools(StandIn):
    def _routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]]:
        return [
            *super()._routes(),
            ("GET", "/api/v1/tools", self._tools),
            ("GET", f"/api/v1/runs/{RUN}/processes", self._processes),
            ("POST", f"/api/v1/runs/{RUN}/processes/{{process}}/stop", self._stop),
        ]

    async def _tools(self, request: web.Request) -> web.Response:
        return web.json_response({"items": [READ, SHELL], "next_after": None})

    async def _processes(self, request: web.Request) -> web.Response:
        return web.json_response({"items": [PROCESS, {**PROCESS, "id": "p2", "exit_code": 3}], "next_after": None})

    async def _stop(self, request: web.Request) -> web.Response:
        return web.json_response({**PROCESS, "id": request.match_info["process"], "exit_code": -15})


@pytest.fixture
def stand_in() -> Iterator[WithTools]:
    daemon = WithTools()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_tools_are_listed_and_missing_ones_with_the_reason() -> None:
    lines = palyra("tools").stdout.splitlines()
    assert lines[0].split() == ["name", "class", "risk", "runtime", "capabilities", "trust", "of", "output"]
    assert lines[1].split() == ["fs.read", "read_only", "low", "internal", "fs_read", "local"]
    assert lines[2] == "✗ shell.run  no sandbox; \\x1b[2Jinstall one"
    assert json.loads(palyra("tools", "--json").stdout) == {"items": [READ, SHELL]}


def test_processes_are_listed_in_one_line_each() -> None:
    lines = palyra("runs", "processes", RUN).stdout.splitlines()
    assert lines[1].startswith("p/1  runs")
    assert lines[1].endswith("npm run serve")
    assert "ended with 3" in lines[2]
    assert len(json.loads(palyra("runs", "processes", RUN, "--json").stdout)["items"]) == 2


def test_a_process_is_stopped_by_its_id_whatever_that_holds() -> None:
    assert palyra("runs", "stop", RUN, "p/1").stdout == "p/1 ended with -15\n"
    assert json.loads(palyra("runs", "stop", RUN, "p2", "--json").stdout)["exit_code"] == -15
