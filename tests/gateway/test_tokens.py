"""Tokens over HTTP: shown once, narrowed, expiring, revoked at once with their streams, listed with their last use."""

import asyncio

import pytest

from palyra.core.events.system import AdminActed
from palyra.ports.tokens import Role, covers
from tests.gateway.scene import ADMIN, NEW_ADMIN, NOW_MS, RUN, Failing, Scene, connected, listening, request_bytes

TOKENS = "/api/v1/tokens"
ONE_RUN = f"/api/v1/runs/{RUN}"
WISH = {"principal": "user:alice", "role": "user", "label": "laptop", "ttl_s": 3600}


async def issue(scene: Scene, **changes: object) -> dict:
    answer = await scene.ask("POST", TOKENS, {**WISH, **changes})
    assert answer.status == 201
    return answer.json


async def test_an_issued_token_works_for_whom_it_was_made_until_it_expires(scene: Scene) -> None:
    issued = await issue(scene)
    me = (await scene.ask("GET", "/api/v1/me", token=issued["token"])).json
    assert me == {"principal": "user:alice", "role": "user", "actions": [], "csrf_token": None, "speaks": None}
    assert issued["record"]["expires_at_ms"] == NOW_MS + 3_600_000
    scene.clock.at_ms = NOW_MS + 3_600_000
    assert (await scene.ask("GET", "/api/v1/me", token=issued["token"])).code == "token_invalid"
    (listed,) = [item for item in (await scene.ask("GET", TOKENS)).json["items"] if item["label"] == "laptop"]
    assert listed["state"] == "expired"


@pytest.mark.parametrize("speaks", ["person", "program"])
async def test_a_token_tells_its_holder_who_speaks_with_it(scene: Scene, speaks: str) -> None:
    issued = await issue(scene, speaks=speaks)
    assert (await scene.ask("GET", "/api/v1/me", token=issued["token"])).json["speaks"] == speaks


async def test_a_token_is_in_the_answer_that_issues_it_alone(scene: Scene) -> None:
    token = (await issue(scene))["token"]
    assert token.encode() not in (await scene.ask("GET", TOKENS)).body
    assert token not in str(scene.asked)


async def test_the_list_tells_the_last_use_and_the_state(scene: Scene) -> None:
    issued = await issue(scene)
    scene.clock.at_ms += 5
    await scene.ask("GET", ONE_RUN, token=issued["token"])
    records = {item["id"]: item for item in (await scene.ask("GET", TOKENS)).json["items"]}
    assert set(records) == {"admin", issued["record"]["id"]}
    record = records[issued["record"]["id"]]
    assert (record["last_used_at_ms"], record["state"]) == (NOW_MS + 5, "valid")


async def test_the_list_comes_in_pages(scene: Scene) -> None:
    ids = {(await issue(scene))["record"]["id"] for _ in range(3)} | {"admin"}
    found: list[str] = []
    after: str | None = ""
    while after is not None and len(found) < 10:
        page = (await scene.ask("GET", f"{TOKENS}?limit=2&after={after}")).json
        found += [item["id"] for item in page["items"]]
        after = page["next_after"]
    assert found == sorted(ids)


async def test_a_revoked_token_is_refused_and_its_streams_end(scene: Scene) -> None:
    issued = await issue(scene, principal="user:owner")
    async with listening(scene) as server, connected(server.port) as wire:
        await wire.send(
            request_bytes("GET", scene.filled(f"{ONE_RUN}/events"), authorization=f"Bearer {issued['token']}")
        )
        await wire.until(b"approval.requested")
        await wire.until(b"\n\n\r\n")
        revoked = await scene.ask("DELETE", f"{TOKENS}/{issued['record']['id']}")
        assert revoked.json["state"] == "revoked"
        assert await wire.chunk() == b""
    assert (await scene.ask("GET", ONE_RUN, token=issued["token"])).status == 401


