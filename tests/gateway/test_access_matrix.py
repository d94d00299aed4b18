"""Every route, in every role, upon one's own resource and upon another's: the answer is what the route declares.

The rows are the routes themselves: each declares the least role for its action, the least role for it upon another's
resource, and the kind of resource in its path. The engine is a real one. Each decision is asked of the role table and of
the bundled Cedar policies, which name every action a second time, so a role that is declared wrongly fails.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from palyra.adapters.policy.cedar import CedarPolicy
from palyra.core.ids import Principal, RunId, make_call_id
from palyra.gateway.access.resources import APPROVAL, ARTIFACT, GRANT, RUN, SESSION, AnyResourceKind
from palyra.gateway.access.roles import PROGRAMS_ACTS, programs_may
from palyra.gateway.http.route import HttpRoute, parameters_of
from palyra.gateway.routes.jobs import JOB
from palyra.gateway.routes.learning import CANDIDATE
from palyra.gateway.routes.memory import MEMORY
from palyra.gateway.routes.routines import ROUTINE
from palyra.gateway.routes.table import ROUTES, document
from palyra.ports.policy import ApiQuestion, PolicyAnswer
from palyra.ports.tokens import Role, hash_token, includes
from tests.gateway.prepared import SOURCE, Prepared
from tests.gateway.scene import ADMIN, Scene
from tests.support.role_table import RoleTable

ALICE = Principal("user:alice")
BOB = Principal("user:bob")
ROLES = tuple(Role)
TOKEN_ID = "0123456789abcdef"
PUBLIC = [route for route in ROUTES if route.is_public]
PROTECTED = [route for route in ROUTES if route.needs_credentials]
BODIES: dict[str, object] = {
    "sessions.label": {"label": "new"},
    "sessions.branch": {"at_seq": 1},
    "sessions.trust": {"source": SOURCE},
    "sessions.pin": {"text": "keep this"},
    "runs.input": {"text": "and this"},
    "approvals.answer": {"decision": "deny"},
    "skills.change": {"status": "active"},
    "tokens.issue": {"principal": "user:carol", "role": "viewer"},
    "artifacts.write": "bytes",
    "routines.change": {"paused": True},
    "memory.add": {"content": "the kettle is blue"},
    "memory.edit": {"metadata": {"a": 1}},
    "learning.decide": {"action": "reject"},
}
BODIES_BY_PATH: dict[str, object] = {
    "/v1/chat/completions": {"model": "main", "messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"model": "main", "input": "hello"},
    "/v1/embeddings": {"model": "main", "input": "hello"},
    "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
}
QUERIES = {("DELETE", "sessions.trust"): f"?source={SOURCE}", ("GET", "memory.search"): "?q=kettle"}


def name_of(route: HttpRoute) -> str:
    return f"{route.method} {route.path}"


def own_row(route: HttpRoute) -> str:
    """One letter a role, in the order viewer, user, operator, admin: + is done, - is 403, 0 is 404."""
    return "".join("+" if includes(role, route.role) else "-" for role in ROLES)


def others_row(route: HttpRoute) -> str:
    """The same upon another's resource, which for a list is ?everyone=true; empty where there is no such request."""
    names_session = "session_id" in route.body.__struct_fields__
    if route.others is None and route.resource is None and not names_session:
        return ""
    refused = "0" if route.resource is not None or (names_session and route.others is None) else "-"
    return "".join(_others_letter(route, role, refused) for role in ROLES)


def _others_letter(route: HttpRoute, role: Role, refused: str) -> str:
    if not includes(role, route.role):
        return "-"
    return "+" if route.others is not None and includes(role, route.others) else refused


class BothPolicies:
    """The role table and Cedar, which must never disagree."""

    def __init__(self) -> None:
        self._table, self._cedar = RoleTable(ROUTES), CedarPolicy()

    def permit(self, question: ApiQuestion) -> PolicyAnswer:
        answer = self._table.permit(question)
        assert self._cedar.permit(question).verdict is answer.verdict, question
        return answer


