"""`/api/v1/policy/explain`: one's own questions for users, those of others for operators; every member is bounded."""

import pytest

from palyra.core.errors import NotFound
from palyra.core.ids import Principal
from palyra.engine.api.policy_explainer import ExplainRequest
from palyra.ports.tokens import Role
from tests.gateway.fake_engine import SESSION
from tests.gateway.scene import Scene

PATH = "/api/v1/policy/explain"
ASKED = {"tool": "fs.read", "arguments": {"path": "a"}}


async def test_verdict_rule_policies_and_reason_are_told(scene: Scene) -> None:
    body = {**ASKED, "agent": "main", "session_id": SESSION, "taint": ["http:a"]}
    answer = await scene.ask("POST", PATH, body)
    assert answer.json == {"verdict": "ask", "rule": "network", "policies": ["network"], "reason": "It asks."}
    request = ExplainRequest(
        tool="fs.read", arguments={"path": "a"}, agent="main", session_id=SESSION, taint=("http:a",)
    )
    assert scene.engine.notes.asked[-1] == ("explain", Principal("user:owner"), request)


@pytest.mark.parametrize(
    ("role", "own", "anothers"),
    [(Role.VIEWER, 403, 403), (Role.USER, 200, 403), (Role.OPERATOR, 200, 200), (Role.ADMIN, 200, 200)],
)
async def test_questions_in_the_place_of_another_are_for_operators(
    scene: Scene, role: Role, own: int, anothers: int
) -> None:
    token = scene.tokens.add("palyra_somebody-0123456789", role)
    assert (await scene.ask("POST", PATH, ASKED, token=token)).status == own
    another = {**ASKED, "principal": "user:bob"}
    assert (await scene.ask("POST", PATH, another, token=token)).status == anothers
    whose = [asked[1] for asked in scene.engine.notes.asked if asked[0] == "explain"]
    assert (Principal("user:bob") in whose) is (anothers == 200)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool": ""},
        {"arguments": "{}"},
        {"arguments": []},
        {"principal": "nobody"},
        {"session_id": "x"},
        {"taint": "a"},
        {"taint": [""]},
        {"taint": ["a"] * 65},
        {"approved": True},
    ],
)
async def test_question_that_does_not_fit_is_refused(scene: Scene, wrong: dict[str, object]) -> None:
    assert (await scene.ask("POST", PATH, {**ASKED, **wrong})).status == 400
    assert not [asked for asked in scene.engine.notes.asked if asked[0] == "explain"]


async def test_session_of_another_is_not_found(scene: Scene) -> None:
    scene.engine.notes.failure = NotFound("session_unknown", "no")
    assert (await scene.ask("POST", PATH, {**ASKED, "session_id": SESSION})).status == 404
