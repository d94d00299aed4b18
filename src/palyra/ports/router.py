"""The Router port: which models a route has, their health, and the provider behind each.

Does not own: choosing a model (core.routing).
"""

from typing import Protocol

import msgspec

from palyra.core.events.model import ModelError, RouteMode
from palyra.ports.provider import Provider


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A configured model. Prices are per million tokens at the first tier; `price_source` says where they come from."""

    name: str
    provider: str
    kind: str
    id: str
    window_tokens: int | None = None
    max_output_tokens: int | None = None
    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None
    price_source: str = "unknown"
    vision: bool = False
    tools: bool = True
    health: str = "unknown"
    routes: tuple[str, ...] = ()
    is_default: bool = False


class RouteOption(msgspec.Struct, frozen=True):
    """A model that a route names; `known` is None when no such model is configured."""

    model: str
    known: ModelCard | None
    is_open: bool = False


class RouteOptions(msgspec.Struct, frozen=True):
    """The models of a route, in order of preference."""

    mode: RouteMode
    options: tuple[RouteOption, ...]


class Router(Protocol):
    def models(self) -> tuple[ModelCard, ...]: ...

    def options(self, route: str, wish: str | None) -> RouteOptions:
        """Returns the models of the agent's route, or of the run's own wish, which may be a model or a route."""
        ...

    def provider(self, model: str) -> Provider: ...

    def begin(self, model: str) -> None:
        """Notes that a call is about to be made; one of the next three methods then reports its outcome."""
        ...

    def succeed(self, model: str) -> None: ...

    def fail(self, model: str, code: ModelError) -> None: ...

    def abandon(self, model: str) -> None: ...

    def trip(self, model: str) -> None:
        """Leaves the model alone for a while, although no call to it has failed."""
        ...
