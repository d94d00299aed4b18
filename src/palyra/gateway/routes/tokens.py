"""Routes of tokens.

Owns: listing, issuing, revoking and rotating tokens over HTTP, and the same acts for commands without a daemon.
Does not own: the files they are stored in (adapters.tokens).
Invariants: every act is on record before it is done. A token is in the answer that issues it and nowhere else: not in a
list, a log, or the record of the act.
"""

import asyncio
import secrets
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.errors import Invalid, NotFound, Unauthorized
from palyra.core.events.system import AdminActed
from palyra.core.ids import Principal, parse_principal
from palyra.gateway.access.caller import Caller
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import PAGE_DEFAULT
from palyra.gateway.routes.bodies import PageLimit, RequestBody, cut_page, page_size
from palyra.ports.tokens import (
    ACTIONS_MAX,
    ADMIN_TOKEN_ID,
    LABEL_LENGTH_MAX,
    Role,
    Speaks,
    TokenRegister,
    TokenRow,
    state_of,
)

TTL_S_MIN = 60
TTL_S_MAX = 10 * 366 * 24 * 3600
_ID_RANDOM_BYTES = 8

TokenLabel = Annotated[str, Meta(max_length=LABEL_LENGTH_MAX)]
ActionName = Annotated[str, Meta(pattern=r"^[a-z_]+(\.[a-z_]+)?$", max_length=64)]


class TokenBody(RequestBody, frozen=True, kw_only=True):
    """`actions` narrow the role: `runs` for all there is to do with runs, `approvals.answer` for that alone.

    `speaks` says who writes what is said with the token. Without it, MCP counts as a program and all else as a person.
    """

    principal: Annotated[str, Meta(min_length=1, max_length=512)]
    role: Role
    label: TokenLabel = ""
    ttl_s: Annotated[int, Meta(ge=TTL_S_MIN, le=TTL_S_MAX)] | None = None
    actions: Annotated[tuple[ActionName, ...], Meta(max_length=ACTIONS_MAX)] = ()
    speaks: Speaks | None = None


