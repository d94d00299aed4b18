"""Checkpoints and pins over HTTP."""

import pytest

from tests.gateway.prepared import Prepared
from tests.gateway.scene import Scene

SESSIONS = "/api/v1/sessions"
UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def test_a_checkpoint_is_made_listed_and_restored(scene: Scene, prepared: Prepared) -> None:
    run = await prepared.finished_run()
    one = f"{SESSIONS}/{run.session_id}"
    made = await scene.ask("POST", f"{one}/checkpoints", {"label": "before", "at_seq": 2})
    assert made.status == 201
    assert {name: made.json[name] for name in ("seq", "label", "reason")} == {
        "seq": 2,
        "label": "before",
        "reason": "manual",
    }
    newest = (await scene.ask("POST", f"{one}/checkpoints", {})).json
    first = (await scene.ask("GET", f"{one}/checkpoints?limit=1")).json
    assert first["items"] == [made.json]
    second = (await scene.ask("GET", f"{one}/checkpoints?after={first['next_after']}")).json
    assert (second["items"], second["next_after"]) == ([newest], None)
    assert set(newest) == {"id", "seq", "label", "reason", "at_ms"}
    restored = await scene.ask("POST", f"{one}/restore", {"checkpoint_id": newest["id"], "label": "again"})
    assert (restored.status, restored.json["parent_id"], restored.json["label"]) == (201, run.session_id, "again")
    assert restored.headers["location"] == f"{SESSIONS}/{restored.json['id']}"
    tape = (await scene.ask("GET", f"{SESSIONS}/{restored.json['id']}/tape")).json["events"]
    assert [event["type"] for event in tape] == ["session.restored"]


async def test_a_pin_is_added_listed_and_removed(scene: Scene, prepared: Prepared) -> None:
    run = await prepared.finished_run()
    pins = f"{SESSIONS}/{run.session_id}/pins"
    own = await scene.ask("POST", pins, {"text": "Use PostgreSQL."})
    quoted = await scene.ask("POST", pins, {"source_seq": 3})
    assert (own.status, own.json["text"], own.json["trust"]) == (201, "Use PostgreSQL.", "operator")
    assert (quoted.status, quoted.json["text"], quoted.json["source_seq"]) == (201, "go", 3)
    page = (await scene.ask("GET", pins)).json
    assert page == {"items": [own.json, quoted.json], "next_after": None}
    assert (await scene.ask("DELETE", f"{pins}/{own.json['id']}")).status == 204
    assert (await scene.ask("GET", pins)).json["items"] == [quoted.json]
    again = await scene.ask("DELETE", f"{pins}/{own.json['id']}")
    assert (again.status, again.code) == (404, "pin_unknown")


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("pins", {"text": "x" * 4_001}, 400, "pin_too_long"),
        ("pins", {}, 400, "pin_empty"),
        ("pins", {"source_seq": 999}, 400, "pin_source"),
        ("checkpoints", {"at_seq": 999}, 400, "seq_unknown"),
        ("restore", {"checkpoint_id": UNKNOWN}, 404, "checkpoint_unknown"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_code(
    scene: Scene, prepared: Prepared, path: str, body: object, status: int, code: str
) -> None:
    answer = await scene.ask("POST", f"{SESSIONS}/{await prepared.session()}/{path}", body)
    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize("pin_id", ["nonsense", UNKNOWN, "%2e%2e", "%F0%9F%98%80"])
async def test_an_unknown_pin_is_not_found(scene: Scene, prepared: Prepared, pin_id: str) -> None:
    answer = await scene.ask("DELETE", f"{SESSIONS}/{await prepared.session()}/pins/{pin_id}")
    assert (answer.status, answer.code) == (404, "pin_unknown")
