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
from tests.gateway.scene import Scene
from tests.support.asking import says
from tests.support.engines import Workshop

PATH = "/api/v1/skills"
OWNER = Principal("user:owner")
HASH = "ab" * 32


async def test_list_asks_for_the_agents_skills(scene: Scene) -> None:
    answer = await scene.ask("GET", f"{PATH}?agent=coder")
    assert scene.engine.notes.asked == [("skills", "coder")]
    (item,) = answer.json["items"]
    assert answer.json["next_after"] is None
    assert {
        "id": "home:tidy", "name": "tidy", "place": "home", "trust": "operator", "status": "active", "sha256": HASH,
        "allowed_tools": ["fs.read"], "problem": None, "files": [], "body": None,
    }.items() <= item.items()  # fmt: skip


async def test_one_is_shown_with_its_body(scene: Scene) -> None:
    answer = await scene.ask("GET", f"{PATH}/tidy?place=workspace&agent=coder")
    assert answer.json["body"] == "Do it."
    assert scene.engine.notes.asked == [("skill", SkillQuery(name="tidy", agent="coder", place=SkillPlace.WORKSPACE))]


async def test_change_arrives_whole(scene: Scene) -> None:
    body = {"status": "quarantined", "agent": "coder", "place": "workspace", "sha256": HASH}
    answer = await scene.ask("PATCH", f"{PATH}/tidy", body)
    assert (answer.status, answer.json["status"]) == (200, "quarantined")
    query = SkillQuery(name="tidy", agent="coder", place=SkillPlace.WORKSPACE)
    change = SkillChange(status=SkillStatus.QUARANTINED, sha256=HASH)
    assert scene.engine.notes.asked == [("change_skill", OWNER, query, change)]


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
    assert scene.engine.notes.asked == []


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
        (base / "skills" / name).mkdir(parents=True)
        (base / "skills" / name / "SKILL.md").write_text(text)
    workshop.skills = FolderSkills(tmp_path, tmp_path / "none")
    scene = Scene()
    async with workshop.open() as engine:
        scene.serve(engine)
        yield scene


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