class TokenPageQuery(RequestBody, frozen=True, kw_only=True):
    after: Annotated[str, Meta(max_length=64)] = ""
    limit: PageLimit = PAGE_DEFAULT


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`last_used_at_ms` is to the minute; null where it was never used, or not yet noted. So is `speaks` if nobody said it."""

    id: str
    principal: Principal
    role: Role
    label: str
    actions: tuple[str, ...]
    created_at_ms: int
    expires_at_ms: int | None
    last_used_at_ms: int | None
    state: str
    speaks: Speaks | None = None


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    """`token` is shown this once."""

    token: str
    record: TokenRecord


class TokenPage(msgspec.Struct, frozen=True):
    items: tuple[TokenRecord, ...]
    next_after: str | None


class RotatedToken(msgspec.Struct, frozen=True):
    token: str


async def list_tokens(call: HttpCall[TokenPageQuery, Unread]) -> Response:
    size, credentials = page_size(call.query.limit), call.services.credentials
    records = await asyncio.to_thread(token_records, credentials.register, credentials.clock.now_ms())
    following = [record for record in sorted(records, key=attrgetter("id")) if record.id > call.query.after]
    return answer_json(TokenPage(*cut_page(following[: size + 1], size, attrgetter("id"))))


async def issue(call: HttpCall[Empty, TokenBody]) -> Response:
    credentials = call.services.credentials
    now_ms = credentials.clock.now_ms()
    row = make_row(call.body, now_ms, frozenset(route_actions(call.services.actions)))
    _require_no_more(call.caller, row.actions)
    await call.services.engine.acts.record(call.principal, act_of_issue(row))
    token = await asyncio.to_thread(credentials.register.issue, row)
    return answer_json(IssuedToken(token=token, record=token_record(row, None, now_ms)), 201)


async def revoke(call: HttpCall[Empty, Unread]) -> Response:
    credentials, token_id = call.services.credentials, call.path["token_id"]
    row = require_issued(await asyncio.to_thread(credentials.register.rows), token_id)
    await call.services.engine.acts.record(call.principal, act_of_revoke(row))
    revoked = await asyncio.to_thread(credentials.register.revoke, row.id)
    call.services.slots.end_of(row.id)
    return answer_json(token_record(revoked, None, credentials.clock.now_ms()))


def _require_no_more(caller: Caller, actions: tuple[str, ...]) -> None:
    """A narrowed token issues no token that may do more than itself."""
    if caller.actions and not (actions and set(actions) <= set(caller.actions)):
        allowed = ", ".join(caller.actions)
        raise Unauthorized("actions_exceeded", f"this token may hand out tokens for these actions only: {allowed}")


async def rotate_admin(call: HttpCall[Empty, Empty]) -> Response:
    if call.caller.actions:
        raise Unauthorized("actions_exceeded", "a token limited to some actions may not replace the admin token")
    credentials = call.services.credentials
    await call.services.engine.acts.record(call.principal, ACT_OF_ROTATE)
    token = await asyncio.to_thread(credentials.register.rotate_admin)
    call.services.slots.end_of(ADMIN_TOKEN_ID)
    return answer_json(RotatedToken(token))


ACT_OF_ROTATE = AdminActed(action="tokens.rotate", target=ADMIN_TOKEN_ID, detail="the node's admin token is replaced")


def act_of_issue(row: TokenRow) -> AdminActed:
    until = "without end" if row.expires_at_ms is None else f"until {row.expires_at_ms} ms"
    narrowed = f", for {', '.join(row.actions)} alone" if row.actions else ""
    narrowed += f", spoken by a {row.speaks.value}" if row.speaks is not None else ""
    return AdminActed(
        action="tokens.issue", target=row.id, detail=f"for {row.principal} as {row.role.value}, {until}{narrowed}"
    )


def act_of_revoke(row: TokenRow) -> AdminActed:
    return AdminActed(action="tokens.revoke", target=row.id, detail=f"of {row.principal} as {row.role.value}")


def make_row(body: TokenBody, now_ms: int, known: frozenset[str]) -> TokenRow:
    """The row of a token to be issued; Invalid for a principal or an action there cannot be."""
    principal = parse_principal(body.principal)
    if principal.startswith("system:"):
        raise Invalid("principal_invalid", "tokens are for people, channels and agents; system: is the daemon itself")
    unknown = sorted(set(body.actions) - known)
    if unknown:
        raise Invalid(
            "action_unknown", f"there is no action {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    if not body.label.isprintable():
        raise Invalid("label_invalid", "a label has no control characters")
    return TokenRow(
        id=secrets.token_hex(_ID_RANDOM_BYTES),
        hash="",
        principal=principal,
        role=body.role,
        created_at_ms=now_ms,
        expires_at_ms=None if body.ttl_s is None else now_ms + body.ttl_s * 1000,
        label=body.label,
        actions=body.actions,
        speaks=body.speaks,
    )


def route_actions(actions: frozenset[str]) -> frozenset[str]:
    """What a token can be narrowed to: each action, and each noun for all of its actions."""
    return actions | {action.partition(".")[0] for action in actions}


def require_issued(rows: tuple[TokenRow, ...], token_id: str) -> TokenRow:
    if token_id == ADMIN_TOKEN_ID:
        raise Invalid(
            "token_is_admin", "the node's own admin token is not revoked but replaced: palyra tokens rotate-admin"
        )
    found = next((row for row in rows if row.id == token_id), None)
    if found is None:
        raise NotFound("token_unknown", "there is no token of that id; palyra tokens list shows them")
    return found


def token_records(register: TokenRegister, now_ms: int) -> tuple[TokenRecord, ...]:
    uses = register.last_uses()
    return tuple(token_record(row, uses.get(row.id), now_ms) for row in register.rows())


def token_record(row: TokenRow, last_used_at_ms: int | None, now_ms: int) -> TokenRecord:
    return TokenRecord(
        id=row.id,
        principal=row.principal,
        role=row.role,
        label=row.label,
        actions=row.actions,
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        last_used_at_ms=last_used_at_ms,
        state=state_of(row, now_ms),
        speaks=row.speaks,
    )


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/tokens", "List tokens, in the order of their ids; never the tokens themselves",
              list_tokens, action="tokens.list", answer=TokenPage, role=Role.ADMIN),
    HttpRoute("POST", "/api/v1/tokens", "Issue a token; this answer is the only place it is ever shown",
              issue, action="tokens.issue", answer=IssuedToken, status=201, role=Role.ADMIN),
    HttpRoute("DELETE", "/api/v1/tokens/{token_id}",
              "Revoke a token; it is refused from the next request on, and its streams end",
              revoke, action="tokens.revoke", answer=TokenRecord, role=Role.ADMIN),
    HttpRoute("POST", "/api/v1/tokens/rotate-admin",
              "Replace the node's own admin token; console sessions opened with the old one end",
              rotate_admin, action="tokens.rotate", answer=RotatedToken, role=Role.ADMIN),
)  # fmt: skip
