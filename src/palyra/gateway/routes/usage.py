"""The route of usage.

Owns: the form of the question and of the answer.
Does not own: the sums (engine.api.usage).
"""

from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from palyra.core.projections.usage import NANO
from palyra.engine.api.requests import UsageQuery
from palyra.gateway.http.responses import answer_json
from palyra.gateway.http.route import HttpCall, HttpRoute, Unread
from palyra.gateway.http.settings import PAGE_DEFAULT
from palyra.gateway.routes.bodies import PageLimit, RequestBody, cut_page, page_size
from palyra.ports.tokens import Role
from palyra.ports.views import UsageGroup, UsageSum

KEY_LENGTH_MAX = 512  # Of models, agents and principals.

Moment = Annotated[str, Meta(min_length=1, max_length=10)]
ZoneName = Annotated[str, Meta(min_length=1, max_length=64)]


class UsagePageQuery(RequestBody, frozen=True, kw_only=True):
    by: UsageGroup = UsageGroup.DAY
    since: Moment = "30d"
    until: Moment | None = None
    timezone: ZoneName = "UTC"
    everyone: bool = False
    after: Annotated[str, Meta(max_length=KEY_LENGTH_MAX)] = ""
    limit: PageLimit = PAGE_DEFAULT


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True):
    """`cost_usd` sums the calls whose price is known; it is null where there are calls and none has a known price."""

    calls_count: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cache_hit_share: float | None
    cost_usd: float | None
    unpriced_calls_count: int


class UsageItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`label` is there for sessions of the caller that have one."""

    key: str
    label: str | None = None
    calls_count: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cache_hit_share: float | None
    cost_usd: float | None
    unpriced_calls_count: int


class UsagePage(msgspec.Struct, frozen=True):
    """`totals` are over all pages."""

    items: tuple[UsageItem, ...]
    totals: UsageTotals
    next_after: str | None


async def show(call: HttpCall[UsagePageQuery, Unread]) -> Response:
    query, size = call.query, page_size(call.query.limit)
    is_everyone = query.everyone or query.by is UsageGroup.PRINCIPAL
    call.reader(is_everyone)
    asked = UsageQuery(
        by=query.by,
        since=query.since,
        until=query.until,
        timezone=query.timezone,
        is_everyone=is_everyone,
        after=query.after,
        limit=size + 1,
    )
    report = await call.services.engine.usage.report(call.principal, asked)
    page, next_after = cut_page(report.sums, size, attrgetter("key"))
    return answer_json(UsagePage(tuple(_item(found) for found in page), _totals(report.total), next_after))


def _item(found: UsageSum) -> UsageItem:
    return UsageItem(key=found.key, label=found.label, **msgspec.structs.asdict(_totals(found)))


def _totals(found: UsageSum) -> UsageTotals:
    is_unknown = 0 < found.calls_count == found.unpriced_count
    return UsageTotals(
        calls_count=found.calls_count,
        input_tokens=found.input_tokens,
        output_tokens=found.output_tokens,
        cached_tokens=found.cached_tokens,
        reasoning_tokens=found.reasoning_tokens,
        cache_hit_share=found.cached_tokens / found.input_tokens if found.input_tokens else None,
        cost_usd=None if is_unknown else found.cost_nano_usd / NANO,
        unpriced_calls_count=found.unpriced_count,
    )


ROUTES: tuple[HttpRoute, ...] = (
    HttpRoute("GET", "/api/v1/usage", "Tokens and cost, summed by day, model, session, agent, principal or channel",
              show, action="usage.read", others=Role.OPERATOR, answer=UsagePage),
)  # fmt: skip
