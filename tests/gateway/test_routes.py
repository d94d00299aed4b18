"""Every route asks the engine for the right thing, in the caller's name, and answers in its documented shape."""

import base64

import msgspec
import pytest

from palyra.core.chain import to_wire
from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.core.ids import Principal
from palyra.core.run.states import RunState
from palyra.engine.api.requests import (
    ApprovalAnswer,
    ApprovalsQuery,
    GivenAttachment,
    RunRequest,
    RunsQuery,
    SessionRequest,
    UsageQuery,
    WhenBusy,
)
from palyra.gateway.http.settings import PAGE_DEFAULT, PAGE_MAX
from palyra.gateway.routes import login, policy, skills, tokens
from palyra.gateway.routes.table import ROUTES
from palyra.ports.tokens import Role
from tests.gateway.fake_engine import (
    APPROVAL,
    ARTIFACT,
    GRANT,
    RUN,
    SESSION,
    approval_record,
    event,
    grant_record,
    run_record,
    session_row,
)
from tests.gateway.scene import Scene

OWNER = Principal("user:owner")
SESSIONS = "/api/v1/sessions"
ONE_SESSION = f"{SESSIONS}/{SESSION}"
ONE_RUN = f"/api/v1/runs/{RUN}"
ONE_APPROVAL = f"/api/v1/approvals/{APPROVAL}"
ONE = PAGE_DEFAULT + 1  # The engine is asked for one more than the page holds.