@dataclass
class World:
    """A gateway with a token of bob's in each role. Resources are made as they are needed."""

    scene: Scene
    prepared: Prepared

    async def status(self, role: Role | None, route: HttpRoute, owner: Principal) -> int:
        """Of a request upon a new resource of the owner's."""
        self.scene.clock.at_s += 60  # The rate of requests is not what is tested here.
        token = None if role is None else f"palyra_of-bob-as-{role.value}"
        target = await self.target(route, owner)
        if owner != BOB and "everyone" in route.query.__struct_fields__:
            target += "?everyone=true"
        return (await self.scene.ask(route.method, target, await self.body(route, owner), token=token)).status

    async def target(self, route: HttpRoute, owner: Principal) -> str:
        makers: dict[AnyResourceKind, Callable[[Principal], Awaitable[str]]] = {
            SESSION: self.prepared.tainted_session if route.action == "sessions.trust" else self.prepared.session,
            RUN: self.caller_run if route.path.endswith(("/calls", "/results")) else self.run,
            APPROVAL: self.approval,
            GRANT: self.prepared.grant,
            ARTIFACT: self.prepared.artifact,
            ROUTINE: self.prepared.routine,
            CANDIDATE: self.prepared.candidate,
            JOB: self.prepared.job,
            MEMORY: self.prepared.memory,
        }
        self.scene.ids = {"token_id": TOKEN_ID, "name": "scripted", "process_id": "", "model_name": "main"}
        if "response_id" in parameters_of(route.path):
            self.scene.ids["response_id"] = f"resp_{(await self.prepared.finished_run(owner)).id}"
        self.scene.ids |= await self.prepared.channel_ids(route.path)
        if route.resource is not None:
            self.scene.ids[route.resource.parameter] = await makers[route.resource](owner)
        if "process_id" in parameters_of(route.path):
            self.scene.ids["process_id"] = list(self.prepared.processes.records)[-1]
        if "incident_id" in parameters_of(route.path):
            self.scene.ids["incident_id"] = await self.prepared.incident()
        if "pin_id" in parameters_of(route.path):
            self.scene.ids["pin_id"] = await self.prepared.pin(owner, self.scene.ids["session_id"])
        if "token_id" in parameters_of(route.path):
            self.scene.tokens.add("palyra_to-be-revoked", Role.VIEWER, id=TOKEN_ID)
        return route.path + QUERIES.get((route.method, route.action), "")

    async def body(self, route: HttpRoute, owner: Principal) -> object:
        if route.action == "login.begin":
            return {"code": self.scene.logins.new_code(hash_token(ADMIN))}
        if route.action == "policy.explain":
            return {"tool": "time.now", "arguments": {}, "principal": owner}
        if "session_id" in route.body.__struct_fields__:
            wanted = {"session_id": await self.prepared.session(owner)}
            return wanted | ({"text": "go"} if "text" in route.body.__struct_fields__ else {})
        if route.action == "sessions.restore":
            return {"checkpoint_id": await self.prepared.checkpoint(owner, self.scene.ids["session_id"])}
        if route.action == "routines.create":
            return {"name": self.prepared.new_name(), "prompt": "go", "every_s": 86_400}
        if route.path.endswith("/results"):
            return {"results": [{"call_id": make_call_id(RunId(self.scene.ids["run_id"]), 1), "output": "42"}]}
        return BODIES_BY_PATH.get(route.path) or BODIES.get(route.action, {})

    async def run(self, owner: Principal) -> str:
        """With a process."""
        run = await self.prepared.waiting_run(owner)
        self.prepared.processes.begin(run)
        return run.id

    async def caller_run(self, owner: Principal) -> str:
        return (await self.prepared.caller_run(owner)).id

    async def approval(self, owner: Principal) -> str:
        return (await self.prepared.approval(owner)).id


@pytest.fixture(scope="module")
async def world(prepared: Prepared) -> World:
    scene = Scene(prepared.engine, policy=BothPolicies())
    for role in ROLES:
        scene.tokens.add(f"palyra_of-bob-as-{role.value}", role, principal=BOB, id=f"bob-{role.value}")
    return World(scene, prepared)


def test_what_is_public_is_said_in_the_document() -> None:
    paths: dict[str, dict] = document()["paths"]  # type: ignore[assignment]
    public = {name_of(route) for route in ROUTES if paths[route.path][route.method.lower()].get("security") == []}
    assert {name_of(route) for route in ROUTES if not route.needs_credentials} == public


def test_a_route_declares_the_resource_in_its_path() -> None:
    """A route that forgets to is closed to everyone but the owner, and fails here."""
    kinds = {route.resource.parameter: route.resource for route in ROUTES if route.resource is not None}
    for route in ROUTES:
        found = [kinds[name] for name in parameters_of(route.path) if name in kinds]
        assert ([route.resource] if route.resource else []) == found, name_of(route)


def test_what_may_be_changed_for_another_is_this() -> None:
    changes = {route.action for route in ROUTES if route.others is not None and not route.is_read_only}
    assert changes == {
        "runs.cancel", "processes.stop", "approvals.answer", "grants.revoke", "policy.explain",
        "jobs.cancel", "jobs.retry", "routines.change", "routines.remove",
    }  # fmt: skip
    assert {route.others for route in ROUTES} == {None, Role.OPERATOR}


@pytest.mark.parametrize("route", PUBLIC, ids=name_of)
async def test_a_public_route_is_done_for_anyone(world: World, route: HttpRoute) -> None:
    for role in (None, *ROLES):
        assert await world.status(role, route, BOB) == 200


@pytest.mark.parametrize("route", PROTECTED, ids=name_of)
async def test_a_route_does_in_each_role_what_the_table_says(world: World, route: HttpRoute) -> None:
    assert await outcomes(world, route, BOB) == own_row(route)
    if others_row(route):
        assert await outcomes(world, route, ALICE) == others_row(route)
    assert await world.status(None, route, BOB) == 401


async def outcomes(world: World, route: HttpRoute, owner: Principal) -> str:
    """A letter for each role of bob's."""
    letters = []
    for role in ROLES:
        status = await world.status(role, route, owner)
        letters.append("+" if status == route.status else {403: "-", 404: "0"}.get(status, f"[{status}]"))
    return "".join(letters)


