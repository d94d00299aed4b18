"""Routes of channels, pairing and the outbox.

Owns: listing, testing and pausing channels, codes and links, stuck messages, and the way in for platforms.
Does not own: what becomes of a message (engine.channels), what a signature must be (adapters.channels).
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.channels.identity import AccountLink
from palyra.core.channels.outbox import OutboxState
from palyra.core.channels.pairing_codes import PairingCode, shown_code
from palyra.core.ids import parse_principal
from palyra.engine.api.channels import ChannelRecord
from palyra.engine.api.outbox import OutboxRecord
from palyra.engine.channels.pairing_service import CodeWish
from palyra.gateway.access.roles import require_role_within
from palyra.gateway.http.request_reader import read_body
from palyra.gateway.http.responses import BASE_HEADERS, answer_json
from palyra.gateway.http.route import Empty, HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import PAGE_DEFAULT
from palyra.gateway.routes.bodies import Cursor, Name, PageLimit, RequestBody, cut_page, page_size
from palyra.ports.channels import HttpReply, HttpRequestPart
from palyra.ports.tokens import Role

INBOUND_BYTES_MAX = 1024 * 1024
INBOUND_TIMEOUT_S = 30.0
PrincipalText = Annotated[str, Meta(min_length=1, max_length=256)]


class CodeBody(RequestBody, frozen=True, kw_only=True):
    """What you have in mind for whoever uses the code. You confirm it when the account asks to be linked."""

    channel: Name | None = None
    principal: PrincipalText | None = None
    role: Role | None = None


class CodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is shown once, when it is issued."""

    id: str
    channel: str | None
    principal: str | None
    role: str | None
    made_by: str
    created_at_ms: int
    expires_at_ms: int
    code: str | None = None


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    channel: str
    sender_id: str
    display: str
    principal: str
    role: str
    made_by: str
    created_at_ms: int
    expires_at_ms: int
    revoked_at_ms: int | None


class ChannelPage(msgspec.Struct, frozen=True):
    items: tuple[ChannelRecord, ...]
    next_after: str | None


class CodePage(msgspec.Struct, frozen=True):
    items: tuple[CodeRecord, ...]
    next_after: str | None


class LinkPage(msgspec.Struct, frozen=True):
    items: tuple[LinkRecord, ...]
    next_after: str | None


class OutboxPage(msgspec.Struct, frozen=True):
    items: tuple[OutboxRecord, ...]
    next_after: int | None


class TestRecord(msgspec.Struct, frozen=True):
    """`known_as` is our name on the platform. A webhook has none; `note` says what was found instead."""

    ok: bool
    known_as: str | None
    note: str


class InboundRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """`duplicate` says that this delivery was taken before; then nothing else is said."""

    accepted: bool | msgspec.UnsetType = msgspec.UNSET
    run_id: str | msgspec.UnsetType | None = msgspec.UNSET
    duplicate: bool | msgspec.UnsetType = msgspec.UNSET


class ListQuery(RequestBody, frozen=True, kw_only=True):
    after: str = ""
    limit: PageLimit = PAGE_DEFAULT


class LinksQuery(RequestBody, frozen=True, kw_only=True):
    channel: Name | None = None
    after: str = ""
    limit: PageLimit = PAGE_DEFAULT


class OutboxQuery(RequestBody, frozen=True, kw_only=True):
    """`after` is the number of the last item of the page before."""

    channel: Name | None = None
    state: OutboxState | None = None
    after: Cursor = 0
    limit: PageLimit = PAGE_DEFAULT


async def list_channels(call: HttpCall[ListQuery, Unread]) -> Response:
    found = sorted(await call.services.engine.channels.list(), key=lambda record: record.name)
    after = [record for record in found if record.name > call.query.after]
    return answer_json(ChannelPage(*cut_page(after, page_size(call.query.limit), lambda record: str(record.name))))


