"""Without valid credentials there is nothing but 401: not for any path, method or head, and not by trying often."""

import ast
import hmac
import inspect
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palyra.adapters.tokens.files
import palyra.gateway.access.authentication
import palyra.gateway.access.console_sessions
import palyra.gateway.http.request_access
import palyra.gateway.routes.login
from palyra.gateway.access.rate_limits import FAILURES_PER_MINUTE, RateLimits
from palyra.gateway.http.route import HttpRoute
from palyra.gateway.routes.table import ROUTES
from palyra.ports.tokens import Role, hash_token
from tests.gateway.prepared import Prepared
from tests.gateway.scene import ADMIN, RUN, Scene
from tests.support.examples import examples

ONE_RUN = f"/api/v1/runs/{RUN}"
SIGNED = {(route.method, route.path) for route in ROUTES if route.is_signed}
PUBLIC = {(route.method, route.path) for route in ROUTES if route.is_public}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "BREW")
HEADERS = (
    "authorization", "cookie", "host", "origin", "x-csrf-token", "sec-fetch-site", "content-length", "content-type",
    "accept", "last-event-id", "x-forwarded-for", "x-forwarded-user", "x-real-ip", "forwarded", "x-http-method-override",
)  # fmt: skip
COMPARING = (
    palyra.gateway.access.authentication,
    palyra.gateway.access.console_sessions,
    palyra.gateway.http.request_access,
    palyra.gateway.routes.login,
    palyra.adapters.tokens.files,
)

texts = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=255), max_size=60)
known_paths = st.sampled_from([route.path for route in ROUTES])
paths = known_paths | texts.map(lambda text: f"/{text.partition('?')[0]}") | known_paths.map(lambda path: f"{path}/")
values = texts | st.sampled_from(
    ["Bearer", "Bearer x", f"Basic {ADMIN}", f"bearer  {ADMIN}x", "palyra_session_7142=x", "null", "127.0.0.1", "GET"]
)


@settings(max_examples=examples(100))
@given(
    method=st.sampled_from(METHODS),
    path=paths,
    query=texts,
    headers=st.lists(st.tuples(st.sampled_from(HEADERS), values), max_size=6),
    body=st.binary(max_size=40),
)
async def test_a_stranger_gets_nothing_but_401(
    prepared: Prepared, method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    scene = Scene(prepared.engine, prepared.ids)
    answer = await scene.raw(method, scene.filled(path), query, headers, [body])
    if (method, path) not in PUBLIC:
        assert answer.status == 401
    if (method, path) not in SIGNED:
        assert scene.asked == []


@pytest.mark.parametrize("token", [None, "palyra_expired", "palyra_revoked"])
@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.needs_credentials], ids=lambda r: r.method + r.path
)
async def test_no_route_tells_more_than_401_to_what_is_no_longer_valid(
    scene: Scene, route: HttpRoute, token: str | None
) -> None:
    scene.tokens.add("palyra_expired", Role.ADMIN, expires_at_ms=1)
    scene.tokens.add("palyra_revoked", Role.ADMIN, revoked=True)
    answer = await scene.ask(route.method, route.path, {}, token=token)
    assert (answer.status, scene.asked) == (401, [])


async def test_trying_often_is_held_up_and_told_when_to_come_back(scene: Scene) -> None:
    answers = [await scene.ask("GET", ONE_RUN, token=f"guess-{n}") for n in range(FAILURES_PER_MINUTE + 1)]
    assert [answer.status for answer in answers] == [401] * FAILURES_PER_MINUTE + [429]
    assert (answers[-1].code, answers[-1].headers["retry-after"]) == ("too_many_failures", "2")
    codes = [await scene.ask("POST", "/api/v1/login", {"code": "guess"}, token=None) for _ in range(2)]
    assert [answer.status for answer in codes] == [429, 429]
    scene.clock.at_s += 2
    assert (await scene.ask("GET", ONE_RUN, token="guess")).status == 401


async def test_who_is_held_up_locks_out_nobody_with_valid_credentials(scene: Scene) -> None:
    for n in range(FAILURES_PER_MINUTE + 5):
        await scene.ask("GET", ONE_RUN, token=f"guess-{n}")
    assert (await scene.ask("GET", ONE_RUN)).status == 200


@pytest.mark.parametrize(
    ("one", "other", "is_shared"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
)
async def test_addresses_of_one_network_are_held_up_together(
    prepared: Prepared, one: str, other: str, is_shared: bool
) -> None:
    scene = Scene(prepared.engine, prepared.ids, client=(one, 1))
    for n in range(FAILURES_PER_MINUTE):
        await scene.ask("GET", ONE_RUN, token=f"guess-{n}")
    scene.client = (other, 1)
    assert (await scene.ask("GET", ONE_RUN, token="guess")).status == (429 if is_shared else 401)


def test_more_addresses_than_there_is_room_for_share_one_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.gateway.access.rate_limits.BUCKETS_MAX", 2)
    buckets = RateLimits(2, lambda: 0.0)
    assert [buckets.take(name) for name in "abcdefg"] == [True, True, True, True, False, False, False]
    assert len(buckets._levels) == 3


async def test_only_hashes_reach_what_knows_tokens(scene: Scene) -> None:
    seen: list[str] = []
    find = scene.tokens.find

    async def noting(token_hash: str) -> object:
        seen.append(token_hash)
        return await find(token_hash)

    scene.tokens.find = noting  # type: ignore[assignment, method-assign]
    await scene.ask("GET", ONE_RUN)
    await scene.ask("GET", ONE_RUN, token="palyra_guess")
    assert seen == [hash_token(ADMIN), hash_token("palyra_guess")]


@pytest.mark.parametrize("module", COMPARING, ids=lambda module: module.__name__)
def test_nothing_secret_is_compared_but_in_constant_time(module: object) -> None:
    """By construction: secrets are looked up by their hash or compared with `compare_digest`, and never by == or `in`."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    compared = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops)
    ]
    words = ("hash", "csrf", "code", "secret", "session_id", "given")
    assert [text for text in compared if any(word in text for word in words)] == []
    assert [text for text in compared if "token" in text and "token_id" not in text] == []


async def test_every_check_of_a_token_ends_in_a_comparison_of_whole_hashes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a store that gives the wrong row for a hash lets nobody in."""
    compared: list[tuple[str, str]] = []
    original = hmac.compare_digest

    def noting(one: str, other: str) -> bool:
        compared.append((one, other))
        return original(one, other)

    async def confused(token_hash: str) -> object:
        return scene.tokens.by_token[ADMIN]

    scene.tokens.find = confused  # type: ignore[assignment, method-assign]
    monkeypatch.setattr(hmac, "compare_digest", noting)
    assert (await scene.ask("GET", ONE_RUN, token="palyra_guess")).status == 401
    assert compared == [(hash_token(ADMIN), hash_token("palyra_guess"))]


def test_this_file_knows_every_module_that_looks_tokens_up() -> None:
    source = Path(palyra.gateway.access.authentication.__file__).parents[1]
    users = {path.name for path in source.rglob("*.py") if ".tokens.find(" in path.read_text()}
    assert users == {"authentication.py", "login.py"}
