"""Logging in: a link works once and for ten minutes, its cookie is worth what its token is, and changes need the CSRF token."""

import re

import pytest

from palyra.gateway.access.console_sessions import CODE_LIFE_S, CODES_MAX, IDLE_S, LIFE_S, SESSIONS_MAX, ConsoleSessions
from palyra.ports.tokens import Role, hash_token
from tests.gateway.scene import ADMIN, HOST, RUN, Answer, Scene

LOGIN = "/api/v1/login"
ONE_RUN = f"/api/v1/runs/{RUN}"
COOKIE = "palyra_session_7142"


async def link_code(scene: Scene, token: str = ADMIN) -> str:
    answer = await scene.ask("POST", "/api/v1/login-link", {}, token=token)
    assert (answer.status, answer.json["valid_for_s"]) == (201, 600)
    return answer.json["path"].removeprefix("/#login=")


class Browser:
    """Keeps a cookie and sends it, as its user's browser does."""

    def __init__(self, scene: Scene, cookie: str, csrf_token: str) -> None:
        self.scene = scene
        self.cookie = cookie
        self.csrf_token = csrf_token

    async def ask(self, method: str, target: str, body: object = None, /, **headers: str) -> Answer:
        sent = {
            "cookie": f"theme=dark; {self.cookie}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await self.scene.ask(method, target, body, sent, token=None)


async def logged_in(scene: Scene, token: str = ADMIN) -> Browser:
    answer = await scene.ask("POST", LOGIN, {"code": await link_code(scene, token)}, token=None)
    assert answer.status == 200
    return Browser(scene, answer.headers["set-cookie"].partition(";")[0], answer.json["csrf_token"])


async def test_a_link_opens_a_session_of_its_token(scene: Scene) -> None:
    answer = await scene.ask("POST", LOGIN, {"code": await link_code(scene)}, token=None)
    assert (answer.json["principal"], answer.json["role"]) == ("user:owner", "admin")
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert re.fullmatch(rf"{COOKIE}=[\w-]{{43}}", name)
    assert set(attributes) == {"Path=/", f"Max-Age={int(LIFE_S)}", "HttpOnly", "SameSite=Strict"}


async def test_a_link_is_used_once(scene: Scene) -> None:
    code = await link_code(scene)
    assert (await scene.ask("POST", LOGIN, {"code": code}, token=None)).status == 200
    replayed = await scene.ask("POST", LOGIN, {"code": code}, token=None)
    assert (replayed.status, replayed.code) == (401, "login_invalid")
    assert "set-cookie" not in replayed.headers


async def test_a_link_is_good_for_ten_minutes(scene: Scene) -> None:
    code = await link_code(scene)
    scene.clock.at_s += CODE_LIFE_S
    assert (await scene.ask("POST", LOGIN, {"code": code}, token=None)).status == 401


async def test_a_link_of_a_revoked_token_opens_nothing(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-another-admin", Role.ADMIN)
    code = await link_code(scene, token)
    scene.tokens.add(token, Role.ADMIN, revoked=True)
    assert (await scene.ask("POST", LOGIN, {"code": code}, token=None)).status == 401


async def test_a_session_ends_with_the_token_it_was_opened_with(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-another-admin", Role.ADMIN)
    browser = await logged_in(scene, token)
    assert (await browser.ask("GET", ONE_RUN)).status == 200
    scene.tokens.add(token, Role.ADMIN, revoked=True)
    assert (await browser.ask("GET", ONE_RUN)).code == "session_invalid"


async def test_a_session_is_narrowed_as_its_token_is(scene: Scene) -> None:
    token = scene.tokens.add("palyra_of-a-narrow-admin", Role.ADMIN, actions=("login", "me"))
    browser = await logged_in(scene, token)
    assert (await browser.ask("GET", "/api/v1/me")).json["actions"] == ["login", "me"]
    assert (await browser.ask("GET", ONE_RUN)).code == "scope_insufficient"


async def test_a_session_ends_when_idle_and_in_the_end_however_busy(scene: Scene) -> None:
    idle, busy = await logged_in(scene), await logged_in(scene)
    for _ in range(int(LIFE_S / IDLE_S * 2) - 1):
        scene.clock.at_s += IDLE_S / 2
        assert (await busy.ask("GET", ONE_RUN)).status == 200
    assert (await idle.ask("GET", ONE_RUN)).status == 401
    scene.clock.at_s += IDLE_S / 2
    assert (await busy.ask("GET", ONE_RUN)).status == 401


async def test_changing_something_by_cookie_needs_the_csrf_token(scene: Scene) -> None:
    browser, other = await logged_in(scene), await logged_in(scene)
    for given in ({}, {"x_csrf_token": ""}, {"x_csrf_token": "guessed"}, {"x_csrf_token": other.csrf_token}):
        refused = await browser.ask("POST", "/api/v1/runs", {"text": "go"}, **given)
        assert (refused.status, refused.code) == (403, "csrf_refused")
    done = await browser.ask("POST", "/api/v1/runs", {"text": "go"}, x_csrf_token=browser.csrf_token)
    assert done.status == 202
    assert (await browser.ask("GET", "/api/v1/me")).json["csrf_token"] == browser.csrf_token


async def test_a_bearer_token_wins_over_a_cookie_and_a_wrong_one_is_not_mended_by_it(scene: Scene) -> None:
    browser = await logged_in(scene)
    viewer = scene.tokens.add("palyra_of-a-viewer", Role.VIEWER)
    me = await browser.ask("GET", "/api/v1/me", authorization=f"Bearer {viewer}")
    assert me.json["role"] == "viewer"
    assert (await browser.ask("GET", "/api/v1/me", authorization="Bearer wrong")).status == 401


async def test_logging_out_ends_the_session_and_takes_the_cookie_back(scene: Scene) -> None:
    browser = await logged_in(scene)
    left = await browser.ask("POST", "/api/v1/logout", {}, x_csrf_token=browser.csrf_token)
    assert (left.status, left.headers["set-cookie"].startswith(f"{COOKIE}=; ")) == (204, True)
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert (await browser.ask("GET", ONE_RUN)).status == 401


async def test_logging_out_with_a_token_ends_nothing(scene: Scene) -> None:
    assert (await scene.ask("POST", "/api/v1/logout", {})).status == 204
    assert (await scene.ask("GET", ONE_RUN)).status == 200


@pytest.mark.parametrize("cookie", [f"{COOKIE}=", f"{COOKIE}=é", f"{COOKIE}={'x' * 9999}", f"{COOKIE}=wrong", "; ;=;"])
async def test_a_cookie_that_is_none_of_ours_is_refused(scene: Scene, cookie: str) -> None:
    assert (await scene.ask("GET", ONE_RUN, headers={"cookie": cookie}, token=None)).status == 401


async def test_another_daemons_cookie_on_this_machine_is_not_ours(scene: Scene) -> None:
    browser = await logged_in(scene)
    browser.cookie = browser.cookie.replace(COOKIE, "palyra_session_7143")
    assert (await browser.ask("GET", ONE_RUN)).code == "token_missing"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:8080"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": f"http://{HOST}", "sec_fetch_site": "cross-site"},
    ],
)
async def test_a_page_elsewhere_does_nothing_with_somebodys_cookie(scene: Scene, headers: dict[str, str]) -> None:
    """Not even with the CSRF token: a post, a read and a followed stream alike."""
    browser = await logged_in(scene)
    before = len(scene.asked)
    post = await browser.ask("POST", "/api/v1/runs", {"text": "go"}, x_csrf_token=browser.csrf_token, **headers)
    read = await browser.ask("GET", ONE_RUN, **headers)
    stream = await browser.ask("GET", f"{ONE_RUN}/events", **headers)
    assert [answer.status for answer in (post, read, stream)] == [403, 403, 403]
    assert len(scene.asked) == before


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
async def test_a_page_elsewhere_cannot_log_a_browser_in(scene: Scene, headers: dict[str, str]) -> None:
    code = await link_code(scene)
    assert (await scene.ask("POST", LOGIN, {"code": code}, headers, token=None)).status == 403
    assert (await scene.ask("POST", LOGIN, {"code": code}, token=None)).status == 200


