"""Every route, in every role, upon one's own thing and upon another's: what is answered is what the table below says.

The routes are those of the OpenAPI document, the engine is a real one, and each decision is asked of the role table and of
the bundled Cedar policies alike. A route that is not in the table fails the test.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.adapters.providers.scripted import Script
from palyra.adapters.skills.skill_index import FolderSkills
from palyra.core.events.system import AdminActed
from palyra.core.events.tool import ApprovalStatus, Decision, EffectClass, Scope
from palyra.core.ids import Principal, SessionId
from palyra.core.tools import ToolSpec
from palyra.core.trust import Trust
from palyra.engine.api.requests import ApprovalAnswer, ApprovalRecord, ApprovalsQuery, RunRecord, SessionRequest
from palyra.engine.engine import Engine
from palyra.gateway.access.roles import RoleTable
from palyra.gateway.routes.table import ROUTES, document
from palyra.ports.policy import ApiQuestion, PolicyAnswer
from palyra.ports.tokens import Role, hash_token
from tests.gateway.scene import ADMIN, HOST, WAIT_S, Scene
from tests.support.asking import ask, calls, first, says
from tests.support.engines import MarkTool, Workshop
from tests.support.processes import FakeProcesses

ALICE = Principal("user:alice")
BOB = Principal("user:bob")
ROLES = tuple(Role)
NOTHING = ""  # There is no such cell: the route is about nobody's thing.

# One letter a role, in the order viewer, user, operator, admin: + is done, - is 403, 0 is 404.
# First upon one's own thing or nobody's; then upon another's, which for a list is ?everyone=true.
EXPECTED: dict[str, tuple[str, str]] = {
    "GET /": ("public", NOTHING),
    "GET /healthz": ("public", NOTHING),
    "GET /login.js": ("public", NOTHING),
    "POST /api/v1/login": ("public", NOTHING),
    "GET /readyz": ("++++", NOTHING),
    "GET /metrics": ("++++", NOTHING),
    "GET /api/v1/openapi.json": ("++++", NOTHING),
    "GET /api/v1/me": ("++++", NOTHING),
    "GET /api/v1/tools": ("++++", NOTHING),
    "GET /api/v1/agents": ("++++", NOTHING),
    "GET /api/v1/models": ("++++", NOTHING),
    "GET /api/v1/skills": ("++++", NOTHING),
    "GET /api/v1/skills/{name}": ("++++", NOTHING),
    "PATCH /api/v1/skills/{name}": ("--++", NOTHING),
    "POST /api/v1/models/{name}/check": ("--++", NOTHING),
    "GET /api/v1/journal/verify": ("--++", NOTHING),
    "POST /api/v1/sessions": ("-+++", "-000"),
    "GET /api/v1/sessions": ("++++", "--++"),
    "GET /api/v1/sessions/{session_id}": ("++++", "00++"),
    "PATCH /api/v1/sessions/{session_id}": ("-+++", "-000"),
    "DELETE /api/v1/sessions/{session_id}": ("-+++", "-000"),
    "POST /api/v1/sessions/{session_id}/reset": ("-+++", "-000"),
    "POST /api/v1/sessions/{session_id}/branch": ("-+++", "-000"),
    "GET /api/v1/sessions/{session_id}/tape": ("++++", "00++"),
    "GET /api/v1/sessions/{session_id}/events": ("++++", "00++"),
    "GET /api/v1/sessions/{session_id}/taint": ("++++", "00++"),
    "POST /api/v1/sessions/{session_id}/trust": ("-+++", "-000"),
    "DELETE /api/v1/sessions/{session_id}/trust": ("-+++", "-000"),
    "GET /api/v1/events": ("++++", "--++"),
    "POST /api/v1/runs": ("-+++", "-000"),
    "GET /api/v1/runs": ("++++", "--++"),
    "GET /api/v1/runs/{run_id}": ("++++", "00++"),
    "GET /api/v1/runs/{run_id}/events": ("++++", "00++"),
    "POST /api/v1/runs/{run_id}/input": ("-+++", "-000"),
    "POST /api/v1/runs/{run_id}/cancel": ("-+++", "-0++"),
    "GET /api/v1/runs/{run_id}/processes": ("++++", "00++"),
    "POST /api/v1/runs/{run_id}/processes/{process_id}/stop": ("-+++", "-0++"),
    "GET /api/v1/approvals": ("++++", "--++"),
    "GET /api/v1/approvals/{approval_id}": ("++++", "00++"),
    "POST /api/v1/approvals/{approval_id}": ("-+++", "-0++"),
    "GET /api/v1/grants": ("++++", "--++"),
    "DELETE /api/v1/grants/{grant_id}": ("-+++", "-0++"),
    "POST /api/v1/artifacts": ("-+++", NOTHING),
    "GET /api/v1/artifacts/{artifact_id}": ("++++", "0000"),
    "GET /api/v1/usage": ("++++", "--++"),
    "POST /api/v1/policy/explain": ("-+++", "--++"),
    "GET /api/v1/tokens": ("---+", NOTHING),
    "POST /api/v1/tokens": ("---+", NOTHING),
    "DELETE /api/v1/tokens/{token_id}": ("---+", NOTHING),
    "POST /api/v1/tokens/rotate-admin": ("---+", NOTHING),
    "POST /api/v1/login-link": ("---+", NOTHING),
    "POST /api/v1/logout": ("++++", NOTHING),
}
BODIES: dict[str, object] = {
    "PATCH /api/v1/sessions/{session_id}": {"label": "new"},
    "POST /api/v1/sessions/{session_id}/branch": {"at_seq": 1},
    "POST /api/v1/sessions/{session_id}/trust": {"source": "tool:mark.fetch"},
    "POST /api/v1/runs/{run_id}/input": {"text": "and this"},
    "POST /api/v1/approvals/{approval_id}": {"decision": "deny"},
    "PATCH /api/v1/skills/{name}": {"status": "active"},
    "POST /api/v1/tokens": {"principal": "user:carol", "role": "viewer"},
}
QUERIES = {"DELETE /api/v1/sessions/{session_id}/trust": "?source=tool:mark.fetch"}
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, item in document()["paths"].items()  # type: ignore[attr-defined]
    for method, operation in item.items()
}


class BothPolicies:
    """The role table and Cedar, which must never disagree."""

    def __init__(self) -> None:
        self._table, self._cedar = RoleTable(ROUTES), CedarPolicy()

    def permit(self, question: ApiQuestion) -> PolicyAnswer:
        answer = self._table.permit(question)
        assert self._cedar.permit(question).verdict is answer.verdict, question
        return answer


class OutsideTool(MarkTool):
    """Its output is a stranger's."""

    @property
    def spec(self) -> ToolSpec:
        return replace(super().spec, output_trust=Trust.EXTERNAL)


