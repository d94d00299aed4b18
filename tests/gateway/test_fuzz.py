"""Whatever is sent, the answer is a refusal or an answer, and never a fault of ours."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.gateway.http.route import HttpRoute
from palyra.gateway.routes.table import ROUTES
from tests.gateway.frames import RUN_ID, SESSION_ID
from tests.gateway.prepared import Prepared
from tests.gateway.scene import APPROVAL, Scene
from tests.support.examples import examples

EXAMPLES = examples(40)
MEMBERS = sorted(
    {name for route in ROUTES for record in (route.body, route.query) for name in record.__struct_fields__}
)

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([SESSION_ID, RUN_ID, "allow", "queue"])
)
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
bodies = st.dictionaries(st.sampled_from(MEMBERS) | st.text(), values) | values
routes = st.sampled_from(
    [route for route in ROUTES if route.media_types != ("text/event-stream",) and route.needs_credentials]
)


@settings(max_examples=EXAMPLES)
@given(route=routes, body=bodies, accept=st.sampled_from(["*/*", "text/event-stream"]))
async def test_json_of_any_shape_is_answered(prepared: Prepared, route: HttpRoute, body: object, accept: str) -> None:
    scene = Scene(prepared.engine, prepared.ids)
    answer = await scene.ask(route.method, route.path, json.dumps(body).encode(), {"accept": accept})
    assert answer.status in (200, 201, 202, 204, 400, 404, 409)


@settings(max_examples=EXAMPLES)
@given(body=st.binary(), text=st.text(max_size=50))
async def test_bytes_of_any_kind_are_answered(prepared: Prepared, body: bytes, text: str) -> None:
    scene = Scene(prepared.engine, prepared.ids)
    for path in ("/api/v1/runs", "/api/v1/sessions", "/api/v1/artifacts", f"/api/v1/approvals/{APPROVAL}"):
        assert (await scene.ask("POST", path, body)).status in (200, 201, 202, 400)
    assert (await scene.ask("POST", "/api/v1/runs", {"text": f"x{text}"})).status == 202


@settings(max_examples=EXAMPLES)
@given(
    path=st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    query=st.text(alphabet=st.characters(min_codepoint=1, max_codepoint=126)),
    headers=st.dictionaries(
        st.sampled_from(
            ["host", "origin", "last-event-id", "accept", "content-length", "content-type", "authorization"]
        ),
        st.text(alphabet=st.characters(max_codepoint=255)),
    ),
)
async def test_heads_of_any_kind_are_answered(
    prepared: Prepared, path: str, query: str, headers: dict[str, str]
) -> None:
    scene = Scene(prepared.engine, prepared.ids)
    for target in (f"/{path.partition('?')[0]}", f"/api/v1/runs/{path.partition('?')[0]}", "/api/v1/runs"):
        answer = await scene.ask("GET", f"{target}?{query}", b"", headers)
        assert answer.status in (200, 400, 401, 403, 404)
