"""`palyra skills`: what the daemon has, its problems below the table, and every change asked of the daemon alone."""

import json
from collections.abc import Awaitable, Callable, Iterator

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from palyra.cli.main import app
from tests.support.stand_in import Json, StandIn

pytestmark = pytest.mark.usefixtures("reaching")

HASH = "ab" * 32
TIDY: Json = {
    "id": "home:tidy", "name": "tidy", "description": "Tidies up.", "place": "home", "root": None, "trust": "operator",
    "status": "active", "can_open": True, "sha256": HASH, "allowed_tools": ["fs.read", "http.fetch"],
    "unknown_tools": ["WebSearch"], "missing_tools": ["http.fetch"], "files": [{"path": "SKILL.md", "bytes": 120}],
    "problem": None, "notes": [], "body": None,
}  # fmt: skip
LOCAL: Json = {
    **TIDY, "id": "workspace:local", "name": "local", "place": "workspace", "root": "/srv/w", "trust": "external",
    "status": "quarantined", "description": "Evil \x1b[2J\u202e text.", "notes": ["nobody has accepted it"],
    "allowed_tools": None, "unknown_tools": [], "missing_tools": [],
}  # fmt: skip
BROKEN: Json = {**TIDY, "name": "broken", "description": "", "problem": "name is \x1bmissing", "can_open": False}


class WithSkills(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self.skills = [TIDY, BROKEN, LOCAL]
        self.asked: list[tuple[str, str, Json]] = []

    def _routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]]:
        return [
            *super()._routes(),
            ("GET", "/api/v1/skills", self._skills),
            ("GET", "/api/v1/skills/{name}", self._skill),
            ("PATCH", "/api/v1/skills/{name}", self._change_skill),
        ]

    async def _skills(self, request: web.Request) -> web.Response:
        self.asked.append(("list", "", dict(request.query)))
        return web.json_response({"items": self.skills, "next_after": None})

    async def _skill(self, request: web.Request) -> web.Response:
        self.asked.append(("show", request.match_info["name"], dict(request.query)))
        return self._found(request, {"body": "# How\n\x1b[2JDo it.\u202e"})

    async def _change_skill(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(("change", request.match_info["name"], body))
        return self._found(request, {"status": body["status"]})

    def _found(self, request: web.Request, changes: Json) -> web.Response:
        found = next((skill for skill in self.skills if skill["name"] == request.match_info["name"]), None)
        if found is None:
            error = {"code": "skill_unknown", "message": "there is no such skill", "retryable": False}
            return web.json_response({"error": error}, status=404)
        return web.json_response({**found, **changes})


@pytest.fixture
def stand_in() -> Iterator[WithSkills]:
    daemon = WithSkills()
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


def palyra(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("arguments", [["skills"], ["skills", "list"]])
def test_skills_are_listed_with_problems_below(arguments: list[str]) -> None:
    head, tidy, broken, local, *remarks = palyra(*arguments).stdout.splitlines()
    assert head.split() == ["name", "place", "status", "trust", "description"]
    assert " ".join(tidy.split()) == "tidy home active operator Tidies up."
    assert broken.split()[:3] == ["broken", "home", "broken"]
    assert " ".join(local.split()) == "local workspace quarantined external Evil \\x1b[2J\\u202e text."
    assert remarks == ["✗ broken: name is \\x1bmissing", "! local: nobody has accepted it"]


def test_none_is_said_with_where_to_read_on(stand_in: WithSkills) -> None:
    stand_in.skills = []
    assert "docs/skills.md" in palyra("skills").stdout


@pytest.mark.parametrize("arguments", [["skills", "--json"], ["--json", "skills", "list"]])
def test_skills_for_programs_are_what_the_daemon_says(arguments: list[str]) -> None:
    assert json.loads(palyra(*arguments).stdout) == {"items": [TIDY, BROKEN, LOCAL]}


def test_agent_is_asked_for(stand_in: WithSkills) -> None:
    palyra("skills", "list", "--agent", "coder")
    palyra("skills", "show", "tidy", "--agent", "coder", "--place", "home")
    assert stand_in.asked == [("list", "", {"agent": "coder"}), ("show", "tidy", {"agent": "coder", "place": "home"})]


def test_skill_is_shown_with_what_it_allows_in_vain() -> None:
    text = palyra("skills", "show", "tidy").stdout
    assert text.splitlines()[0] == "tidy  active  home"
    assert "allows: fs.read, http.fetch" in text
    assert "of these unknown here: WebSearch, http.fetch" in text
    assert "files: SKILL.md (120 bytes)" in text
    assert text.endswith("# How\n\\x1b[2JDo it.\\u202e\n")
    assert "to accept" not in text


def test_strangers_skill_is_shown_with_how_to_accept_exactly_it() -> None:
    lines = palyra("skills", "show", "local").stdout.splitlines()
    assert lines[0] == "local  quarantined  workspace /srv/w"
    assert "! nobody has accepted it" in lines
    assert lines[-1] == (f"to accept exactly this: palyra skills enable local --place workspace --sha256 {HASH}")


@pytest.mark.parametrize(
    ("arguments", "body", "word"),
    [
        (["enable", "tidy"], {"status": "active"}, "active"),
        (["enable", "tidy", "--sha256", HASH], {"status": "active", "sha256": HASH}, "active"),
        (["disable", "tidy", "--place", "home"], {"status": "disabled", "place": "home"}, "disabled"),
        (["quarantine", "tidy", "--agent", "coder"], {"status": "quarantined", "agent": "coder"}, "quarantined"),
    ],
)
def test_change_is_asked_of_the_daemon(stand_in: WithSkills, arguments: list[str], body: Json, word: str) -> None:
    result = palyra("skills", *arguments)
    assert (result.exit_code, result.stdout) == (0, f"tidy (home) is {word}\n")
    assert stand_in.asked == [("change", "tidy", body)]


def test_change_for_programs_is_the_record() -> None:
    assert json.loads(palyra("skills", "disable", "tidy", "--json").stdout) == {**TIDY, "status": "disabled"}


@pytest.mark.parametrize("command", ["show", "enable", "disable", "quarantine"])
def test_unknown_skill_ends_with_one(command: str) -> None:
    result = palyra("skills", command, "a/b")
    assert result.exit_code == 1
    assert "skill_unknown" in result.stderr


def test_place_there_is_not_is_wrong_usage() -> None:
    assert palyra("skills", "show", "tidy", "--place", "attic").exit_code == 2


@pytest.mark.parametrize("command", ["list", "show", "enable", "disable", "quarantine"])
def test_every_command_has_examples(command: str) -> None:
    assert f"palyra skills {command}" in palyra("skills", command, "--help").stdout