ASKED: list[tuple[str, str, object, int, tuple[object, ...]]] = [
    ("GET", SESSIONS, None, 200, ("list", OWNER, "", ONE)),
    ("GET", f"{SESSIONS}?after={SESSION}&limit=5", None, 200, ("list", OWNER, SESSION, 6)),
    ("POST", SESSIONS, None, 200, ("resolve", OWNER, SessionRequest())),
    (
        "POST",
        SESSIONS,
        {"key": "k", "label": "l", "agent": "a", "reset": True},
        200,
        ("resolve", OWNER, SessionRequest(key="k", label="l", agent="a", reset=True)),
    ),
    ("POST", SESSIONS, {"session_id": SESSION}, 200, ("resolve", OWNER, SessionRequest(session_id=SESSION))),
    ("GET", ONE_SESSION, None, 200, ("get", OWNER, SESSION)),
    ("PATCH", ONE_SESSION, {"label": "new"}, 200, ("label", OWNER, SESSION, "new")),
    ("PATCH", ONE_SESSION, {"label": None}, 200, ("label", OWNER, SESSION, None)),
    ("DELETE", ONE_SESSION, None, 204, ("delete", OWNER, SESSION)),
    ("POST", f"{ONE_SESSION}/reset", None, 200, ("reset", OWNER, SESSION)),
    ("POST", f"{ONE_SESSION}/branch", {"at_seq": 3, "label": "b"}, 201, ("branch", OWNER, SESSION, 3, "b")),
    ("GET", f"{ONE_SESSION}/taint", None, 200, ("taint", OWNER, SESSION)),
    ("POST", f"{ONE_SESSION}/trust", {"source": "http:a"}, 200, ("trust", OWNER, SESSION, "http:a", "")),
    (
        "POST",
        f"{ONE_SESSION}/trust",
        {"source": "http:a", "reason": "ours"},
        200,
        ("trust", OWNER, SESSION, "http:a", "ours"),
    ),
    ("DELETE", f"{ONE_SESSION}/trust?source=http%3Aa", None, 200, ("distrust", OWNER, SESSION, "http:a", "")),
    ("GET", f"{ONE_SESSION}/tape", None, 200, ("tape", OWNER, SESSION, 0, ONE)),
    ("GET", f"{ONE_SESSION}/tape?after=2&limit=3", None, 200, ("tape", OWNER, SESSION, 2, 4)),
    ("GET", f"{ONE_SESSION}/events", None, 200, ("session", OWNER, SESSION, None)),
    ("GET", f"{ONE_SESSION}/events?after=4", None, 200, ("session", OWNER, SESSION, 4)),
    ("GET", "/api/v1/events", None, 200, ("all", OWNER, None)),
    ("GET", "/api/v1/events?after=9", None, 200, ("all", OWNER, 9)),
    ("POST", "/api/v1/runs", {"text": "hi"}, 202, ("start", OWNER, RunRequest(text="hi", origin="http"))),
    ("GET", "/api/v1/runs", None, 200, ("list", OWNER, RunsQuery(limit=ONE))),
    (
        "GET",
        f"/api/v1/runs?session_id={SESSION}&state=waiting&after={RUN}&limit=1",
        None,
        200,
        ("list", OWNER, RunsQuery(session_id=SESSION, state=RunState.WAITING, after=RUN, limit=2)),
    ),
    ("GET", ONE_RUN, None, 200, ("get", OWNER, RUN)),
    ("GET", f"{ONE_RUN}/events", None, 200, ("follow", OWNER, RUN, None)),
    ("GET", f"{ONE_RUN}/events?after=0", None, 200, ("follow", OWNER, RUN, 0)),
    ("POST", f"{ONE_RUN}/input", {"text": "also this"}, 202, ("send_input", OWNER, RUN, "also this")),
    ("POST", f"{ONE_RUN}/cancel", None, 202, ("cancel", OWNER, RUN)),
    ("POST", f"{ONE_RUN}/cancel", {}, 202, ("cancel", OWNER, RUN)),
    ("GET", f"{ONE_RUN}/processes", None, 200, ("processes", OWNER, RUN)),
    ("POST", f"{ONE_RUN}/processes/p1/stop", {}, 200, ("stop", OWNER, RUN, "p1")),
    ("GET", "/api/v1/approvals", None, 200, ("list", OWNER, ApprovalsQuery(limit=ONE))),
    (
        "GET",
        "/api/v1/approvals?status=pending",
        None,
        200,
        ("list", OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING, limit=ONE)),
    ),
    ("GET", ONE_APPROVAL, None, 200, ("get", OWNER, APPROVAL)),
    (
        "POST",
        ONE_APPROVAL,
        {"decision": "allow", "scope": "timeboxed", "option": 1, "ttl_s": 60, "reason": "fine"},
        200,
        (
            "answer",
            OWNER,
            APPROVAL,
            ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.TIMEBOXED, option=1, ttl_s=60, reason="fine"),
        ),
    ),
    ("GET", "/api/v1/grants", None, 200, ("grants", OWNER, "", ONE)),
    ("DELETE", f"/api/v1/grants/{GRANT}", None, 200, ("revoke", OWNER, GRANT)),
    ("POST", "/api/v1/artifacts", b"hello", 201, ("put", OWNER, 5, "application/octet-stream")),
    ("GET", f"/api/v1/artifacts/{ARTIFACT}", None, 200, ("get", OWNER, ARTIFACT)),
    ("GET", "/api/v1/usage", None, 200, ("report", OWNER, UsageQuery(limit=ONE))),
    ("GET", "/readyz", None, 200, ("parts",)),
    ("GET", "/metrics", None, 200, ("metrics",)),
    ("GET", "/api/v1/tools", None, 200, ("tools",)),
    ("GET", "/api/v1/agents", None, 200, ("agents",)),
    ("GET", "/api/v1/models", None, 200, ("models",)),
    ("POST", "/api/v1/models/qwen/check", None, 200, ("check_model", OWNER, "qwen")),
    ("GET", "/api/v1/journal/verify", None, 200, ("verify",)),
]
NOTHING_ASKED = [("GET", "/"), ("GET", "/healthz"), ("GET", "/api/v1/openapi.json")]


@pytest.mark.parametrize(("method", "target", "body", "status", "asked"), ASKED)
async def test_route_asks_the_engine(
    scene: Scene, method: str, target: str, body: object, status: int, asked: tuple[object, ...]
) -> None:
    answer = await scene.ask(method, target, body)
    assert (answer.status, scene.engine.notes.asked) == (status, [asked])


@pytest.mark.parametrize(("method", "path"), NOTHING_ASKED)
async def test_route_answers_without_the_engine(scene: Scene, method: str, path: str) -> None:
    answer = await scene.ask(method, path)
    assert (answer.status, scene.engine.notes.asked) == (200, [])