@dataclass
class World:
    """A gateway over a real engine, with a token of bob's in each role. Things are made as they are needed."""

    scene: Scene
    engine: Engine
    processes: FakeProcesses

    async def status(self, role: Role | None, operation: str, target: str, body: object) -> int:
        """Of an answer whose client leaves as soon as it begins, as nobody would follow a stream to its end."""
        begun, statuses, is_read = asyncio.Event(), [], False
        self.scene.clock.at_s += 60  # No rate is what is looked at here.
        path, _, query = target.partition("?")
        token = None if role is None else f"palyra_of-bob-as-{role.value}"
        headers = [("host", HOST)] + ([("authorization", f"Bearer {token}")] if token is not None else [])

        async def receive() -> dict:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                begun.set()

        scope = {
            "type": "http",
            "method": operation.partition(" ")[0],
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 7142),
        }
        async with asyncio.timeout(WAIT_S):
            await self.scene.gateway(scope, receive, send)  # type: ignore[arg-type]
        return int(statuses[0])

    async def target(self, operation: str, owner: Principal) -> str:
        """The path of an operation upon a fresh thing of the owner's."""
        path = operation.partition(" ")[2]
        if "{session_id}" in path:
            session = await (self.tainted_session if path.endswith("/trust") else self.session)(owner)
            return path.format(session_id=session) + QUERIES.get(operation, "")
        if "{run_id}" in path:
            run = await self.waiting_run(owner)
            return path.format(run_id=run.id, process_id=self.processes.begin(run))
        if "{approval_id}" in path:
            return path.format(approval_id=(await self.approval(owner)).id)
        if "{grant_id}" in path:
            return path.format(grant_id=await self.grant(owner))
        if "{artifact_id}" in path:
            body = f"of {owner}".encode()
            return path.format(artifact_id=(await self.engine.artifacts.put(owner, body, "text/plain")).id)
        if "{token_id}" in path:
            self.scene.tokens.add("palyra_to-be-revoked", Role.VIEWER, id="0123456789abcdef")
        return path.format(token_id="0123456789abcdef", name="scripted")

    async def body(self, operation: str, owner: Principal) -> object:
        if operation == "POST /api/v1/login":
            return {"code": self.scene.logins.new_code(hash_token(ADMIN))}
        if operation == "POST /api/v1/runs":
            return {"text": "go", "session_id": await self.session(owner)}
        if operation == "POST /api/v1/sessions":
            return {"session_id": await self.session(owner)}
        if operation == "POST /api/v1/policy/explain":
            return {"tool": "time.now", "arguments": {}, "principal": owner}
        if operation == "POST /api/v1/artifacts":
            return "bytes"
        return BODIES.get(operation, {})

    async def session(self, owner: Principal) -> SessionId:
        return (await self.engine.sessions.resolve(owner, SessionRequest())).id

    async def tainted_session(self, owner: Principal) -> SessionId:
        run = await self.engine.runs.start(owner, ask("fetch"))
        await first(await self.engine.runs.follow(owner, run.id, None), "run.done")
        return run.session_id

    async def waiting_run(self, owner: Principal) -> RunRecord:
        run = await self.engine.runs.start(owner, ask())
        await first(await self.engine.runs.follow(owner, run.id, None), "approval.requested")
        return run

    async def approval(self, owner: Principal) -> ApprovalRecord:
        run = await self.waiting_run(owner)
        cards = await self.engine.approvals.list(owner, ApprovalsQuery(status=ApprovalStatus.PENDING, limit=400))
        return next(card for card in cards if card.run_id == run.id)

    async def grant(self, owner: Principal) -> str:
        card = await self.approval(owner)
        allowed = ApprovalAnswer(decision=Decision.ALLOW, scope=Scope.SESSION)
        await self.engine.approvals.answer(owner, card.id, allowed)
        grants = await self.engine.approvals.grants(owner, "", 400)
        return next(grant.id for grant in grants if grant.approval_id == card.id)

    async def acts(self) -> list[tuple[str, AdminActed]]:
        events = await self.engine._setup.journal.read_all(0, 10_000)
        return [(event.actor, event.data) for event in events if isinstance(event.data, AdminActed)]


