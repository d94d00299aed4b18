"""Routes over the configured models: which models a route has, in which order, and their health.

Does not own: choosing a model (core.routing).
Health lives in this process's memory: after a restart every model counts as healthy.
"""

from collections.abc import Callable, Mapping
from functools import cache

import msgspec
from msgspec.structs import replace

from palyra.core.breaker import Breaker, ModelHealth, abandon, begin, fail, health, succeed, trip
from palyra.core.errors import Invalid
from palyra.core.events.model import ModelError, RouteMode
from palyra.ports.clock import Clock
from palyra.ports.provider import Provider
from palyra.ports.router import ModelCard, RouteOption, RouteOptions

DEFAULT_ROUTE = ""


class ModelRoute(msgspec.Struct, frozen=True):
    """Models in order of preference."""

    models: tuple[str, ...]
    mode: RouteMode = RouteMode.ENFORCED


class RouteTable:
    """`routes` by name; the empty name is the default, which an agent without its own route takes."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        routes: Mapping[str, ModelRoute],
        clock: Clock,
        describe: Callable[[str], ModelCard] | None = None,
    ) -> None:
        unknown = sorted({name for route in routes.values() for name in route.models} - set(providers))
        default = routes.get(DEFAULT_ROUTE)
        if unknown or default is None or not default.models:
            raise Invalid("route_invalid", f"there is no default route, or these models have no provider: {unknown}")
        self._providers = dict(providers)
        self._routes = dict(routes)
        self._clock = clock
        # Described when first needed: price data takes a while to load, and the daemon must be ready before.
        self._describe = cache(describe or _bare)
        self._breakers: dict[str, Breaker] = {}

    def models(self) -> tuple[ModelCard, ...]:
        now_ms = self._clock.now_ms()
        default = self._routes[DEFAULT_ROUTE].models[0]
        return tuple(
            replace(
                self._describe(name),
                health=health(self._breaker(name), now_ms).value,
                routes=tuple(sorted(route for route, to in self._routes.items() if route and name in to.models)),
                is_default=name == default,
            )
            for name in self._providers
        )

    def options(self, route: str, wish: str | None) -> RouteOptions:
        now_ms = self._clock.now_ms()
        wanted = self._wanted(route, wish)
        return RouteOptions(wanted.mode, tuple(self._option(name, now_ms) for name in wanted.models))

    def put(self, model: str, provider: Provider) -> None:
        """Replaces what answers for a model."""
        self._providers[model] = provider

    def provider(self, model: str) -> Provider:
        return self._providers[model]

    def begin(self, model: str) -> None:
        self._breakers[model] = begin(self._breaker(model), self._clock.now_ms())

    def succeed(self, model: str) -> None:
        self._breakers[model] = succeed(self._breaker(model))

    def fail(self, model: str, code: ModelError) -> None:
        self._breakers[model] = fail(self._breaker(model), code, self._clock.now_ms())

    def abandon(self, model: str) -> None:
        self._breakers[model] = abandon(self._breaker(model))

    def trip(self, model: str) -> None:
        self._breakers[model] = trip(self._breaker(model), self._clock.now_ms())

    def _wanted(self, route: str, wish: str | None) -> ModelRoute:
        if wish is not None:
            return self._routes.get(wish) or ModelRoute((wish,))
        return self._routes.get(route) or self._routes[DEFAULT_ROUTE]

    def _option(self, name: str, now_ms: int) -> RouteOption:
        if name not in self._providers:
            return RouteOption(name, None)
        state = health(self._breaker(name), now_ms)
        return RouteOption(name, replace(self._describe(name), health=state.value), state is ModelHealth.OPEN)

    def _breaker(self, model: str) -> Breaker:
        return self._breakers.get(model, Breaker())


def _bare(name: str) -> ModelCard:
    return ModelCard(name=name, provider=name, kind="", id=name)
