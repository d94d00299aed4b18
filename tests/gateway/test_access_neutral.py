"""Access is asked with credentials and ids: every protocol gets the same answers, without a request of HTTP."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

import palyra.gateway.access
from palyra.core.errors import NotFound, Unauthorized, Unavailable
from palyra.core.ids import Principal
from palyra.gateway.access.authentication import Authentication
from palyra.gateway.access.caller import Caller, PresentedCredentials
from palyra.gateway.access.credentials import Credentials
from palyra.gateway.access.resources import RUN, ResourceRef
from palyra.gateway.access.viewer import Viewers
from palyra.ports.tokens import Role, hash_token
from tests.gateway.prepared import Prepared
from tests.gateway.scene import ADMIN, Scene
from tests.support.role_table import RoleTable

OWNER = Principal("user:owner")
BOB = Principal("user:bob")


@dataclass(frozen=True)
class Method:
    """An operation of some other protocol."""

    action: str
    role: Role = Role.USER
    others: Role | None = Role.OPERATOR
    is_read_only: bool = False


CANCEL = Method("runs.cancel")


def bob(role: Role) -> Caller:
    return Caller(f"bob-{role.value}", BOB, role)


@pytest.fixture
def access(scene: Scene) -> Authentication:
    credentials = Credentials(scene.tokens, scene.tokens, scene.logins, scene.policy, scene.clock)
    return Authentication(credentials, 2, scene.clock.monotonic_s)


@pytest.fixture
def viewers(prepared: Prepared) -> Viewers:
    return Viewers(RoleTable([CANCEL]), prepared.engine.owners, prepared.engine.acts)


def test_access_knows_no_protocol() -> None:
    for path in Path(palyra.gateway.access.__file__).parent.glob("*.py"):
        imported = [
            node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        outside = ("starlette", "uvicorn", "palyra.gateway.http", "palyra.gateway.routes", "palyra.gateway.services")
        assert not [name for name in imported if name.startswith(outside)], path.name


async def test_a_bearer_token_is_enough(access: Authentication) -> None:
    caller = await access.authenticate(PresentedCredentials(bearer=ADMIN))
    assert (caller.token_id, caller.principal, caller.role, caller.session) == ("admin", OWNER, Role.ADMIN, None)
    access.check_csrf(caller, PresentedCredentials(bearer=ADMIN))


async def test_a_console_session_is_worth_its_token_and_needs_its_csrf_token(
    access: Authentication, scene: Scene
) -> None:
    opened = scene.logins.open(hash_token(ADMIN))
    caller = await access.authenticate(PresentedCredentials(cookie=opened.id))
    assert (caller.token_id, caller.session is not None) == ("admin", True)
    access.check_csrf(caller, PresentedCredentials(csrf=opened.session.csrf_token))
    for csrf in ("", "guessed"):
        with pytest.raises(Unauthorized) as caught:
            access.check_csrf(caller, PresentedCredentials(csrf=csrf))
        assert caught.value.code == "csrf_refused"


@pytest.mark.parametrize(
    ("presented", "code"),
    [
        (PresentedCredentials(), "token_missing"),
        (PresentedCredentials(bearer=""), "token_missing"),
        (PresentedCredentials(bearer="é"), "token_missing"),
        (PresentedCredentials(bearer="x" * 9999), "token_missing"),
        (PresentedCredentials(bearer="wrong"), "token_invalid"),
        (PresentedCredentials(cookie="wrong"), "session_invalid"),
        (PresentedCredentials(cookie="x" * 9999), "token_missing"),
    ],
)
async def test_other_credentials_are_refused(
    access: Authentication, presented: PresentedCredentials, code: str
) -> None:
    with pytest.raises(Unauthorized) as caught:
        await access.authenticate(presented)
    assert caught.value.code == code


async def test_a_wrong_token_is_not_mended_by_a_session(access: Authentication, scene: Scene) -> None:
    opened = scene.logins.open(hash_token(ADMIN))
    with pytest.raises(Unauthorized):
        await access.authenticate(PresentedCredentials(bearer="wrong", cookie=opened.id))


def test_rates_are_held_by_token_and_an_administrator_is_exempt_on_this_machine(access: Authentication) -> None:
    for _ in range(2):
        access.check_rate(bob(Role.ADMIN), None)
    with pytest.raises(Unavailable):
        access.check_rate(bob(Role.ADMIN), "192.0.2.1")
    access.check_rate(bob(Role.ADMIN), "127.0.0.1")
    access.check_rate(bob(Role.USER), "192.0.2.1")


@pytest.mark.parametrize(("role", "viewer"), [(Role.USER, BOB), (Role.OPERATOR, OWNER), (Role.ADMIN, OWNER)])
async def test_the_viewer_is_the_owner_only_where_the_policy_permits_it(
    viewers: Viewers, prepared: Prepared, role: Role, viewer: Principal
) -> None:
    before = len(await prepared.acts())
    run = ResourceRef(RUN, prepared.ids["run_id"])
    assert await viewers.viewer_for(bob(role), CANCEL, run) == viewer
    acts = (await prepared.acts())[before:]
    recorded = [(actor, act.action, act.target, act.detail) for actor, act in acts]
    assert recorded == ([(BOB, "runs.cancel", run.id, f"of {OWNER}")] if viewer == OWNER else [])


async def test_what_only_reads_another_resource_is_no_act(viewers: Viewers, prepared: Prepared) -> None:
    before = len(await prepared.acts())
    reading = Method("runs.cancel", is_read_only=True)
    assert await viewers.viewer_for(bob(Role.OPERATOR), reading, ResourceRef(RUN, prepared.ids["run_id"])) == OWNER
    assert len(await prepared.acts()) == before


async def test_a_role_below_the_least_is_refused_before_anything_is_looked_up(viewers: Viewers) -> None:
    with pytest.raises(Unauthorized):
        await viewers.viewer_for(bob(Role.VIEWER), CANCEL, ResourceRef(RUN, "no id at all"))
    with pytest.raises(NotFound):
        await viewers.viewer_for(bob(Role.USER), CANCEL, ResourceRef(RUN, "no id at all"))


async def test_what_nobody_may_do_for_another_is_done_as_oneself(prepared: Prepared) -> None:
    own_only = Method("runs.input", others=None)
    viewers = Viewers(RoleTable([own_only]), prepared.engine.owners, prepared.engine.acts)
    assert await viewers.viewer_for(bob(Role.ADMIN), own_only, ResourceRef(RUN, prepared.ids["run_id"])) == BOB


def test_lists_of_everyone_are_for_those_the_policy_permits(viewers: Viewers) -> None:
    assert viewers.reader_for(bob(Role.USER), "runs.cancel", False) == BOB
    assert viewers.reader_for(bob(Role.OPERATOR), "runs.cancel", True) is None
    with pytest.raises(Unauthorized):
        viewers.reader_for(bob(Role.USER), "runs.cancel", True)
