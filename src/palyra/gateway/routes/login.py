"""Routes of logging in to the console.

Owns: exchanging a single-use code for a cookie, the script that does it, and logging out.
Does not own: codes and sessions (access.console_sessions).
Invariants: a code travels in the fragment of a link, which no browser sends anywhere; the page's script posts it. The
cookie is HttpOnly and SameSite=Strict, and Secure under TLS. A change made with it needs the CSRF token too.
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from palyra.core.errors import Unauthorized
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal
from palyra.gateway.access.console_sessions import CODE_LIFE_S, LIFE_S
from palyra.gateway.http.request_access import cookie_name
from palyra.gateway.http.responses import BASE_HEADERS, answer_json, answer_nothing
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.routes.bodies import RequestBody
from palyra.ports.tokens import Role, Speaks, is_valid

SCRIPT_PATH = "/login.js"
CODE_LENGTH_MAX = 128

_SCRIPT = """"use strict";
const says = (text) => { document.getElementById("says").textContent = text; };
const known = (who) =>
  says(`You are logged in as ${who.principal} (${who.role}). The console itself comes with a later release.`);
const ask = async (path, options) => {
  const answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error.message);
  return body;
};
// The place of the console's card. Nothing of the question is fetched: the commands show it to whoever may see it.
const question = (/^#\\/approvals\\/([0-9A-HJKMNP-TV-Z]{26})$/.exec(location.hash) || [])[1];
const showQuestion = () => {
  const commands = ["show", "allow", "deny"].map((verb) => `palyra approvals ${verb} ${question}`);
  document.getElementById("commands").textContent = commands.join("\\n");
  document.getElementById("question").hidden = false;
};
if (question) showQuestion();
addEventListener("hashchange", () => location.reload());
const begin = async () => {
  const code = new URLSearchParams(location.hash.slice(1)).get("login");
  if (!question) history.replaceState(null, "", location.pathname);
  const body = JSON.stringify({ code });
  const headers = { "content-type": "application/json" };
  known(await (code ? ask("/api/v1/login", { method: "POST", headers, body }) : ask("/api/v1/me")));
};
begin().catch((cause) => says(`Not logged in: ${cause.message}`));
"""


class LoginBody(RequestBody, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=CODE_LENGTH_MAX)]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the caller is to the daemon. `csrf_token` is of the console session; null for one that sends a token.

    `speaks` is what the token was made for, null if nobody said it: MCP counts as a program then, all else as a person.
    """

    principal: Principal
    role: Role
    actions: tuple[str, ...]
    csrf_token: str | None
    speaks: Speaks | None = None


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    """`path` comes behind the daemon's address; it works once, and for so long."""

    path: str
    valid_for_s: int


async def log_in(call: HttpCall[Empty, LoginBody]) -> Response:
    credentials = call.services.credentials
    token_hash = credentials.logins.redeem(call.body.code)
    row = await credentials.tokens.find(token_hash) if token_hash is not None else None
    if token_hash is None or row is None or not is_valid(row, credentials.clock.now_ms()):
        raise Unauthorized("login_invalid", "the link was used already or is too old; palyra login-link makes another")
    await call.services.engine.acts.record(row.principal, AdminActed(action="login.begin", target=row.id))
    opened = credentials.logins.open(token_hash)
    csrf_token = opened.session.csrf_token
    who = Identity(
        principal=row.principal, role=row.role, actions=row.actions, csrf_token=csrf_token, speaks=row.speaks
    )
    return answer_json(who, 200, {"set-cookie": _cookie(call.request, opened.id, int(LIFE_S))})


async def log_out(call: HttpCall[Empty, Empty]) -> Response:
    """With a bearer token there is nothing to end."""
    answer = answer_nothing()
    if call.caller.session is not None:
        call.services.credentials.logins.close(call.caller.session)
        answer.headers["set-cookie"] = _cookie(call.request, "", 0)
    return answer


async def make_link(call: HttpCall[Empty, Empty]) -> Response:
    caller = call.caller
    await call.services.engine.acts.record(call.principal, AdminActed(action="login.link", target=caller.token_id))
    code = call.services.credentials.logins.new_code(caller.token_hash)
    return answer_json(LoginLink(path=link_path(code), valid_for_s=int(CODE_LIFE_S)), 201)


async def show_me(call: HttpCall[Empty, Unread]) -> Response:
    caller = call.caller
    csrf_token = caller.session.csrf_token if caller.session is not None else None
    who = Identity(
        principal=caller.principal,
        role=caller.role,
        actions=caller.actions,
        csrf_token=csrf_token,
        speaks=caller.speaks,
    )
    return answer_json(who)


async def script(call: HttpCall[Empty, Unread]) -> Response:
    return Response(_SCRIPT, 200, BASE_HEADERS, "text/javascript")


def link_path(code: str) -> str:
    return f"/#login={code}"


def _cookie(request: Request, value: str, life_s: int) -> str:
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    return f"{cookie_name(request)}={value}; Path=/; Max-Age={life_s}; HttpOnly; SameSite=Strict{secure}"


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", SCRIPT_PATH, "The script of the front page, which exchanges a log-in link's code",
              script, action="daemon.front", media_types=("text/javascript",), is_public=True),
    HttpRoute("POST", "/api/v1/login",
              "Exchange a link's code for a console session; the cookie is in the answer's head",
              log_in, action="login.begin", answer=Identity, errors=(400, 401, 403, 429, 503), is_public=True),
    HttpRoute("POST", "/api/v1/logout", "End the console session that asks",
              log_out, action="login.end", status=204),
    HttpRoute("POST", "/api/v1/login-link", "Make a single-use link that logs a browser in as the caller",
              make_link, action="login.link", answer=LoginLink, status=201, role=Role.ADMIN),
    HttpRoute("GET", "/api/v1/me", "Who the caller is, with the CSRF token of a console session",
              show_me, action="me.read", answer=Identity),
)  # fmt: skip
