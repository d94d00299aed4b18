"""Routes of learning: lists by state, one with its evidence, decisions, roles for procedures, and the report."""

import pytest

from palyra.core.ids import Principal
from palyra.core.learning.model import CandidateKind, CandidateStatus
from palyra.core.writes import PutCandidate
from palyra.ports.tokens import Role
from tests.gateway.prepared import Prepared
from tests.gateway.scene import Scene
from tests.support.learning import candidate_of

pytestmark = pytest.mark.anyio

CAROL = Principal("user:carol")
PATH = "/api/v1/learning/candidates"


@pytest.fixture
async def scene(prepared: Prepared) -> Scene:
    scene = Scene(prepared.engine)
    for role in Role:
        scene.tokens.add(f"palyra_carol-{role.value}", role, principal=CAROL, id=f"carol-{role.value}")
    return scene


async def put(prepared: Prepared, content: str, **fields: object) -> str:
    candidate = candidate_of(content, CAROL, **fields)
    await prepared.journal.commit([], [PutCandidate(candidate)])
    return candidate.id


async def test_lists_leave_suppressed_ones_out_unless_they_are_asked_for(prepared: Prepared, scene: Scene) -> None:
    shown = await put(prepared, "The first number is 11.")
    hidden = await put(prepared, "The second number is 12.", status=CandidateStatus.SUPPRESSED)
    token = "palyra_carol-user"
    ids = [each["id"] for each in (await scene.ask("GET", PATH, token=token)).json["items"]]
    suppressed = [
        each["id"] for each in (await scene.ask("GET", f"{PATH}?status=suppressed", token=token)).json["items"]
    ]
    assert shown in ids
    assert hidden not in ids
    assert suppressed == [hidden]
    wrong = await scene.ask("GET", f"{PATH}?status=nonsense", token=token)
    assert wrong.status == 400
    page = await scene.ask("GET", f"{PATH}?limit=1", token=token)
    assert len(page.json["items"]) == 1


async def test_a_candidate_is_shown_with_its_difference_and_decided_once(prepared: Prepared, scene: Scene) -> None:
    one = await put(prepared, "The third number is 13.")
    token = "palyra_carol-user"
    record = (await scene.ask("GET", f"{PATH}/{one}", token=token)).json
    assert (record["status"], record["destination"]) == ("pending_review", "memory")
    assert record["diff"] == ["+ The third number is 13."]
    rejected = await scene.ask("POST", f"{PATH}/{one}", {"action": "reject", "reason": "no"}, token=token)
    assert (rejected.status, rejected.json["status"], rejected.json["reason"]) == (200, "rejected", "no")
    again = await scene.ask("POST", f"{PATH}/{one}", {"action": "reject"}, token=token)
    assert (again.status, again.json["error"]["code"]) == (409, "candidate_state")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"action": "explode"}, 400),
        ({"action": "edit"}, 400),
        ({"action": "edit", "content": ""}, 400),
        ({"action": "edit", "content": "x" * 2_001}, 400),
        ({"action": "accept", "content": "x"}, 400),
        ({"action": "supersede"}, 400),
        ({}, 400),
    ],
)
async def test_a_decision_of_the_wrong_form_is_refused(
    prepared: Prepared, scene: Scene, body: dict[str, str], status: int
) -> None:
    one = await put(prepared, "The fourth number is 14.")
    assert (await scene.ask("POST", f"{PATH}/{one}", body, token="palyra_carol-user")).status == status


async def test_a_procedure_is_accepted_by_an_operator_alone_and_rejected_by_its_owner(
    prepared: Prepared, scene: Scene
) -> None:
    one = await put(prepared, "1. Call `fs.read`.\n2. Call `fs.write`.", kind=CandidateKind.PROCEDURE)
    refused = await scene.ask("POST", f"{PATH}/{one}", {"action": "accept"}, token="palyra_carol-user")
    assert refused.status == 403
    rejected = await scene.ask("POST", f"{PATH}/{one}", {"action": "reject"}, token="palyra_carol-user")
    assert rejected.status == 200


async def test_the_report_counts_ones_own(prepared: Prepared, scene: Scene) -> None:
    await put(prepared, "The fifth number is 15.")
    report = await scene.ask("GET", "/api/v1/learning/report", token="palyra_carol-viewer")
    assert report.status == 200
    assert report.json["counts"]["pending_review"] >= 1
    assert len(report.json["weeks"]) == 8
