"""Incidents over HTTP: operators list, show, act and resolve; nobody else learns anything."""

import pytest

from palyra.ports.tokens import Role
from tests.gateway.prepared import Prepared
from tests.gateway.scene import Scene

INCIDENTS = "/api/v1/incidents"


async def test_an_incident_is_listed_shown_acted_on_and_resolved(scene: Scene, prepared: Prepared) -> None:
    incident_id = await prepared.incident()
    page = (await scene.ask("GET", f"{INCIDENTS}?status=open&limit=400")).json
    (item,) = [item for item in page["items"] if item["id"] == incident_id]
    shown = (await scene.ask("GET", f"{INCIDENTS}/{incident_id}")).json
    assert item == shown
    assert shown["evidence"] == "little space is left"
    assert (shown["domain"], shown["severity"], shown["remedy"]) == ("disk", "warning", "sweep_artifacts")
    acted = await scene.ask("POST", f"{INCIDENTS}/{incident_id}/act", {})
    assert (acted.status, acted.json["outcome"]) == (200, "0 artifacts were removed")
    assert acted.json["incident"]["actions_count"] == 1
    resolved = await scene.ask("POST", f"{INCIDENTS}/{incident_id}/resolve", {"reason": "planned"})
    assert (resolved.json["status"], resolved.json["last"]) == ("resolved", "by_hand: planned")
    page = (await scene.ask("GET", f"{INCIDENTS}?status=resolved&limit=400")).json
    assert incident_id in {item["id"] for item in page["items"]}
    again = [await scene.ask("POST", f"{INCIDENTS}/{incident_id}/{what}", {}) for what in ("act", "resolve")]
    assert [(answer.status, answer.code) for answer in again] == [(409, "incident_resolved")] * 2


async def test_pages_follow_each_other_from_the_newest(scene: Scene, prepared: Prepared) -> None:
    made = [await prepared.incident() for _ in range(3)]
    first = (await scene.ask("GET", f"{INCIDENTS}?limit=2")).json
    second = (await scene.ask("GET", f"{INCIDENTS}?limit=1&after={first['next_after']}")).json
    assert [item["id"] for item in (*first["items"], *second["items"])] == sorted(made, reverse=True)


@pytest.mark.parametrize("incident_id", ["nonsense", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "%2e%2e"])
async def test_an_unknown_incident_is_not_found(scene: Scene, incident_id: str) -> None:
    answers = [
        await scene.ask("GET", f"{INCIDENTS}/{incident_id}"),
        await scene.ask("POST", f"{INCIDENTS}/{incident_id}/act", {}),
        await scene.ask("POST", f"{INCIDENTS}/{incident_id}/resolve", {}),
    ]
    assert [(answer.status, answer.code) for answer in answers] == [(404, "incident_unknown")] * 3


@pytest.mark.parametrize("role", [Role.VIEWER, Role.USER])
async def test_others_than_operators_learn_nothing(scene: Scene, prepared: Prepared, role: Role) -> None:
    """An incident names everyone's runs (L11)."""
    incident_id = await prepared.incident()
    scene.tokens.add(f"palyra_as-{role.value}", role, id=f"as-{role.value}")
    for method, path in (
        ("GET", INCIDENTS),
        ("GET", f"{INCIDENTS}/{incident_id}"),
        ("POST", f"{INCIDENTS}/{incident_id}/act"),
        ("POST", f"{INCIDENTS}/{incident_id}/resolve"),
    ):
        answer = await scene.ask(method, path, {} if method == "POST" else None, token=f"palyra_as-{role.value}")
        assert (answer.status, answer.code) == (403, "role_insufficient")
        assert b"space" not in answer.body


async def test_readiness_counts_open_incidents_and_stays_ready(scene: Scene, prepared: Prepared) -> None:
    before = (await scene.ask("GET", "/readyz")).json["open_incidents"]
    await prepared.incident()
    answer = await scene.ask("GET", "/readyz")
    assert (answer.status, answer.json["open_incidents"]) == (200, before + 1)
