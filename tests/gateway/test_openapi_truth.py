"""What the OpenAPI document says of a route is what the route does: every answer fits the schema of its status."""

from typing import Any

import jsonschema_rs
import pytest

from palyra.gateway.http.route import HttpRoute
from palyra.gateway.routes.table import ROUTES, document
from palyra.ports.tokens import Role
from tests.gateway.prepared import Prepared
from tests.gateway.scene import Answer, Scene
from tests.gateway.test_access_matrix import BOB, World, name_of

TOKEN = "palyra_of-bob-as-admin"
STREAMED = "text/event-stream"
STRANGERS_MAX = 100  # More than the daemon answers in a minute.


def operation_of(route: HttpRoute) -> dict[str, Any]:
    paths: Any = document()["paths"]
    return paths[route.path][route.method.lower()]


def check_answer(route: HttpRoute, answer: Answer) -> None:
    """Fails unless the document has this status with this type, and the body fits the schema there."""
    described = operation_of(route)["responses"].get(str(answer.status))
    assert described is not None, f"{answer.status} is not documented: {answer.body[:200]!r}"
    content = {name.partition(";")[0]: body for name, body in described.get("content", {}).items()}
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if not answer.body:
        return
    # Some routes answer with whatever type a resource has.
    schema = content.get(kind, content.get("*/*", {})).get("schema")
    assert schema is not None, f"{kind} is not documented for {answer.status}"
    if kind == "application/json":
        whole = {**schema, "components": document()["components"]}
        jsonschema_rs.validator_for(whole).validate(answer.json)


@pytest.fixture
async def world(prepared: Prepared) -> World:
    scene = Scene(prepared.engine)
    scene.tokens.add(TOKEN, Role.ADMIN, principal=BOB, id="bob-admin")
    return World(scene, prepared)


# A signed route answers in the words of its platform.
OURS = [route for route in ROUTES if not route.is_signed]


@pytest.mark.parametrize("route", OURS, ids=name_of)
async def test_an_answer_fits_what_the_document_says_of_it(world: World, route: HttpRoute) -> None:
    world.scene.clock.at_s += 60
    target = await world.target(route, BOB)
    answer = await world.scene.ask(route.method, target, await world.body(route, BOB), token=TOKEN)
    if STREAMED not in answer.headers.get("content-type", ""):
        assert answer.status == route.status
        check_answer(route, answer)


@pytest.mark.parametrize("route", [route for route in OURS if not route.is_public], ids=name_of)
async def test_a_refusal_fits_what_the_document_says_of_it(world: World, route: HttpRoute) -> None:
    world.scene.clock.at_s += 60
    target = await world.target(route, BOB)
    stranger = await world.scene.ask(route.method, target, None, token=None)
    assert stranger.status == 401
    check_answer(route, stranger)
    asked = await world.scene.ask(route.method, f"{target.partition('?')[0]}?nonsense=1", b"{", token=TOKEN)
    assert asked.status == 400
    check_answer(route, asked)


async def test_refusals_of_content_are_in_the_document(world: World) -> None:
    """Those that come before a platform's signature is looked at, and those of things that a body names."""
    routes = {(route.method, route.path): route for route in ROUTES}
    inbound = routes["POST", "/api/v1/channels/{name}/inbound"]
    asked = ("POST", "/api/v1/channels/none/inbound", b"{}")
    answers = [await world.scene.ask(*asked, token=None) for _ in range(STRANGERS_MAX)]
    for answer in answers:
        check_answer(inbound, answer)
    assert answers[-1].status == 429
    codes = routes["POST", "/api/v1/pairing/codes"]
    refused = await world.scene.ask("POST", codes.path, {"channel": "none"}, token=TOKEN)
    assert refused.status == 404
    check_answer(codes, refused)


async def test_a_request_has_an_id_which_is_the_clients_if_it_can_be_repeated(world: World) -> None:
    given = {"abc-1:2_3.x": True, "": False, "a b": False, "x" * 129: False, "é": False}
    for request_id, is_kept in given.items():
        answer = await world.scene.ask("GET", "/healthz", None, {"X-Request-Id": request_id})
        assert (answer.headers["x-request-id"] == request_id) is is_kept
        assert answer.headers["x-request-id"]