@pytest.mark.parametrize(
    ("actions", "done", "refused"),
    [
        (["runs"], ["/api/v1/runs", ONE_RUN], ["/api/v1/sessions", TOKENS]),
        (["runs.list", "usage"], ["/api/v1/runs", "/api/v1/usage"], [ONE_RUN, "/api/v1/events"]),
    ],
)
async def test_a_narrowed_token_does_nothing_else(
    scene: Scene, actions: list[str], done: list[str], refused: list[str]
) -> None:
    token = (await issue(scene, principal="user:owner", role="admin", actions=actions))["token"]
    assert [(await scene.ask("GET", path, token=token)).status for path in done] == [200] * len(done)
    answers = [await scene.ask("GET", path, token=token) for path in refused]
    assert {(answer.status, answer.code) for answer in answers} == {(403, "scope_insufficient")}


def test_a_noun_covers_its_own_actions_alone() -> None:
    assert covers((), "runs.list")
    assert covers(("runs",), "runs.list")
    assert not covers(("runs",), "runs_of_others.list")
    assert not covers(("runs.list",), "runs.list.more")
    assert not covers(("runs.list",), "runs.read")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"principal": "alice"}, "principal_invalid"),
        ({"principal": "user:a b"}, "id_invalid"),
        ({"principal": "user:a\nb"}, "id_invalid"),
        ({"principal": "system:everyone"}, "principal_invalid"),
        ({"role": "root"}, "body_invalid"),
        ({"ttl_s": 0}, "body_invalid"),
        ({"actions": ["runs.invent"]}, "action_unknown"),
        ({"actions": ["RUNS"]}, "body_invalid"),
        ({"label": "a\x1b[31m"}, "label_invalid"),
        ({"label": "x" * 101}, "body_invalid"),
        ({"hash": "0" * 64}, "body_invalid"),
    ],
)
async def test_a_wish_that_cannot_be_is_refused_and_nothing_is_made(
    scene: Scene, changes: dict[str, object], code: str
) -> None:
    answer = await scene.ask("POST", TOKENS, {**WISH, **changes})
    assert answer.status == 400
    assert len(scene.tokens.by_token) == 1
    assert scene.asked == []
    assert code in ("id_invalid", "principal_invalid") or answer.code == code


async def test_what_cannot_be_recorded_is_not_done(scene: Scene) -> None:
    scene.engine.acts = Failing(RuntimeError("the disk is full"))
    assert (await scene.ask("POST", TOKENS, WISH)).status == 500
    assert (await scene.ask("POST", f"{TOKENS}/rotate-admin", {})).status == 500
    assert len(scene.tokens.by_token) == 1
    assert (await scene.ask("GET", "/api/v1/me")).status == 200


async def test_acts_name_the_token_by_its_id(scene: Scene) -> None:
    record = (await issue(scene, actions=["runs"]))["record"]
    (call,) = scene.asked
    detail = f"for user:alice as user, until {NOW_MS + 3_600_000} ms, for runs alone"
    assert call == ("acts.record", "user:owner", AdminActed(action="tokens.issue", target=record["id"], detail=detail))


async def test_rotating_ends_the_old_admin_token(scene: Scene) -> None:
    rotated = await scene.ask("POST", f"{TOKENS}/rotate-admin", {})
    assert rotated.json == {"token": NEW_ADMIN}
    assert (await scene.ask("GET", TOKENS, token=ADMIN)).status == 401
    assert (await scene.ask("GET", TOKENS, token=NEW_ADMIN)).status == 200


@pytest.mark.parametrize(("token_id", "status"), [("admin", 400), ("0123456789abcdef", 404), ("%2e%2e", 404)])
async def test_what_was_not_issued_is_not_revoked(scene: Scene, token_id: str, status: int) -> None:
    assert (await scene.ask("DELETE", f"{TOKENS}/{token_id}")).status == status


async def test_nobody_but_an_admin_sees_or_changes_tokens(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-an-operator", Role.OPERATOR)
    asked = [("GET", TOKENS), ("POST", TOKENS), ("DELETE", f"{TOKENS}/admin"), ("POST", f"{TOKENS}/rotate-admin")]
    answers = await asyncio.gather(*(scene.ask(method, path, {}, token=token) for method, path in asked))
    assert {answer.status for answer in answers} == {403}