async def test_a_rebound_name_does_nothing_with_somebodys_cookie(scene: Scene) -> None:
    browser = await logged_in(scene)
    rebound = {"host": "evil.example:7142", "origin": "http://evil.example:7142", "sec_fetch_site": "same-origin"}
    for method, path in (("GET", ONE_RUN), ("GET", f"{ONE_RUN}/events"), ("POST", "/api/v1/runs"), ("POST", LOGIN)):
        assert (await browser.ask(method, path, {}, x_csrf_token=browser.csrf_token, **rebound)).code == "host_refused"


async def test_the_page_runs_its_own_script_alone(scene: Scene) -> None:
    page = await scene.ask("GET", "/", token=None)
    policy = page.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in page.headers["content-security-policy"]
    assert re.findall(rb"<script[^>]*>(.*?)</script>", page.body) == [b""]
    assert not re.search(rb"\son\w+=|style=|javascript:", page.body)
    (source,) = re.findall(rb'<script src="([^"]+)"', page.body)
    script = await scene.ask("GET", source.decode(), token=None)
    assert script.headers["content-type"].startswith("text/javascript")
    for place in re.findall(rb'"(/api/v1/[\w-]+)"', script.body):
        assert (await scene.ask("GET", place.decode())).status in (200, 405)
    assert b"innerHTML" not in script.body


def test_codes_and_sessions_are_bounded_and_kept_by_their_hash() -> None:
    logins = ConsoleSessions(lambda: 0.0)
    codes = [logins.new_code("0" * 64) for _ in range(CODES_MAX + 1)]
    assert logins.redeem(codes[0]) is None
    assert logins.redeem(codes[-1]) == "0" * 64
    opened = [logins.open("0" * 64) for _ in range(SESSIONS_MAX + 1)]
    assert sum(logins.find(each.id) is not None for each in opened) == SESSIONS_MAX
    kept = str(vars(logins))
    assert not any(secret in kept for secret in (codes[1], opened[-1].id))
    assert hash_token(opened[-1].id) in kept
