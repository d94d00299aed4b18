"""Every route asks the engine for the right thing, in the caller's name, and answers in its documented shape."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from palyra.core.chain import to_wire
from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.core.ids import ApprovalId, ArtifactId, Principal, RunId, SessionId, StreamId
from palyra.core.jobs.model import JobState
from palyra.core.run.states import RunState
from palyra.core.trust import Trust
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
from palyra.gateway.mcp import route as mcp
from palyra.gateway.routes import (
    caller_tools,
    channels,
    context,
    incidents,
    learning,
    login,
    marks,
    memory,
    policy,
    routines,
    skills,
    tokens,
)
from palyra.gateway.routes.table import ROUTES
from palyra.ports.jobs import JobFilter
from palyra.ports.tokens import Role
from tests.gateway.prepared import HTML, MISSING, SOURCE, Prepared, open_prepared
from tests.gateway.scene import APPROVAL, ARTIFACT, GRANT, JOB, PROCESS, RUN, SESSION, Scene

OWNER = Principal("user:owner")
MODEL = "scripted"
SESSION_ID = SessionId(StreamId(SESSION))
SESSIONS = "/api/v1/sessions"
ONE_SESSION = f"{SESSIONS}/{SESSION}"
ONE_RUN = f"/api/v1/runs/{RUN}"
ONE_APPROVAL = f"/api/v1/approvals/{APPROVAL}"
ONE = PAGE_DEFAULT + 1  # The engine is asked for one more than the page holds.

ASKED: list[tuple[str, str, object, int, tuple[object, ...]]] = [
    ("GET", SESSIONS, None, 200, ("sessions.list", OWNER, "", ONE, False)),
    ("GET", f"{SESSIONS}?after={SESSION}&limit=5", None, 200, ("sessions.list", OWNER, SESSION, 6, False)),
    ("GET", f"{SESSIONS}?delegated=true", None, 200, ("sessions.list", OWNER, "", ONE, True)),
    ("POST", SESSIONS, None, 200, ("sessions.resolve", OWNER, SessionRequest())),
    (
        "POST",
        SESSIONS,
        {"key": "k", "label": "l", "agent": "main", "reset": True},
        200,
        ("sessions.resolve", OWNER, SessionRequest(key="k", label="l", agent="main", reset=True)),
    ),
    (
        "POST",
        SESSIONS,
        {"session_id": SESSION},
        200,
        ("sessions.resolve", OWNER, SessionRequest(session_id=SESSION_ID)),
    ),
    ("GET", ONE_SESSION, None, 200, ("sessions.get", OWNER, SESSION)),
    ("PATCH", ONE_SESSION, {"label": "new"}, 200, ("sessions.label", OWNER, SESSION, "new")),
    ("PATCH", ONE_SESSION, {"label": None}, 200, ("sessions.label", OWNER, SESSION, None)),
    ("DELETE", ONE_SESSION, None, 204, ("sessions.delete", OWNER, SESSION)),
    ("POST", f"{ONE_SESSION}/reset", None, 200, ("sessions.reset", OWNER, SESSION)),
    ("POST", f"{ONE_SESSION}/branch", {"at_seq": 3, "label": "b"}, 201, ("sessions.branch", OWNER, SESSION, 3, "b")),
    ("POST", f"{ONE_SESSION}/compact", {"dry_run": True}, 200, ("compaction.preview", OWNER, SESSION)),
    ("POST", f"{ONE_SESSION}/compact", {}, 200, ("compaction.compact", OWNER, SESSION)),
    ("GET", f"{ONE_SESSION}/taint", None, 200, ("taint.show", OWNER, SESSION)),
    ("POST", f"{ONE_SESSION}/trust", {"source": SOURCE}, 200, ("taint.trust", OWNER, SESSION, SOURCE, "")),
    (
        "POST",
        f"{ONE_SESSION}/trust",
        {"source": SOURCE, "reason": "ours"},
        200,
        ("taint.trust", OWNER, SESSION, SOURCE, "ours"),
    ),
    ("DELETE", f"{ONE_SESSION}/trust?source={SOURCE}", None, 200, ("taint.distrust", OWNER, SESSION, SOURCE, "")),
    ("GET", f"{ONE_SESSION}/tape", None, 200, ("sessions.tape", OWNER, SESSION, 0, ONE)),
    ("GET", f"{ONE_SESSION}/tape?after=2&limit=3", None, 200, ("sessions.tape", OWNER, SESSION, 2, 4)),
    ("GET", f"{ONE_SESSION}/events", None, 200, ("feed.session", OWNER, SESSION, None)),
    ("GET", f"{ONE_SESSION}/events?after=4", None, 200, ("feed.session", OWNER, SESSION, 4)),
    ("GET", "/api/v1/events", None, 200, ("feed.all", OWNER, None)),
    ("GET", "/api/v1/events?after=9", None, 200, ("feed.all", OWNER, 9)),
    (
        "POST",
        "/api/v1/runs",
        {"text": "hi"},
        202,
        ("runs.start", OWNER, RunRequest(text="hi", trust=Trust.OPERATOR, origin="http")),
    ),
    ("GET", "/api/v1/runs", None, 200, ("runs.list", OWNER, RunsQuery(limit=ONE))),
    (
        "GET",
        f"/api/v1/runs?session_id={SESSION}&state=waiting&after={RUN}&limit=1",
        None,
        200,
        ("runs.list", OWNER, RunsQuery(session_id=SESSION_ID, state=RunState.WAITING, after=RUN, limit=2)),
    ),
    ("GET", "/api/v1/runs?delegated=true", None, 200, ("runs.list", OWNER, RunsQuery(has_delegated=True, limit=ONE))),
    ("GET", ONE_RUN, None, 200, ("runs.get", OWNER, RUN)),
    ("GET", f"{ONE_RUN}/tree", None, 200, ("trees.get", OWNER, RUN)),
    ("GET", f"{ONE_RUN}/events", None, 200, ("runs.follow", OWNER, RUN, None)),
    ("GET", f"{ONE_RUN}/events?after=0", None, 200, ("runs.follow", OWNER, RUN, 0)),
    (
        "POST",
        f"{ONE_RUN}/input",
        {"text": "also this"},
        202,
        ("runs.send_input", OWNER, RUN, "also this", Trust.OPERATOR, None, None),
    ),
    ("POST", f"{ONE_RUN}/cancel", None, 202, ("runs.cancel", OWNER, RUN, OWNER)),
    ("POST", f"{ONE_RUN}/cancel", {}, 202, ("runs.cancel", OWNER, RUN, OWNER)),
    ("GET", f"{ONE_RUN}/changes", None, 200, ("changes.show", OWNER, RUN, None)),
    ("POST", f"{ONE_RUN}/undo", {}, 200, ("changes.undo", OWNER, RUN, None, OWNER)),
    ("GET", f"{ONE_RUN}/kept", None, 200, ("kept.show", OWNER, RUN, ())),
    ("POST", f"{ONE_RUN}/keep", {}, 200, ("kept.keep", OWNER, RUN, (), None, OWNER)),
    ("GET", f"{ONE_RUN}/processes", None, 200, ("processes.list", OWNER, RUN)),
    ("POST", f"{ONE_RUN}/processes/{PROCESS}/stop", {}, 200, ("processes.stop", OWNER, RUN, PROCESS)),
    ("GET", "/api/v1/approvals", None, 200, ("approvals.list", OWNER, ApprovalsQuery(limit=ONE, has_system=True))),
    (
        "GET",
        "/api/v1/approvals?status=pending",
        None,
        200,
        ("approvals.list", OWNER, ApprovalsQuery(status=ApprovalStatus.PENDING, limit=ONE, has_system=True)),
    ),
    ("GET", ONE_APPROVAL, None, 200, ("approvals.get", OWNER, APPROVAL)),
    ("GET", f"{ONE_APPROVAL}/full?offset=5", None, 200, ("approvals.full", OWNER, APPROVAL, 5, OWNER, None)),
    (
        "POST",
        ONE_APPROVAL,
        {"decision": "deny"},
        200,
        (
            "approvals.answer",
            OWNER,
            APPROVAL,
            ApprovalAnswer(decision=Decision.DENY, role_max="admin", may_trust=True),
            OWNER,
        ),
    ),
    (
        "POST",
        ONE_APPROVAL,
        {"decision": "deny", "scope": "session", "option": 1, "ttl_s": 60},
        200,
        (
            "approvals.answer",
            OWNER,
            APPROVAL,
            ApprovalAnswer(
                decision=Decision.DENY, scope=Scope.SESSION, option=1, ttl_s=60, role_max="admin", may_trust=True
            ),
            OWNER,
        ),
    ),
    ("GET", "/api/v1/grants", None, 200, ("approvals.grants", OWNER, "", ONE)),
    ("DELETE", f"/api/v1/grants/{GRANT}", None, 200, ("approvals.revoke", OWNER, GRANT, OWNER)),
    ("POST", "/api/v1/artifacts", b"hello", 201, ("artifacts.put", OWNER, b"hello", "application/octet-stream", None)),
    ("GET", f"/api/v1/artifacts/{ARTIFACT}", None, 200, ("artifacts.get", OWNER, ARTIFACT)),
    ("GET", "/api/v1/jobs", None, 200, ("jobs.list", OWNER, JobFilter(limit=ONE))),
    (
        "GET",
        "/api/v1/jobs?kind=verify&state=dead&everyone=true&limit=1",
        None,
        200,
        ("jobs.list", None, JobFilter(kind="verify", state=JobState.DEAD, limit=2)),
    ),
    ("GET", f"/api/v1/jobs/{JOB}", None, 200, ("jobs.get", OWNER, JOB)),
    ("POST", f"/api/v1/jobs/{JOB}/cancel", {}, 200, ("jobs.cancel", OWNER, JOB)),
    ("POST", f"/api/v1/jobs/{JOB}/retry", {}, 200, ("jobs.retry", OWNER, JOB)),
    ("GET", "/api/v1/usage", None, 200, ("usage.report", OWNER, UsageQuery(limit=ONE))),
    ("GET", "/readyz", None, 200, (("status.parts",), ("status.incidents_count",))),
    ("GET", "/metrics", None, 200, ("status.metrics", {"palyra_streams_open": 0.0})),
    ("GET", "/api/v1/tools", None, 200, (("status.tools",), ("status.missing_tools",))),
    ("GET", "/api/v1/agents", None, 200, (("status.default_agent",), ("status.agents",))),
    ("GET", "/api/v1/models", None, 200, ("status.models",)),
    ("POST", "/api/v1/models/{name}/check", None, 200, ("status.check_model", OWNER, MODEL)),
    ("GET", "/api/v1/journal/verify", None, 200, ("status.verify",)),
]
NOTHING_ASKED = [("GET", "/"), ("GET", "/healthz"), ("GET", "/api/v1/openapi.json")]


@pytest.mark.parametrize(("method", "target", "body", "status", "asked"), ASKED)
async def test_route_asks_the_engine(
    prepared: Prepared, method: str, target: str, body: object, status: int, asked: tuple[object, ...]
) -> None:
    ids = prepared.ids if method == "GET" else await prepared.resource_ids()
    scene = Scene(prepared.engine, ids)
    answer = await scene.ask(method, target, body)
    wanted = [asked] if isinstance(asked[0], str) else list(asked)
    assert (answer.status, scene.asked) == (status, [_filled(scene, call) for call in wanted])


def _filled(scene: Scene, value: Any) -> Any:
    """An expected call with the ids of the scene."""
    if isinstance(value, str):
        return scene.filled(value)
    if isinstance(value, tuple):
        return tuple(_filled(scene, item) for item in value)
    if isinstance(value, msgspec.Struct):
        return replace(value, **{name: _filled(scene, getattr(value, name)) for name in value.__struct_fields__})
    return value


@pytest.mark.parametrize(("method", "path"), NOTHING_ASKED)
async def test_route_answers_without_the_engine(scene: Scene, method: str, path: str) -> None:
    answer = await scene.ask(method, path)
    assert (answer.status, scene.asked) == (200, [])


def test_every_route_is_tested_here() -> None:
    tested = {(method, target.partition("?")[0]) for method, target, *_ in ASKED} | set(NOTHING_ASKED)
    elsewhere = {
        *incidents.ROUTES,
        *marks.ROUTES,
        *tokens.ROUTES,
        *login.ROUTES,
        *policy.ROUTES,
        *skills.ROUTES,
        *routines.ROUTES,
        *memory.ROUTES,
        *learning.ROUTES,
        *channels.ROUTES,
        *context.ROUTES,
        *caller_tools.ROUTES,
        *mcp.ROUTES,
        *(route for route in ROUTES if route.path.startswith("/v1/")),
    }  # In tests of their own.
    assert tested == {(route.method, route.path) for route in ROUTES if route not in elsewhere}


async def test_whole_run_request_arrives(scene: Scene) -> None:
    body = {
        "text": "hi",
        "session_key": "k",
        "agent": "main",
        "model": MODEL,
        "idempotency_key": "i",
        "answer_schema": {"type": "object"},
        "must_call": ["fs.read"],
        "objectives": ["file:a exists", "It is short."],
        "when_busy": "steer",
        "attachments": [
            {"name": "a.txt", "media_type": "text/plain", "data_base64": base64.b64encode(b"hello!").decode()},
            {"name": "b.txt", "media_type": "text/plain", "artifact_id": ARTIFACT},
        ],
    }
    assert (await scene.ask("POST", "/api/v1/runs", body)).status == 202
    assert scene.asked[-1] == (
        "runs.start",
        OWNER,
        RunRequest(
            text="hi",
            trust=Trust.OPERATOR,
            origin="http",
            session_key="k",
            attachments=(
                GivenAttachment(name="a.txt", media_type="text/plain", body=b"hello!"),
                GivenAttachment(
                    name="b.txt", media_type="text/plain", artifact_id=ArtifactId(scene.ids["artifact_id"])
                ),
            ),
            agent="main",
            model=MODEL,
            idempotency_key="i",
            answer_schema={"type": "object"},
            must_call=("fs.read",),
            objectives=("file:a exists", "It is short."),
            when_busy=WhenBusy.STEER,
        ),
    )


async def test_whole_answer_arrives(scene: Scene, prepared: Prepared) -> None:
    alice = Principal("user:alice")
    token = scene.tokens.add("palyra_of-alice-0123456789", Role.USER, principal=alice)
    approval_id = (await prepared.approval(alice)).id
    body = {"decision": "allow", "scope": "timeboxed", "option": 1, "ttl_s": 60, "reason": "fine", "end_run": False}
    await scene.ask("POST", f"/api/v1/approvals/{approval_id}", body, token=token)
    answer = ApprovalAnswer(
        decision=Decision.ALLOW,
        scope=Scope.TIMEBOXED,
        option=1,
        ttl_s=60,
        reason="fine",
        role_max="user",
        may_trust=True,
    )
    assert scene.asked == [("approvals.answer", alice, approval_id, answer, alice)]


@pytest.mark.parametrize("actions", [("approvals.answer",), ("approvals", "sessions.trust")])
async def test_only_a_token_with_the_right_to_trust_trusts_by_an_answer(
    scene: Scene, prepared: Prepared, actions: tuple[str, ...]
) -> None:
    alice = Principal("user:alice")
    token = scene.tokens.add("palyra_of-alice-narrow-012", Role.USER, principal=alice, actions=actions)
    approval_id = (await prepared.approval(alice)).id
    await scene.ask("POST", f"/api/v1/approvals/{approval_id}", {"decision": "allow", "option": 0}, token=token)
    answer = ApprovalAnswer(decision=Decision.ALLOW, option=0, role_max="user", may_trust="sessions.trust" in actions)
    assert scene.asked == [("approvals.answer", alice, approval_id, answer, alice)]


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
    assert scene.asked == []


@pytest.mark.parametrize(
    ("media_type", "body", "reason"),
    [
        ("application/pdf", b"words", "its media type is application/pdf, but its bytes are no PDF"),
        ("text/csv", bytes(range(256)), "its bytes are no text"),
        ("application/pdf", b"%PDF-1.7", "the PDF is damaged"),
    ],
)
async def test_document_that_cannot_be_read_is_refused_with_the_reason(
    scene: Scene, media_type: str, body: bytes, reason: str
) -> None:
    given = {"name": "a", "media_type": media_type, "data_base64": base64.b64encode(body).decode()}
    answer = await scene.ask("POST", "/api/v1/runs", {"text": "hi", "attachments": [given]})
    assert (answer.status, answer.code) == (400, "attachment_invalid")
    assert answer.json["error"]["message"].startswith("attachment 1: ")
    assert reason in answer.json["error"]["message"]


async def test_session_is_named_once(scene: Scene) -> None:
    answer = await scene.ask("POST", "/api/v1/runs", {"text": "hi", "session_id": SESSION, "session_key": "k"})
    assert (answer.status, answer.code) == (400, "session_ambiguous")


async def test_records_keep_their_members(scene: Scene) -> None:
    engine, ids = scene.real, scene.ids
    session = await engine.sessions.get(OWNER, SessionId(StreamId(ids["session_id"])))
    assert (await scene.ask("GET", ONE_SESSION)).json == _builtins(session)
    assert (await scene.ask("GET", ONE_RUN)).json == _builtins(await engine.runs.get(OWNER, RunId(ids["run_id"])))
    approval = await engine.approvals.get(OWNER, ApprovalId(ids["approval_id"]))
    assert (await scene.ask("GET", ONE_APPROVAL)).json == _builtins(approval)
    grants = await engine.approvals.grants(OWNER, "", PAGE_DEFAULT)
    assert (await scene.ask("GET", "/api/v1/grants")).json == {"items": _builtins(grants), "next_after": None}


def _builtins(record: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(record))


async def test_tape_is_paged_by_seq(scene: Scene) -> None:
    tape = await scene.real.sessions.tape(OWNER, SessionId(StreamId(scene.ids["session_id"])), 0, PAGE_DEFAULT)
    last = len(tape)
    first = (await scene.ask("GET", f"{ONE_SESSION}/tape?limit=4")).json
    assert first == {"events": [_builtins(to_wire(event)) for event in tape[:4]], "next_after": 4}
    second = (await scene.ask("GET", f"{ONE_SESSION}/tape?limit={last}&after=4")).json
    assert ([item["seq"] for item in second["events"]], second["next_after"]) == (list(range(5, last + 1)), None)
    exact = (await scene.ask("GET", f"{ONE_SESSION}/tape?limit={last}")).json
    assert (len(exact["events"]), exact["next_after"]) == (last, None)


async def test_list_is_paged_by_id(scene: Scene, prepared: Prepared) -> None:
    mark = scene.tokens.add("palyra_of-a-lister", Role.USER, principal="user:lister")
    ids = sorted([await prepared.session(Principal("user:lister")) for _ in range(3)])
    first = (await scene.ask("GET", f"{SESSIONS}?limit=2", token=mark)).json
    assert ([item["id"] for item in first["items"]], first["next_after"]) == (ids[:2], ids[1])
    second = (await scene.ask("GET", f"{SESSIONS}?limit=2&after={ids[1]}", token=mark)).json
    assert ([item["id"] for item in second["items"]], second["next_after"]) == (ids[2:], None)


async def test_wish_for_a_huge_page_is_met_with_the_largest(scene: Scene) -> None:
    assert (await scene.ask("GET", f"{SESSIONS}?limit=100000")).status == 200
    assert scene.asked[-1] == ("sessions.list", OWNER, "", PAGE_MAX + 1, False)


async def test_new_things_say_where_they_are(scene: Scene) -> None:
    run = await scene.ask("POST", "/api/v1/runs", {"text": "hi"})
    assert run.headers["location"] == f"/api/v1/runs/{run.json['id']}"
    branch = await scene.ask("POST", f"{ONE_SESSION}/branch", {"at_seq": 1})
    assert branch.headers["location"] == f"{SESSIONS}/{branch.json['id']}"
    artifact = await scene.ask("POST", "/api/v1/artifacts", b"x")
    assert artifact.headers["location"] == f"/api/v1/artifacts/{artifact.json['id']}"


async def test_artifact_keeps_its_media_type_without_parameters(scene: Scene) -> None:
    answer = await scene.ask("POST", "/api/v1/artifacts", b"hi", {"content-type": "Text/Plain; charset=utf-8"})
    assert answer.json == {"id": hashlib.sha256(b"hi").hexdigest(), "bytes": 2, "media_type": "text/plain"}
    refused = await scene.ask("POST", "/api/v1/artifacts", b"hi", {"content-type": "no type at all"})
    assert (refused.status, refused.code) == (400, "media_type_invalid")


async def test_artifact_is_never_rendered_by_a_browser(scene: Scene) -> None:
    answer = await scene.ask("GET", f"/api/v1/artifacts/{ARTIFACT}")
    assert answer.body == HTML
    assert answer.headers["content-disposition"] == "attachment"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_readiness_names_what_is_not_ready(scene: Scene) -> None:
    state = {"journal": "disk full", "policy": "ok"}

    async def parts() -> dict[str, str]:
        return state

    scene.engine.status.parts = parts
    answer = await scene.ask("GET", "/readyz")
    assert (answer.status, answer.json) == (
        503,
        {
            "status": "not_ready",
            "parts": state,
            "open_incidents": answer.json["open_incidents"],
            "grpc": {"state": "off", "detail": ""},
        },
    )


async def test_draining_daemon_is_alive_but_takes_no_new_work(tmp_path: Path) -> None:
    async with open_prepared(tmp_path) as prepared:
        scene = Scene(prepared.engine, prepared.ids)
        await prepared.engine.drain(0)
        assert (await scene.ask("GET", "/healthz")).status == 200
        ready = await scene.ask("GET", "/readyz")
        assert (ready.status, ready.json["parts"]["daemon"]) == (503, "draining")
        for path in ("/api/v1/runs", f"{ONE_RUN}/input", f"/api/v1/models/{MODEL}/check"):
            refused = await scene.ask("POST", path, {} if path.endswith("check") else {"text": "hi"})
            assert (refused.status, refused.code, refused.json["error"]["retryable"]) == (503, "draining", True)
        assert not [call for call in scene.asked if call[0] in ("runs.start", "runs.send_input", "status.check_model")]
        assert (await scene.ask("POST", f"{ONE_RUN}/cancel")).status == 202


async def test_tools_are_listed_with_sorted_capabilities(scene: Scene) -> None:
    page = (await scene.ask("GET", "/api/v1/tools")).json
    told = {tool["id"]: tool["capabilities"] for tool in page["items"] if tool["available"]}
    real = {spec.name: spec.capabilities for spec in scene.real.status.tools()}
    assert told == {name: sorted(each.value for each in capabilities) for name, capabilities in real.items()}


async def test_tools_that_are_missing_are_listed_with_the_reason(scene: Scene) -> None:
    page = (await scene.ask("GET", "/api/v1/tools")).json
    (missing,) = [tool for tool in page["items"] if not tool["available"]]
    assert (missing["id"], missing["name"], missing["runtime"]) == (MISSING.name, MISSING.name, None)
    assert missing["reason"] == MISSING.reason


async def test_processes_of_a_run_are_listed(scene: Scene) -> None:
    page = (await scene.ask("GET", f"{ONE_RUN}/processes")).json
    told = [(each["id"], each["command"], each["exit_code"]) for each in page["items"]]
    assert told == [(scene.ids["process_id"], "sleep 9", None)]


async def test_engine_is_asked_in_the_name_of_the_token(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-alice-0123456789", Role.USER, principal="user:alice")
    await scene.ask("GET", ONE_RUN, token=token)
    assert scene.asked[-1] == ("runs.get", Principal("user:alice"), scene.ids["run_id"])
