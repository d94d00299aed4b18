"""Wires models: which provider is behind which configured model, and where its key comes from.

Does not own: routing (core.routing).
"""

from collections.abc import Callable

from palyra.adapters.clock import SystemClock
from palyra.adapters.net.client import HttpClient, Timeouts
from palyra.adapters.providers.anthropic_messages import AnthropicMessages
from palyra.adapters.providers.attempts import RetryPace
from palyra.adapters.providers.demo import DemoProvider
from palyra.adapters.providers.exchange import KeySource, ProviderEndpoint, WireModel
from palyra.adapters.providers.local_model import LocalModel
from palyra.adapters.providers.openai_chat import OpenAiChat
from palyra.adapters.providers.openai_responses import OpenAiResponses
from palyra.adapters.providers.pydantic_ai_vendors import PydanticAi
from palyra.adapters.providers.route_table import DEFAULT_ROUTE, ModelRoute, RouteTable
from palyra.adapters.providers.scripted import ScriptedProvider, load_scripts
from palyra.app import Home
from palyra.app.model_facts import model_sections
from palyra.app.secrets import SecretSources
from palyra.config import Config
from palyra.config.records import ProviderConfig as ProviderSection
from palyra.core.errors import Invalid
from palyra.ports.provider import Provider
from palyra.ports.router import ModelCard

_WIRE_FORMATS: dict[str, Callable[[ProviderEndpoint, KeySource, HttpClient], Provider]] = {
    "openai-chat": OpenAiChat,
    "openai-responses": OpenAiResponses,
    "anthropic-messages": AnthropicMessages,
}


def build_router(
    home: Home,
    config: Config,
    client: HttpClient,
    secrets: SecretSources,
    describe: Callable[[str], ModelCard] | None = None,
) -> RouteTable:
    """Builds the router over every model and its provider.

    An agent without a route takes the first route. If there is no route, it takes all models in order.
    """
    sections = model_sections(config)
    used = {provider.name: provider for _, provider in sections}
    providers = {name: _build_provider(home, config, section, client, secrets) for name, section in used.items()}
    models = {model.name: providers[provider.name] for model, provider in sections}
    routes = {route.name: ModelRoute(route.models, route.mode) for route in config.routes}
    # The model that embeds answers no question. The configuration has another one.
    answering = tuple(name for name in models if name != config.memory.embedder)
    default = next(iter(routes.values()), ModelRoute(answering))
    return RouteTable(models, {DEFAULT_ROUTE: default, **routes}, SystemClock(), describe)


def _build_provider(
    home: Home, config: Config, section: ProviderSection, client: HttpClient, secrets: SecretSources
) -> Provider:
    if section.kind == "demo":
        return DemoProvider()
    if section.kind == "scripted":
        return ScriptedProvider(load_scripts(home.root / (section.file or "script.toml")))
    if section.kind == "local":
        return LocalModel(_endpoint(config, section))
    if section.kind == "pydantic-ai":
        return PydanticAi(_endpoint(config, section), secrets.source(section.api_key))
    wire_format = _WIRE_FORMATS.get(section.kind)
    if wire_format is None:
        raise Invalid("provider_kind", f"provider {section.name}: {section.kind} is not part of this release yet")
    return wire_format(_endpoint(config, section), secrets.source(section.api_key), client)


def _endpoint(config: Config, section: ProviderSection) -> ProviderEndpoint:
    return ProviderEndpoint(
        name=section.name,
        base_url=section.base_url,
        timeouts=Timeouts(
            connect_s=section.connect_timeout_s,
            first_byte_s=section.first_token_timeout_s,
            idle_s=section.idle_timeout_s,
        ),
        pace=RetryPace(retries=section.retries),
        models={
            model.name: WireModel(
                id=model.id or model.name,
                max_output_tokens=model.max_output_tokens,
                takes_tools=model.tools,
                takes_images=model.vision,
            )
            for model in config.models
            if model.provider == section.name
        },
    )
