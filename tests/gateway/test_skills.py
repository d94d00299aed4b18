"""`/api/v1/skills`: everyone looks, operators change, every member is bounded, and errors have our shape."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palyra.adapters.providers.scripted import Script
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.core.ids import Principal
from palyra.core.skills import SkillPlace, SkillStatus
from palyra.engine.api.skills import SkillChange, SkillQuery
from palyra.ports.tokens import Role
from tests.gateway.prepared import write_skill
from tests.gateway.scene import Scene
from tests.support.asking import says
from tests.support.engines import Workshop

PATH = "/api/v1/skills"
OWNER = Principal("user:owner")
HASH = "ab" * 32


async def test_list_asks_for_the_agents_skills(scene: Scene) -> None:
    answer = await scene.ask("GET", f"{PATH}?agent=main")
    assert scene.asked == [("skills.list", "main")]
    (item,) = answer.json["items"]
    assert answer.json["next_after"] is None
    assert {
        "id": "home:scripted", "name": "scripted", "place": "home", "trust": "operator", "status": "active",
        "allowed_tools": ["fs.read"], "problem": None, "body": None,
    }.items() <= item.items()  # fmt: skip
    assert len(item["sha256"]) == len(HASH)


async def test_one_is_shown_with_its_body(scene: Scene) -> None:
    answer = await scene.ask("GET", f"{PATH}/scripted?place=home&agent=main")
    assert answer.json["body"].strip() == "Do it."
    query = SkillQuery(name="scripted", agent="main", place=SkillPlace.HOME)
    assert scene.asked == [("skills.get", query)]


async def test_change_arrives_whole(scene: Scene) -> None:
    shown = (await scene.ask("GET", f"{PATH}/scripted")).json
    body = {"status": "quarantined", "agent": "main", "place": "home", "sha256": shown["sha256"]}
    answer = await scene.ask("PATCH", f"{PATH}/scripted", body)
    assert (answer.status, answer.json["status"]) == (200, "quarantined")
    query = SkillQuery(name="scripted", agent="main", place=SkillPlace.HOME)
    change = SkillChange(status=SkillStatus.QUARANTINED, sha256=shown["sha256"])
    assert scene.asked[-1] == ("skills.change", OWNER, query, change)
    assert (await scene.ask("PATCH", f"{PATH}/scripted", {"status": "active"})).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"status": "accepted"},
        {"status": 1},
        {"status": "active", "place": "attic"},
        {"status": "active", "sha256": "AB" * 32},
        {"status": "active", "agent": ""},
        {"status": "active", "name": "x"},
    ],
)
async def test_change_that_does_not_fit_is_refused(scene: Scene, body: dict[str, object]) -> None:
    assert (await scene.ask("PATCH", f"{PATH}/tidy", body)).status == 400
    assert scene.asked == []


@pytest.mark.parametrize("query", ["place=attic", "agent=", "limit=3"])
async def test_question_that_does_not_fit_is_refused(scene: Scene, query: str) -> None:
    assert (await scene.ask("GET", f"{PATH}/tidy?{query}")).status == 400


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Scene]:
    """A gateway over an engine with one skill in the home, a broken one, and one in the workspace."""
    workshop = Workshop(tmp_path, [Script(turns=(says("x"),))])
    for base, name, text in (
        (tmp_path, "tidy", "---\nname: tidy\ndescription: Tidies.\n---\nTidy.\n"),
        (tmp_path, "broken", "---\nname: other\n---\n"),
        (workshop.workspace, "local", "---\nname: local\ndescription: Of the project.\n---\nDo.\n"),
    ):
        write_skill(base, name, text)
    workshop.skills = FolderSkills(tmp_path, tmp_path / "none")
    async with workshop.open() as engine:
        yield Scene(engine)


async def test_skills_of_a_real_engine_are_listed_accepted_and_put_away(real: Scene) -> None:
    items = {item["name"]: item for item in (await real.ask("GET", PATH)).json["items"]}
    assert {name: item["status"] for name, item in items.items()} == {
        "broken": "active", "tidy": "active", "local": "quarantined",
    }  # fmt: skip
    assert items["broken"]["problem"]
    assert items["local"]["trust"] == "external"
    accept = {"status": "active", "sha256": items["local"]["sha256"]}
    accepted = await real.ask("PATCH", f"{PATH}/local", accept)
    assert (accepted.status, accepted.json["trust"]) == (200, "operator")
    disabled = await real.ask("PATCH", f"{PATH}/tidy", {"status": "disabled"})
    assert (disabled.json["status"], disabled.json["can_open"]) == ("disabled", False)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code"),
    [
        ("GET", "/gone", None, 404, "skill_unknown"),
        ("GET", "/tidy?place=bundled", None, 404, "skill_unknown"),
        ("GET", "/tidy?agent=nobody", None, 400, "agent_unknown"),
        ("GET", "/..%2Ftidy", None, 404, "skill_unknown"),
        ("PATCH", "/gone", {"status": "active"}, 404, "skill_unknown"),
        ("PATCH", "/broken", {"status": "active"}, 409, "skill_broken"),
        ("PATCH", "/tidy", {"status": "active", "sha256": "0" * 64}, 409, "skill_changed"),
    ],
)
async def test_errors_of_a_real_engine_have_our_shape(
    real: Scene, method: str, target: str, body: object, status: int, code: str
) -> None:
    answer = await real.ask(method, PATH + target, body)
    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.USER])
async def test_only_operators_change(real: Scene, role: Role) -> None:
    token = real.tokens.add("palyra_somebody-0123456789", role)
    assert (await real.ask("PATCH", f"{PATH}/local", {"status": "active"}, token=token)).status == 403
    assert (await real.ask("GET", f"{PATH}/local", token=token)).json["status"] == "quarantined"


async def test_agents_tell_which_one_is_the_default(scene: Scene) -> None:
    (agent,) = (await scene.ask("GET", "/api/v1/agents")).json["items"]
    assert set(agent) == {"id", "name", "default", "instructions", "route", "tools", "workspace"}
    assert (agent["name"], agent["default"]) == ("main", True)
