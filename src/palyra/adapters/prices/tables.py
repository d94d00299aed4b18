"""Prices of models: the configured ones, and those of the bundled price data for known vendors.

Does not own: any look-up online, which does not happen.
A model behind a vendor's own address is looked up under that vendor. Behind any other address it is looked up by its
name at the vendor of the wire format, because proxies keep the names. A model that is not found has an unknown price,
which is not the same as free.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from palyra.core.events.model import Usage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

NANO_PER_USD = 1_000_000_000
NANO_PER_USD_PER_MTOK = 1_000  # One dollar for a million tokens is a thousand billionths for one token.
VENDORS = {"openai-chat": "openai", "openai-responses": "openai", "anthropic-messages": "anthropic"}
FREE_KINDS = frozenset({"demo", "local"})
_ALIASES = {"google-gla": "google", "google-vertex": "google", "bedrock": "aws", "grok": "x-ai"}


class _Place(NamedTuple):
    """A model in the bundled data, found by its vendor or by the address it is served from."""

    model: str
    vendor: str | None
    url: str | None
    window_tokens: int | None = None


class PricedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model before its price is looked up."""

    kind: str
    id: str
    base_url: str | None = None
    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None
    cached_input_usd_per_mtok: float | None = None

    @property
    def is_configured(self) -> bool:
        return self.input_usd_per_mtok is not None and self.output_usd_per_mtok is not None


class PriceTables:
    def __init__(self, listings: Mapping[str, PricedModel]) -> None:
        self._listings = dict(listings)

    def cost_nano_usd(self, model: str, usage: Usage) -> int | None:
        listing = self._listings.get(model)
        if listing is None:
            return None
        if listing.is_configured:
            return _configured_cost(listing, usage)
        if listing.kind in FREE_KINDS:
            return 0
        place = _find(listing.kind, listing.id, listing.base_url)
        return None if place is None else _exact_cost(place, usage)

    def source(self, model: str) -> str:
        listing = self._listings.get(model)
        if listing is None:
            return "unknown"
        if listing.is_configured:
            return "configured"
        if listing.kind in FREE_KINDS:
            return "free"
        return "unknown" if _find(listing.kind, listing.id, listing.base_url) is None else "known"

    def window_tokens(self, model: str) -> int | None:
        listing = self._listings.get(model)
        place = None if listing is None else _find(listing.kind, listing.id, listing.base_url)
        return None if place is None else place.window_tokens


def _configured_cost(listing: PricedModel, usage: Usage) -> int:
    input_price, output_price = listing.input_usd_per_mtok or 0.0, listing.output_usd_per_mtok or 0.0
    cached_price = listing.cached_input_usd_per_mtok
    cached = min(usage.cached_tokens, usage.input_tokens) if cached_price is not None else 0
    fresh = usage.input_tokens - cached
    total = fresh * input_price + cached * (cached_price or 0.0) + usage.output_tokens * output_price
    return round(total * NANO_PER_USD_PER_MTOK)


def _exact_cost(place: _Place, usage: Usage) -> int:
    """Returns the cost by the bundled data's own rules, tiers included.

    The computation takes half a millisecond, so frequent results are cached.
    """
    cached = min(usage.cached_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - cached)
    return _calculate(place, usage.input_tokens, usage.output_tokens, cached, written)


@lru_cache(maxsize=4096)
def _calculate(place: _Place, input_tokens: int, output_tokens: int, cached: int, written: int) -> int:
    from genai_prices import Usage as TheirUsage

    usage = TheirUsage(
        input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached, cache_write_tokens=written
    )
    return int((_ask(place, usage).total_price * NANO_PER_USD).to_integral_value())


def _ask(place: _Place, usage: object) -> "PriceCalculation":
    from genai_prices import calc_price

    if place.url is not None:
        return calc_price(usage, place.model, provider_api_url=place.url)
    return calc_price(usage, place.model, provider_id=place.vendor)


@lru_cache(maxsize=256)
def _find(kind: str, model_id: str, base_url: str | None) -> _Place | None:
    """Returns where the bundled data has this model, or None."""
    from genai_prices import Usage as TheirUsage

    if kind == "pydantic-ai":
        vendor, _, name = model_id.partition(":")
    else:
        vendor, name = VENDORS.get(kind, ""), model_id
    places = [_Place(name, None, base_url)] if base_url else []
    places += [_Place(name, _ALIASES.get(vendor, vendor), None)] if vendor else []
    for place in places:
        with suppress(LookupError):
            found = _ask(place, TheirUsage(input_tokens=1, output_tokens=1))
            return place._replace(window_tokens=found.model.context_window)
    return None
