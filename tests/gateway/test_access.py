"""A stranger learns nothing but 401; a page on the web reaches nothing; a role, an expiry and a rate hold."""

import pytest

from palyra.gateway.access.rate_limits import RateLimits
from palyra.gateway.http.request_access import host_name
from palyra.gateway.http.route import HttpRoute
from palyra.gateway.http.settings import HttpSettings
from palyra.gateway.routes.table import ROUTES
from palyra.ports.tokens import Role
from tests.gateway.prepared import Prepared
from tests.gateway.scene import ADMIN, HOST, NOW_MS, RUN, Scene

ONE_RUN = f"/api/v1/runs/{RUN}"


TOKENED = [route for route in ROUTES if not route.is_signed]


@pytest.mark.parametrize("route", TOKENED, ids=lambda route: f"{route.method} {route.path}")
async def test_every_route_but_the_public_ones_needs_a_token(scene: Scene, route: HttpRoute) -> None:
    answer = await scene.ask(route.method, route.path, {"code": "guessed"}, token=None)
    assert answer.status == (200 if route.is_public and route.method == "GET" else 401)
    assert scene.asked == []


def test_signed_routes_are_these() -> None:
    assert [route.path for route in ROUTES if route.is_signed] == ["/api/v1/channels/{name}/inbound"]


def test_public_routes_are_these() -> None:
    assert [route.path for route in ROUTES if route.is_public] == ["/", "/healthz", "/login.js", "/api/v1/login"]


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/nope", {}),
        ("PUT", "/api/v1/runs", {}),
        ("POST", "/healthz", {}),
        ("OPTIONS", "/api/v1/runs", {}),
        ("POST", "/api/v1/runs", {"content-length": "99999999999"}),
        ("GET", "/api/v1/runs?limit=nope", {}),
        ("GET", "/api/v1/runs", {"host": "evil.example"}),
        ("GET", "/api/v1/runs", {"origin": "https://evil.example"}),
    ],
)
async def test_unauthorized_comes_before_any_other_answer(
    scene: Scene, method: str, target: str, headers: dict[str, str]
) -> None:
    answer = await scene.ask(method, target, b"{not json", headers, token=None)
    assert (answer.status, answer.code) == (401, "token_missing")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {ADMIN}",
        ADMIN,
        "Bearer wrong",
        f"Bearer {ADMIN}x",
        "Bearer é",
        "Bearer " + "x" * 9999,
    ],
)
async def test_header_that_is_no_valid_token_is_refused(scene: Scene, value: str) -> None:
    answer = await scene.ask("GET", ONE_RUN, headers={"authorization": value}, token=None)
    assert answer.status == 401


async def test_two_authorization_headers_are_refused(scene: Scene) -> None:
    twice = [("authorization", f"Bearer {ADMIN}")] * 2
    answer = await scene.raw("GET", ONE_RUN, "", [("host", HOST), *twice], [b""])
    assert answer.status == 401


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "Token"])
async def test_token_in_the_address_is_refused(scene: Scene, name: str) -> None:
    alone = await scene.ask("GET", f"{ONE_RUN}?{name}={ADMIN}", token=None)
    assert (alone.status, alone.code) == (401, "token_in_query")
    assert ADMIN.encode() not in alone.body
    beside = await scene.ask("GET", f"{ONE_RUN}?{name}={ADMIN}")
    assert (beside.status, beside.code) == (400, "query_invalid")
    assert ADMIN.encode() not in beside.body


async def test_expired_token_is_refused_from_its_last_moment_on(scene: Scene) -> None:
    token = scene.tokens.add("palyra_short-lived-token", Role.USER, expires_at_ms=NOW_MS)
    scene.clock.at_ms = NOW_MS - 1
    assert (await scene.ask("GET", ONE_RUN, token=token)).status == 200
    scene.clock.at_ms = NOW_MS
    assert (await scene.ask("GET", ONE_RUN, token=token)).code == "token_invalid"


async def test_revoked_token_is_refused_with_the_next_request(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-somebody", Role.USER)
    assert (await scene.ask("GET", ONE_RUN, token=token)).status == 200
    scene.tokens.add(token, Role.USER, revoked=True)
    assert (await scene.ask("GET", ONE_RUN, token=token)).status == 401


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.needs_credentials], ids=lambda r: r.method + r.path
)
async def test_role_below_a_routes_own_is_refused(scene: Scene, role: Role, route: HttpRoute) -> None:
    token = scene.tokens.add("palyra_of-some-role", role, principal="user:alice")
    answer = await scene.ask(route.method, route.path, token=token)
    ranks = list(Role)
    is_refused = answer.status == 403 and answer.code == "role_insufficient"
    assert is_refused is (ranks.index(role) < ranks.index(route.role))


