"""`/api/v1/policy/explain`: one's own questions for users, those of others for operators; every member is bounded."""

import json

import msgspec
import pytest

from palyra.core.ids import Principal, SessionId, StreamId
from palyra.engine.api.policy_explainer import ExplainRequest, ModelExplainRequest
from palyra.ports.tokens import Role
from tests.gateway.prepared import SOURCE, Prepared
from tests.gateway.scene import SESSION, Scene

OWNER = Principal("user:owner")
PATH = "/api/v1/policy/explain"
ASKED = {"tool": "fs.read", "arguments": {"path": "a"}}


async def test_verdict_rule_policies_and_reason_are_told(scene: Scene) -> None:
    body = {"tool": "mark.send", "arguments": {"text": "a"}, "agent": "main", "session_id": SESSION, "taint": [SOURCE]}
    answer = await scene.ask("POST", PATH, body)
    request = ExplainRequest(
        tool="mark.send",
        arguments={"text": "a"},
        agent="main",
        session_id=SessionId(StreamId(scene.ids["session_id"])),
        taint=(SOURCE,),
    )
    assert scene.asked == [("explaining.explain", OWNER, request)]
    told = await scene.real.explaining.explain(OWNER, request)
    assert answer.json == json.loads(msgspec.json.encode(told))
    assert (answer.json["verdict"], bool(answer.json["policies"]), bool(answer.json["reason"])) == ("ask", True, True)


async def test_use_of_a_model_is_explained_in_the_same_shape(scene: Scene) -> None:
    answer = await scene.ask("POST", PATH, {"model": "scripted", "agent": "main", "taint": [SOURCE], "is_named": True})
    request = ModelExplainRequest(model="scripted", agent="main", taint=(SOURCE,), is_named=True)
    assert scene.asked == [("explaining.explain_model", OWNER, request)]
    assert (answer.status, set(answer.json)) == (200, {"verdict", "rule", "policies", "reason"})
    assert (answer.json["verdict"], answer.json["policies"]) == ("allow", ["any_model"])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tool": "fs.read"},
        {"arguments": {}},
        {"model": "scripted", **ASKED},
        {"model": "scripted", "arguments": {}},
        {"model": "scripted", "tool": "fs.read"},
        {**ASKED, "is_named": True},
        {"model": ""},
    ],
)
async def test_question_about_both_or_neither_is_refused(scene: Scene, body: dict[str, object]) -> None:
    assert (await scene.ask("POST", PATH, body)).status == 400
    assert not [asked for asked in scene.asked if str(asked[0]).startswith("explaining")]


@pytest.mark.parametrize(
    ("role", "own", "anothers"),
    [(Role.VIEWER, 403, 403), (Role.USER, 200, 403), (Role.OPERATOR, 200, 200), (Role.ADMIN, 200, 200)],
)
async def test_questions_in_the_place_of_another_are_for_operators(
    scene: Scene, role: Role, own: int, anothers: int
) -> None:
    token = scene.tokens.add("palyra_somebody-0123456789", role, principal="user:alice")
    assert (await scene.ask("POST", PATH, ASKED, token=token)).status == own
    another = {**ASKED, "principal": "user:bob"}
    assert (await scene.ask("POST", PATH, another, token=token)).status == anothers
    whose = [asked[1] for asked in scene.asked if asked[0] == "explaining.explain"]
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
    assert not [asked for asked in scene.asked if asked[0] == "explaining.explain"]


async def test_session_of_another_is_not_found(scene: Scene, prepared: Prepared) -> None:
    session_id = await prepared.session(Principal("user:alice"))
    assert (await scene.ask("POST", PATH, {**ASKED, "session_id": session_id})).status == 404
