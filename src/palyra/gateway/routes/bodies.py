"""Shapes of requests and pages. Owns: every member a client may send, with its limits. Not: the engine's records.

Invariant: a member or parameter that is not named here is refused.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from palyra.core.events.base import JsonObject
from palyra.core.events.tool import ApprovalStatus, Decision, Scope
from palyra.core.projections.rows import SessionRow
from palyra.core.run.states import RunState
from palyra.engine.api.requests import (
    ATTACHMENTS_MAX,
    KEY_LENGTH_MAX,
    LABEL_LENGTH_MAX,
    NAME_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    ApprovalRecord,
    GrantRecord,
    RunRecord,
    WhenBusy,
)
from palyra.gateway.http.frames import WireEvent
from palyra.gateway.http.settings import CURSOR_MAX, JSON_BYTES_MAX, PAGE_ASKED_MAX, PAGE_DEFAULT, PAGE_MAX

MEDIA_TYPE_LENGTH_MAX = 128
REASON_LENGTH_MAX = 2000
MUST_CALL_MAX = 64
OPTION_MAX = 63
TTL_S_MAX = 30 * 24 * 3600  # A month; what should last longer is a policy and no grant.

Text = Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH_MAX)]
Label = Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
MediaType = Annotated[str, Meta(pattern=r"^[\w.+-]+/[\w.+-]+$", max_length=MEDIA_TYPE_LENGTH_MAX)]
UlidText = Annotated[str, Meta(pattern="^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
Sha256Text = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
PageLimit = Annotated[int, Meta(ge=1, le=PAGE_ASKED_MAX)]
Cursor = Annotated[int, Meta(ge=0, le=CURSOR_MAX)]
AfterId = Annotated[str, Meta(max_length=64)]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends."""


class SessionBody(RequestBody, frozen=True, kw_only=True):
    session_id: UlidText | None = None
    key: Key | None = None
    label: Label | None = None
    agent: Name | None = None
    reset: bool = False


class BranchBody(RequestBody, frozen=True, kw_only=True):
    at_seq: Annotated[int, Meta(ge=1, le=CURSOR_MAX)]
    label: Label | None = None


class LabelBody(RequestBody, frozen=True, kw_only=True):
    label: Label | None


class AttachmentBody(RequestBody, frozen=True, kw_only=True):
    """Either the id of an artifact, or the bytes themselves."""

    name: Name
    media_type: MediaType
    artifact_id: Sha256Text | None = None
    data_base64: Annotated[str, Meta(max_length=JSON_BYTES_MAX)] | None = None


class RunBody(RequestBody, frozen=True, kw_only=True):
    text: Text
    session_id: UlidText | None = None
    session_key: Key | None = None
    attachments: Annotated[tuple[AttachmentBody, ...], Meta(max_length=ATTACHMENTS_MAX)] = ()
    agent: Name | None = None
    model: Name | None = None
    idempotency_key: Key | None = None
    answer_schema: JsonObject | None = None
    must_call: Annotated[tuple[Name, ...], Meta(max_length=MUST_CALL_MAX)] = ()
    when_busy: WhenBusy = WhenBusy.QUEUE


class InputBody(RequestBody, frozen=True, kw_only=True):
    text: Text


class AnswerBody(RequestBody, frozen=True, kw_only=True):
    decision: Decision
    scope: Scope = Scope.ONCE
    option: Annotated[int, Meta(ge=0, le=OPTION_MAX)] | None = None
    ttl_s: Annotated[int, Meta(ge=1, le=TTL_S_MAX)] | None = None
    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX)] = ""
    end_run: bool = False


class PageQuery(RequestBody, frozen=True, kw_only=True):
    everyone: bool = False
    after: AfterId = ""
    limit: PageLimit = PAGE_DEFAULT


class RunsPageQuery(RequestBody, frozen=True, kw_only=True):
    session_id: UlidText | None = None
    state: RunState | None = None
    everyone: bool = False
    service: bool = False
    after: AfterId = ""
    limit: PageLimit = PAGE_DEFAULT


class ApprovalsPageQuery(RequestBody, frozen=True, kw_only=True):
    status: ApprovalStatus | None = None
    everyone: bool = False
    after: AfterId = ""
    limit: PageLimit = PAGE_DEFAULT


class TapeQuery(RequestBody, frozen=True, kw_only=True):
    after: Cursor = 0
    limit: PageLimit = PAGE_DEFAULT


class FeedQuery(RequestBody, frozen=True, kw_only=True):
    after: Cursor | None = None


class AllFeedQuery(RequestBody, frozen=True, kw_only=True):
    after: Cursor | None = None
    everyone: bool = False


class SessionPage(msgspec.Struct, frozen=True):
    items: tuple[SessionRow, ...]
    next_after: str | None


class RunPage(msgspec.Struct, frozen=True):
    items: tuple[RunRecord, ...]
    next_after: str | None


class ApprovalPage(msgspec.Struct, frozen=True):
    items: tuple[ApprovalRecord, ...]
    next_after: str | None


class GrantPage(msgspec.Struct, frozen=True):
    items: tuple[GrantRecord, ...]
    next_after: str | None


class TapePage(msgspec.Struct, frozen=True):
    events: tuple[WireEvent, ...]
    next_after: int | None


Item = TypeVar("Item")
Mark = TypeVar("Mark")


def page_size(limit: int) -> int:
    """What a page holds: as much as was asked for, up to what an answer may reasonably carry."""
    return min(limit, PAGE_MAX)


def cut_page(found: Sequence[Item], size: int, mark: Callable[[Item], Mark]) -> tuple[tuple[Item, ...], Mark | None]:
    """A page of what was found by asking for one more than it holds; that one tells whether there is a next page."""
    items = tuple(found[:size])
    return items, mark(items[-1]) if len(found) > size else None