def test_every_route_is_tested_here() -> None:
    wild = {f"/{word}": "/{}" for word in (SESSION, RUN, APPROVAL, GRANT, ARTIFACT, "qwen", "p1")}
    asked = {(method, target.partition("?")[0]) for method, target, *_ in ASKED}
    tested = asked | set(NOTHING_ASKED)
    for word, mark in wild.items():
        tested = {(method, path.replace(word, mark)) for method, path in tested}
    names = ("session_id", "run_id", "approval_id", "grant_id", "artifact_id", "name", "process_id")
    elsewhere = {*tokens.ROUTES, *login.ROUTES, *policy.ROUTES, *skills.ROUTES}  # In tests of their own.
    routes = {(route.method, route.path) for route in ROUTES if route not in elsewhere}
    for name in names:
        routes = {(method, path.replace(f"{{{name}}}", "{}")) for method, path in routes}
    assert tested == routes


async def test_whole_run_request_arrives(scene: Scene) -> None:
    body = {
        "text": "hi",
        "session_key": "k",
        "agent": "a",
        "model": "m",
        "idempotency_key": "i",
        "answer_schema": {"type": "object"},
        "must_call": ["fs.read"],
        "when_busy": "steer",
        "attachments": [
            {"name": "a.txt", "media_type": "text/plain", "data_base64": base64.b64encode(b"hello!").decode()},
            {"name": "b.txt", "media_type": "text/plain", "artifact_id": ARTIFACT},
        ],
    }
    assert (await scene.ask("POST", "/api/v1/runs", body)).status == 202
    assert scene.engine.notes.last() == (
        "start",
        OWNER,
        RunRequest(
            text="hi",
            origin="http",
            session_key="k",
            attachments=(
                GivenAttachment(name="a.txt", media_type="text/plain", body=b"hello!"),
                GivenAttachment(name="b.txt", media_type="text/plain", artifact_id=ARTIFACT),
            ),
            agent="a",
            model="m",
            idempotency_key="i",
            answer_schema={"type": "object"},
            must_call=("fs.read",),
            when_busy=WhenBusy.STEER,
        ),
    )


@pytest.mark.parametrize(
    "attachment",
    [
        {},
        {"artifact_id": ARTIFACT, "data_base64": "aGk="},
        {"data_base64": "not base64"},
        {"data_base64": "é"},
        {"data_base64": "data:text/plain;base64,aGk="},
        {"data_base64": "aGk"},
    ],
)
async def test_attachment_has_one_valid_source(scene: Scene, attachment: dict[str, str]) -> None:
    body = {"text": "hi", "attachments": [{"name": "a", "media_type": "text/plain", **attachment}]}
    answer = await scene.ask("POST", "/api/v1/runs", body)
    assert (answer.status, answer.code) == (400, "attachment_invalid")
    assert "attachment 1: " in answer.json["error"]["message"]
    assert scene.engine.notes.asked == []


async def test_session_is_named_once(scene: Scene) -> None:
    answer = await scene.ask("POST", "/api/v1/runs", {"text": "hi", "session_id": SESSION, "session_key": "k"})
    assert (answer.status, answer.code) == (400, "session_ambiguous")


async def test_records_keep_their_members(scene: Scene) -> None:
    assert (await scene.ask("GET", ONE_SESSION)).json == _builtins(session_row())
    assert (await scene.ask("GET", ONE_RUN)).json == _builtins(run_record())
    assert (await scene.ask("GET", ONE_APPROVAL)).json == _builtins(approval_record())
    grants = (await scene.ask("GET", "/api/v1/grants")).json
    assert grants == {"items": [_builtins(grant_record())], "next_after": None}


def _builtins(record: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(record))


async def test_tape_is_paged_by_seq(scene: Scene) -> None:
    first = (await scene.ask("GET", f"{ONE_SESSION}/tape?limit=4")).json
    assert first == {"events": [to_wire(event(seq)) for seq in range(1, 5)], "next_after": 4}
    second = (await scene.ask("GET", f"{ONE_SESSION}/tape?limit=4&after=4")).json
    assert ([item["seq"] for item in second["events"]], second["next_after"]) == ([5, 6, 7], None)
    exact = (await scene.ask("GET", f"{ONE_SESSION}/tape?limit=7")).json
    assert (len(exact["events"]), exact["next_after"]) == (7, None)


