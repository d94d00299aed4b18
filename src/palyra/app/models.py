"""Wiring of models. Owns: which provider stands behind which configured model, and where its key comes from. Not: routing."""

import os
from collections.abc import Callable

from palyra.adapters.clock import SystemClock
from palyra.adapters.net.client import HttpClient, Timeouts
from palyra.adapters.providers.anthropic_messages import AnthropicMessages
from palyra.adapters.providers.attempts import Pace
from palyra.adapters.providers.demo import DemoProvider
from palyra.adapters.providers.exchange import Endpoint, KeySource, WireModel
from palyra.adapters.providers.openai_chat import OpenAiChat
from palyra.adapters.providers.openai_responses import OpenAiResponses
from palyra.adapters.providers.route_table import DEFAULT_ROUTE, RouteTable
from palyra.adapters.providers.scripted import ScriptedProvider, load_scripts
from palyra.app import Home
from palyra.config import Config, SecretRef, SecretSource
from palyra.config.records import Provider as ProviderSection
from palyra.core.errors import Invalid, Unavailable
from palyra.ports.provider import Provider
from palyra.ports.router import Router

_WIRE_FORMATS: dict[str, Callable[[Endpoint, KeySource, HttpClient], Provider]] = {
    "openai-chat": OpenAiChat,
    "openai-responses": OpenAiResponses,
    "anthropic-messages": AnthropicMessages,
}


def build_router(home: Home, config: Config, client: HttpClient) -> Router:
    """Models of the file by name; a provider without models is one by its own name; with nothing configured, the demo guide."""
    providers = {section.name: _build_provider(home, config, section, client) for section in config.providers}
    models = {model.name: providers[model.provider] for model in config.models}
    if not models:
        models = dict(providers) or {"demo": DemoProvider()}
    routes = {route.name: route.models for route in config.routes}
    return RouteTable(models, {DEFAULT_ROUTE: tuple(models), **routes}, SystemClock())


def _build_provider(home: Home, config: Config, section: ProviderSection, client: HttpClient) -> Provider:
    if section.kind == "demo":
        return DemoProvider()
    if section.kind == "scripted":
        return ScriptedProvider(load_scripts(home.root / (section.file or "script.toml")))
    wire_format = _WIRE_FORMATS.get(section.kind)
    if wire_format is None:
        raise Invalid("provider_kind", f"provider {section.name}: {section.kind} is not part of this release yet")
    return wire_format(_endpoint(config, section), _key_source(section.api_key), client)


def _endpoint(config: Config, section: ProviderSection) -> Endpoint:
    return Endpoint(
        name=section.name,
        base_url=section.base_url,
        timeouts=Timeouts(
            connect_s=section.connect_timeout_s,
            first_byte_s=section.first_token_timeout_s,
            idle_s=section.idle_timeout_s,
        ),
        pace=Pace(retries=section.retries),
        models={
            model.name: WireModel(
                id=model.id or model.name, max_output_tokens=model.max_output_tokens, takes_tools=model.tools
            )
            for model in config.models
            if model.provider == section.name
        },
    )


def _key_source(reference: SecretRef | None) -> KeySource:
    """Asked at every attempt, so that a key changed outside is used without a restart where that can be."""

    def ask() -> str | None:
        if reference is None:
            return None
        if reference.source is not SecretSource.ENVIRONMENT:
            raise Invalid("secret_source", f"{reference} is not part of this release yet; use env:NAME")
        value = os.environ.get(reference.name)
        if not value:
            raise Unavailable("secret_missing", f"{reference} is not set in the daemon's environment")
        return value

    return ask