async def show(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(await call.services.engine.channels.get(call.path["name"]))


async def pause(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(await call.services.engine.channels.pause(call.principal, call.path["name"]))


async def resume(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(await call.services.engine.channels.resume(call.principal, call.path["name"]))


async def test(call: HttpCall[Empty, Empty]) -> Response:
    found = await call.services.engine.channels.check(call.path["name"])
    return answer_json(TestRecord(True, found.known_as, found.note))


async def inbound(call: HttpCall[Empty, Unread]) -> Response:
    """Takes a request of a platform, which proves itself by its signature."""
    with call.services.unproven.holding() as hold:
        body = await read_body(call.request, INBOUND_BYTES_MAX, hold)
    headers = {name.lower(): value for name, value in call.request.headers.items()}
    request = HttpRequestPart(headers=headers, body=body, now_s=call.services.credentials.clock.now_ms() // 1000)
    taken = await call.services.engine.channels.receive_request(call.path["name"], request)
    if isinstance(taken, HttpReply):
        return Response(taken.body, 200, BASE_HEADERS, taken.media_type)
    if taken and all(receipt.is_duplicate for receipt in taken):
        return answer_json(InboundRecord(duplicate=True))
    first = next((receipt for receipt in taken if receipt.is_accepted), None)
    return answer_json(InboundRecord(first is not None, first.run_id if first is not None else None), 202)


async def list_codes(call: HttpCall[ListQuery, Unread]) -> Response:
    engine = call.services.engine
    found = await engine.pairing.views.codes(engine.pairing.clock.now_ms())
    after = [_code(code) for code in found if code.id > call.query.after]
    return answer_json(CodePage(*cut_page(after, page_size(call.query.limit), lambda record: str(record.id))))


async def issue_code(call: HttpCall[Empty, CodeBody]) -> Response:
    body, engine = call.body, call.services.engine
    require_role_within(call.caller.role, body.role)
    if body.channel is not None:
        engine.directory.get(body.channel)
    wish = CodeWish(
        channel=body.channel,
        principal=None if body.principal is None else parse_principal(body.principal),
        role=None if body.role is None else body.role.value,
    )
    code, letters = await engine.pairing.issue(call.principal, wish)
    return answer_json(msgspec.structs.replace(_code(code), code=shown_code(letters)), 201)


async def list_links(call: HttpCall[LinksQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    found = await call.services.engine.pairing.views.links(query.channel, query.after, size + 1)
    return answer_json(LinkPage(*cut_page([_link(each) for each in found], size, lambda record: str(record.id))))


async def revoke_link(call: HttpCall[Empty, Unread]) -> Response:
    return answer_json(_link(await call.services.engine.pairing.revoke(call.path["link"], call.principal)))


async def list_outbox(call: HttpCall[OutboxQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    states = () if query.state is None else (query.state,)
    found = await call.services.engine.outbox.list(query.channel, states, query.after, size + 1)
    return answer_json(OutboxPage(*cut_page(list(found), size, lambda record: record.number)))


async def replay(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(await call.services.engine.outbox.replay(call.principal, call.path["item"]))


async def discard(call: HttpCall[Empty, Empty]) -> Response:
    return answer_json(await call.services.engine.outbox.discard(call.principal, call.path["item"]))


def _code(code: PairingCode) -> CodeRecord:
    return msgspec.convert(code, CodeRecord, from_attributes=True)


def _link(link: AccountLink) -> LinkRecord:
    return msgspec.convert(link, LinkRecord, from_attributes=True)


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/channels", "List channels with their state",
              list_channels, action="channels.list", answer=ChannelPage, role=Role.OPERATOR),
    HttpRoute("GET", "/api/v1/channels/{name}", "Show a channel",
              show, action="channels.read", answer=ChannelRecord, role=Role.OPERATOR),
    HttpRoute("POST", "/api/v1/channels/{name}/pause", "Take nothing in and send nothing, until the channel is resumed",
              pause, action="channels.pause", answer=ChannelRecord, role=Role.OPERATOR),
    HttpRoute("POST", "/api/v1/channels/{name}/resume", "Resume a paused channel",
              resume, action="channels.resume", answer=ChannelRecord, role=Role.OPERATOR),
    HttpRoute("POST", "/api/v1/channels/{name}/test",
              "Try a channel's token, or a webhook's address, and say what was found",
              test, action="channels.test", answer=TestRecord, role=Role.OPERATOR, errors=(503,)),
    HttpRoute("POST", "/api/v1/channels/{name}/inbound",
              "Take a request of a platform or a webhook, which is signed; see docs/channels.md",
              inbound, action="channels.inbound", answer=InboundRecord, status=202, errors=(413,),
              timeout_s=INBOUND_TIMEOUT_S, is_signed=True),
    HttpRoute("GET", "/api/v1/pairing/codes", "List pairing codes that can still be used, without their letters",
              list_codes, action="pairing.list", answer=CodePage, role=Role.OPERATOR),
    HttpRoute("POST", "/api/v1/pairing/codes", "Issue a pairing code; its letters are shown once",
              issue_code, action="pairing.issue", answer=CodeRecord, status=201, role=Role.OPERATOR, errors=(404, 409)),
    HttpRoute("GET", "/api/v1/pairing/links", "List accounts that are linked to a principal",
              list_links, action="pairing.list", answer=LinkPage, role=Role.OPERATOR),
    HttpRoute("DELETE", "/api/v1/pairing/links/{link}", "Revoke the link of an account",
              revoke_link, action="pairing.revoke", answer=LinkRecord, role=Role.OPERATOR, errors=(409,)),
    HttpRoute("GET", "/api/v1/outbox", "List messages that go out, in their order",
              list_outbox, action="outbox.list", answer=OutboxPage, role=Role.OPERATOR),
    HttpRoute("POST", "/api/v1/outbox/{item}/replay", "Send a dead or uncertain message again",
              replay, action="outbox.replay", answer=OutboxRecord, role=Role.OPERATOR, errors=(409,)),
    HttpRoute("POST", "/api/v1/outbox/{item}/discard", "Give a dead or uncertain message up",
              discard, action="outbox.discard", answer=OutboxRecord, role=Role.OPERATOR, errors=(409,)),
)  # fmt: skip