@pytest.fixture(scope="module")
async def world(anyio_backend: object, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    scene = Scene()
    for role in ROLES:
        scene.tokens.add(f"palyra_of-bob-as-{role.value}", role, principal=BOB, id=f"bob-{role.value}")
    turns = (calls("mark.send", text="mail"), says("Sent."))
    fetching = Script(when="fetch", turns=(calls("mark.fetch", text="page"), says("Read.")))
    workshop = Workshop(tmp_path_factory.mktemp("matrix"), [fetching, Script(turns=turns)])
    workshop.tools.append(OutsideTool("mark.fetch", EffectClass.READ_ONLY, workshop.marks))
    skill = workshop.root / "skills" / "scripted"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: scripted\ndescription: A skill.\n---\nDo it.\n")
    workshop.skills = FolderSkills(workshop.root)
    workshop.processes = processes = FakeProcesses()
    async with workshop.open() as engine:
        scene.serve(engine, BothPolicies())
        yield World(scene, engine, processes)


def test_every_route_of_the_document_is_in_the_table() -> None:
    assert set(EXPECTED) == set(OPERATIONS)


def test_what_is_public_is_said_in_the_document() -> None:
    public = {name for name, operation in OPERATIONS.items() if operation.get("security") == []}
    assert {name for name, (own, _) in EXPECTED.items() if own == "public"} == public


@pytest.mark.parametrize("operation", [name for name, (own, _) in EXPECTED.items() if own == "public"])
async def test_a_public_route_is_done_for_anyone(world: World, operation: str) -> None:
    for role in (None, *ROLES):
        body = await world.body(operation, BOB)
        assert await world.status(role, operation, operation.partition(" ")[2], body) == 200


@pytest.mark.parametrize("operation", [name for name, (own, _) in EXPECTED.items() if own != "public"])
async def test_a_route_does_in_each_role_what_the_table_says(world: World, operation: str) -> None:
    own, others = EXPECTED[operation]
    assert await outcomes(world, operation, BOB) == own
    if others:
        assert await outcomes(world, operation, ALICE) == others
    body = await world.body(operation, BOB)
    assert await world.status(None, operation, await world.target(operation, BOB), body) == 401


async def outcomes(world: World, operation: str, owner: Principal) -> str:
    """A letter for each role of bob's."""
    letters = []
    has_thing = "{" in operation or "POST" in operation
    for role in ROLES:
        target = await world.target(operation, owner)
        if owner != BOB and not has_thing:
            target += "?everyone=true"
        status = await world.status(role, operation, target, await world.body(operation, owner))
        done = {int(code) for code in OPERATIONS[operation]["responses"] if code.startswith("2")}
        letters.append("+" if status in done else {403: "-", 404: "0"}.get(status, f"[{status}]"))
    return "".join(letters)


async def test_anothers_thing_and_no_thing_are_answered_alike(world: World) -> None:
    """Not by status alone: nothing in the answer tells that there is something."""
    there, gone = await world.session(ALICE), "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    answers = [
        await world.scene.ask("GET", f"/api/v1/sessions/{session}", token="palyra_of-bob-as-user")
        for session in (there, gone)
    ]
    told = [answer.body.replace(session.encode(), b"?") for answer, session in zip(answers, (there, gone), strict=True)]
    assert told[0] == told[1]
    assert answers[0].headers == answers[1].headers