def test_viewers_change_nothing() -> None:
    viewers = [route for route in ROUTES if route.role is Role.VIEWER and route.method != "GET" and not route.is_signed]
    assert [route.action for route in viewers] == ["login.begin", "login.end"]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:7142", "localhost:80", "LocalHost", "[::1]:7142", "192.0.2.7:7142", "palyra.example"],
)
async def test_names_of_ours_are_answered(prepared: Prepared, host: str) -> None:
    scene = Scene(prepared.engine, prepared.ids, HttpSettings(hosts=("Palyra.example",)))
    assert (await scene.ask("GET", "/healthz", headers={"host": host})).status == 200
    assert (await scene.ask("GET", ONE_RUN, headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "a@localhost",
        "localhost/x",
        "localhost:x",
        "[::1",
        "192.0.2.8",
    ],
)
async def test_names_that_are_not_ours_are_refused(scene: Scene, host: str) -> None:
    for path in ("/", "/healthz", ONE_RUN):
        answer = await scene.ask("GET", path, headers={"host": host})
        assert (answer.status, answer.code) == (403, "host_refused")
    assert scene.asked == []


async def test_missing_or_double_host_is_refused(scene: Scene) -> None:
    token = ("authorization", f"Bearer {ADMIN}")
    for hosts in ([], [("host", "localhost")] * 2):
        assert (await scene.raw("GET", ONE_RUN, "", [token, *hosts], [b""])).code == "host_refused"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (f"http://{HOST}", 200),
        (f"https://{HOST}", 200),
        ("http://127.0.0.1:8080", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        (f"ftp://{HOST}", 403),
    ],
)
async def test_browser_of_another_origin_is_refused(scene: Scene, origin: str, status: int) -> None:
    assert (await scene.ask("GET", ONE_RUN, headers={"origin": origin})).status == status


async def test_rate_is_held_for_each_token_alone(prepared: Prepared) -> None:
    scene = Scene(prepared.engine, prepared.ids, HttpSettings(requests_per_minute=3))
    alice = scene.tokens.add("palyra_alice", Role.USER)
    bob = scene.tokens.add("palyra_bobby", Role.USER)
    statuses = [(await scene.ask("GET", ONE_RUN, token=alice)).status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    refused = await scene.ask("GET", ONE_RUN, token=alice)
    assert (refused.code, refused.json["error"]["retryable"], refused.headers["retry-after"]) == (
        "rate_limited",
        True,
        "1",
    )
    assert (await scene.ask("GET", ONE_RUN, token=bob)).status == 200
    scene.clock.at_s += 20
    statuses = [(await scene.ask("GET", ONE_RUN, token=alice)).status for _ in range(2)]
    assert statuses == [200, 429]


async def test_admin_is_free_of_the_rate_on_loopback_only(prepared: Prepared) -> None:
    near = Scene(prepared.engine, prepared.ids, HttpSettings(requests_per_minute=1))
    assert [(await near.ask("GET", ONE_RUN)).status for _ in range(3)] == [200, 200, 200]
    far = Scene(prepared.engine, prepared.ids, HttpSettings(requests_per_minute=1), ("192.0.2.9", 1))
    assert [(await far.ask("GET", ONE_RUN)).status for _ in range(2)] == [200, 429]


def test_bucket_never_holds_more_than_a_minute() -> None:
    now_s = [0.0]
    buckets = RateLimits(2, lambda: now_s[0])
    now_s[0] = 1e6
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]


def test_full_buckets_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.gateway.access.rate_limits.BUCKETS_MAX", 2)
    now_s = [0.0]
    buckets = RateLimits(60, lambda: now_s[0])
    for name in ("a", "b"):
        buckets.take(name)
    now_s[0] = 60.0
    buckets.take("c")
    assert list(buckets._levels) == ["c"]


@pytest.mark.parametrize(
    ("host", "name"),
    [("A.b:1", "a.b"), ("[::1]", "::1"), ("a?b", None), ("a#b", None), ("a b", "a b"), ("u:p@a", None)],
)
def test_host_name(host: str, name: str | None) -> None:
    assert host_name(host) == name