async def test_anothers_thing_and_no_thing_are_answered_alike(world: World) -> None:
    """Not by status alone: nothing in the answer tells that there is something."""
    there, gone = await world.prepared.session(ALICE), "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    answers = [
        await world.scene.ask(
            "GET", f"/api/v1/sessions/{session}", None, {"X-Request-Id": "one"}, token="palyra_of-bob-as-user"
        )
        for session in (there, gone)
    ]
    told = [answer.body.replace(session.encode(), b"?") for answer, session in zip(answers, (there, gone), strict=True)]
    assert told[0] == told[1]
    assert answers[0].headers == answers[1].headers


async def test_lists_hold_ones_own_and_with_everyone_all(world: World) -> None:
    alices, bobs = await world.prepared.approval(ALICE), await world.prepared.approval(BOB)
    for path, mine, other in (
        ("approvals?status=pending&", bobs.id, alices.id),
        ("runs?", bobs.run_id, alices.run_id),
        ("sessions?", bobs.session_id, alices.session_id),
    ):
        for query, expected in (("limit=400", {mine}), ("limit=400&everyone=true", {mine, other})):
            page = await world.scene.ask("GET", f"/api/v1/{path}{query}", token="palyra_of-bob-as-operator")
            assert {item["id"] for item in page.json["items"]} & {mine, other} == expected


async def test_what_is_done_upon_anothers_thing_is_on_record_with_who_did_it(world: World) -> None:
    run, card = await world.prepared.waiting_run(ALICE), await world.prepared.approval(ALICE)
    grant = await world.prepared.grant(ALICE)
    token = "palyra_of-bob-as-operator"
    await world.scene.ask("POST", f"/api/v1/runs/{run.id}/cancel", {}, token=token)
    answered = await world.scene.ask("POST", f"/api/v1/approvals/{card.id}", {"decision": "deny"}, token=token)
    await world.scene.ask("DELETE", f"/api/v1/grants/{grant}", token=token)
    process_id = world.prepared.processes.begin(run)
    await world.scene.ask("POST", f"/api/v1/runs/{run.id}/processes/{process_id}/stop", {}, token=token)
    assert answered.json["decided_by"] == BOB
    assert [(actor, act.action, act.target, act.detail) for actor, act in (await world.prepared.acts())[-4:]] == [
        (BOB, "runs.cancel", run.id, f"of {ALICE}"),
        (BOB, "approvals.answer", card.id, f"of {ALICE}"),
        (BOB, "grants.revoke", grant, f"of {ALICE}"),
        (BOB, "processes.stop", f"{run.id}/{process_id}", f"of {ALICE}"),
    ]


async def test_what_is_done_upon_ones_own_thing_is_no_administrative_act(world: World) -> None:
    before = len(await world.prepared.acts())
    card = await world.prepared.approval(BOB)
    done = await world.scene.ask(
        "POST", f"/api/v1/approvals/{card.id}", {"decision": "deny"}, token="palyra_of-bob-as-admin"
    )
    assert done.status == 200
    assert len(await world.prepared.acts()) == before


async def test_every_administrative_act_is_on_record_before_it_is_done_and_holds_no_secret(world: World) -> None:
    token = "palyra_of-bob-as-admin"
    before = len(await world.prepared.acts())
    issued = await world.scene.ask("POST", "/api/v1/tokens", {"principal": "user:carol", "role": "user"}, token=token)
    token_id = issued.json["record"]["id"]
    await world.scene.ask("DELETE", f"/api/v1/tokens/{token_id}", token=token)
    link = await world.scene.ask("POST", "/api/v1/login-link", {}, token=token)
    code = link.json["path"].removeprefix("/#login=")
    await world.scene.ask("POST", "/api/v1/login", {"code": code}, token=None)
    acts = (await world.prepared.acts())[before:]
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


def test_the_page_about_access_names_every_action_with_its_roles() -> None:
    page = (Path(__file__).parents[2] / "docs" / "access.md").read_text(encoding="utf-8")
    rows = page[page.index("| least role |") :].split("\n\n")[0].splitlines()[2:]
    named: dict[str, tuple[str, str]] = {}
    role, others = "", ""
    for row in rows:
        first, second, actions = (cell.strip().strip("`") for cell in row.strip("|").split("|"))
        role, others = first or role, second or others
        named |= dict.fromkeys(re.findall(r"`([\w.]+)`", f"`{actions}`"), (role, others))
    without_token = {"daemon.front", "daemon.live", "channels.inbound", "login.begin"}
    needed = {
        route.action: (route.role.value, route.others.value if route.others else "nobody")
        for route in ROUTES
        if route.action not in without_token
    }
    assert named == needed


def test_a_program_looks_and_of_what_changes_something_does_only_what_is_listed() -> None:
    changing = {route.action for route in PROTECTED if not route.is_read_only}
    looking = {route.action for route in PROTECTED if route.is_read_only}
    assert all(map(programs_may, looking))
    assert {action for action in changing if programs_may(action)} == PROGRAMS_ACTS