async def test_lists_hold_ones_own_and_with_everyone_all(world: World) -> None:
    alices, bobs = await world.approval(ALICE), await world.approval(BOB)
    for path, mine, other in (
        ("approvals?status=pending&", bobs.id, alices.id),
        ("runs?", bobs.run_id, alices.run_id),
        ("sessions?", bobs.session_id, alices.session_id),
    ):
        for query, expected in (("limit=400", {mine}), ("limit=400&everyone=true", {mine, other})):
            page = await world.scene.ask("GET", f"/api/v1/{path}{query}", token="palyra_of-bob-as-operator")
            assert {item["id"] for item in page.json["items"]} & {mine, other} == expected


async def test_what_is_done_upon_anothers_thing_is_on_record_with_who_did_it(world: World) -> None:
    run, card, grant = await world.waiting_run(ALICE), await world.approval(ALICE), await world.grant(ALICE)
    token = "palyra_of-bob-as-operator"
    await world.scene.ask("POST", f"/api/v1/runs/{run.id}/cancel", {}, token=token)
    answered = await world.scene.ask("POST", f"/api/v1/approvals/{card.id}", {"decision": "deny"}, token=token)
    await world.scene.ask("DELETE", f"/api/v1/grants/{grant}", token=token)
    assert answered.json["decided_by"] == BOB
    assert [(actor, act.action, act.target, act.detail) for actor, act in (await world.acts())[-3:]] == [
        (BOB, "runs.cancel", run.id, f"of {ALICE}"),
        (BOB, "approvals.answer", card.id, f"of {ALICE}"),
        (BOB, "grants.revoke", grant, f"of {ALICE}"),
    ]


async def test_what_is_done_upon_ones_own_thing_is_no_administrative_act(world: World) -> None:
    before = len(await world.acts())
    card = await world.approval(BOB)
    done = await world.scene.ask(
        "POST", f"/api/v1/approvals/{card.id}", {"decision": "deny"}, token="palyra_of-bob-as-admin"
    )
    assert done.status == 200
    assert len(await world.acts()) == before


async def test_every_administrative_act_is_on_record_before_it_is_done_and_holds_no_secret(world: World) -> None:
    token = "palyra_of-bob-as-admin"
    before = len(await world.acts())
    issued = await world.scene.ask("POST", "/api/v1/tokens", {"principal": "user:carol", "role": "user"}, token=token)
    token_id = issued.json["record"]["id"]
    await world.scene.ask("DELETE", f"/api/v1/tokens/{token_id}", token=token)
    link = await world.scene.ask("POST", "/api/v1/login-link", {}, token=token)
    code = link.json["path"].removeprefix("/#login=")
    await world.scene.ask("POST", "/api/v1/login", {"code": code}, token=None)
    acts = (await world.acts())[before:]
    assert [(actor, act.action, act.target) for actor, act in acts] == [
        (BOB, "tokens.issue", token_id),
        (BOB, "tokens.revoke", token_id),
        (BOB, "login.link", "bob-admin"),
        (BOB, "login.begin", "bob-admin"),
    ]
    assert not any(secret in str(acts) for secret in (issued.json["token"], code))


def test_an_action_that_no_route_has_is_permitted_to_nobody() -> None:
    table = RoleTable(ROUTES)
    for role in ("admin", "root", ""):
        question = ApiQuestion(principal=BOB, role=role, action="runs.invent")
        assert table.permit(question).verdict.value == "deny"