async def test_list_is_paged_by_id(scene: Scene) -> None:
    ids = [f"01ARZ3NDEKTSV4RRFFQ69G5FA{letter}" for letter in "VWX"]
    scene.engine.sessions.rows = tuple(session_row(session_id) for session_id in ids)
    first = (await scene.ask("GET", f"{SESSIONS}?limit=2")).json
    assert ([item["id"] for item in first["items"]], first["next_after"]) == (ids[:2], ids[1])
    second = (await scene.ask("GET", f"{SESSIONS}?limit=2&after={ids[1]}")).json
    assert ([item["id"] for item in second["items"]], second["next_after"]) == (ids[2:], None)


async def test_wish_for_a_huge_page_is_met_with_the_largest(scene: Scene) -> None:
    assert (await scene.ask("GET", f"{SESSIONS}?limit=100000")).status == 200
    assert scene.engine.notes.last() == ("list", OWNER, "", PAGE_MAX + 1)


async def test_new_things_say_where_they_are(scene: Scene) -> None:
    assert (await scene.ask("POST", "/api/v1/runs", {"text": "hi"})).headers["location"] == ONE_RUN
    branch = await scene.ask("POST", f"{ONE_SESSION}/branch", {"at_seq": 1})
    assert branch.headers["location"] == ONE_SESSION
    artifact = await scene.ask("POST", "/api/v1/artifacts", b"x")
    assert artifact.headers["location"] == f"/api/v1/artifacts/{ARTIFACT}"


async def test_artifact_keeps_its_media_type_without_parameters(scene: Scene) -> None:
    answer = await scene.ask("POST", "/api/v1/artifacts", b"hi", {"content-type": "Text/Plain; charset=utf-8"})
    assert answer.json == {"id": ARTIFACT, "bytes": 2, "media_type": "text/plain"}
    refused = await scene.ask("POST", "/api/v1/artifacts", b"hi", {"content-type": "no type at all"})
    assert (refused.status, refused.code) == (400, "media_type_invalid")


async def test_artifact_is_never_rendered_by_a_browser(scene: Scene) -> None:
    answer = await scene.ask("GET", f"/api/v1/artifacts/{ARTIFACT}")
    assert answer.body == b"bytes"
    assert answer.headers["content-disposition"] == "attachment"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_readiness_names_what_is_not_ready(scene: Scene) -> None:
    scene.engine.status.state = {"journal": "disk full", "policy": "ok"}
    answer = await scene.ask("GET", "/readyz")
    assert (answer.status, answer.json) == (503, {"status": "not_ready", "parts": scene.engine.status.state})


async def test_draining_daemon_is_alive_but_takes_no_new_work(scene: Scene) -> None:
    scene.engine.status.is_draining = True
    assert (await scene.ask("GET", "/healthz")).status == 200
    ready = await scene.ask("GET", "/readyz")
    assert (ready.status, ready.json["parts"]["daemon"]) == (503, "draining")
    for path in ("/api/v1/runs", f"{ONE_RUN}/input"):
        refused = await scene.ask("POST", path, {"text": "hi"})
        assert (refused.status, refused.code, refused.json["error"]["retryable"]) == (503, "draining", True)
    assert (await scene.ask("POST", f"{ONE_RUN}/cancel")).status == 202


async def test_tools_are_listed_with_sorted_capabilities(scene: Scene) -> None:
    page = (await scene.ask("GET", "/api/v1/tools")).json
    told = [(tool["id"], tool["capabilities"]) for tool in page["items"] if tool["available"]]
    assert told == [("fs.read", ["fs_read", "network"])]


async def test_tools_that_are_missing_are_listed_with_the_reason(scene: Scene) -> None:
    page = (await scene.ask("GET", "/api/v1/tools")).json
    (missing,) = [tool for tool in page["items"] if not tool["available"]]
    assert (missing["id"], missing["name"], missing["runtime"]) == ("shell.run", "shell.run", None)
    assert missing["reason"] == "there is no sandbox here; install bubblewrap"


async def test_processes_of_a_run_are_listed(scene: Scene) -> None:
    page = (await scene.ask("GET", f"{ONE_RUN}/processes")).json
    assert [(each["id"], each["command"], each["exit_code"]) for each in page["items"]] == [("p1", "sleep 9", None)]


async def test_engine_is_asked_in_the_name_of_the_token(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-alice-0123456789", Role.USER, principal="user:alice")
    await scene.ask("GET", ONE_RUN, token=token)
    assert scene.engine.notes.last() == ("get", Principal("user:alice"), RUN)
