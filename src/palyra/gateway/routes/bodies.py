"""Types and pages that the routes of several nouns share.

Owns: the limits of texts, names, ids and cursors, and cutting a page.
Does not own: the bodies of one noun (its own module), the engine's records (engine.api.requests).
Invariant: an unknown member or parameter is refused.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from palyra.engine.api.requests import KEY_LENGTH_MAX, LABEL_LENGTH_MAX, NAME_LENGTH_MAX, TEXT_LENGTH_MAX
from palyra.gateway.http.settings import CURSOR_MAX, PAGE_ASKED_MAX, PAGE_DEFAULT, PAGE_MAX

MEDIA_TYPE_LENGTH_MAX = 128
REASON_LENGTH_MAX = 2000

Text = Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=KEY_LENGTH_MAX)]
Label = Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
MediaType = Annotated[str, Meta(pattern=r"^[\w.+-]+/[\w.+-]+$", max_length=MEDIA_TYPE_LENGTH_MAX)]
# A checkpoint of a compaction has an id that is derived from its place.
MarkText = Annotated[str, Meta(pattern="^[0-9A-HJKMNP-TV-Z]{26}$")]
UlidText = Annotated[str, Meta(pattern="^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
Sha256Text = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
PageLimit = Annotated[int, Meta(ge=1, le=PAGE_ASKED_MAX)]
Cursor = Annotated[int, Meta(ge=0, le=CURSOR_MAX)]
AfterId = Annotated[str, Meta(max_length=64)]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client sends."""


class PageQuery(RequestBody, frozen=True, kw_only=True):
    everyone: bool = False
    after: AfterId = ""
    limit: PageLimit = PAGE_DEFAULT


class FeedQuery(RequestBody, frozen=True, kw_only=True):
    after: Cursor | None = None


Item = TypeVar("Item")
Mark = TypeVar("Mark")


def page_size(limit: int) -> int:
    """What a page holds: as much as was asked for, up to what an answer may reasonably carry."""
    return min(limit, PAGE_MAX)


def cut_page(found: Sequence[Item], size: int, mark: Callable[[Item], Mark]) -> tuple[tuple[Item, ...], Mark | None]:
    """A page of what was found by asking for one more than it holds; that one tells whether there is a next page."""
    items = tuple(found[:size])
    return items, mark(items[-1]) if len(found) > size else None
