"""Wires what is known of models: prices, capabilities and budgets as configured.

Does not own: the providers of the models (app.models).
"""

from palyra.adapters.prices.tables import PricedModel, PriceTables
from palyra.config import Config
from palyra.config.records import BudgetConfig as BudgetSection
from palyra.config.records import ModelConfig, ProviderConfig
from palyra.core.budget import Budget
from palyra.core.events.model import Usage
from palyra.ports.router import ModelCard

NANO = 1_000_000_000
_PRICED_TOKENS = 1_000  # Small enough for the first tier of every price list.


def model_sections(config: Config) -> tuple[tuple[ModelConfig, ProviderConfig], ...]:
    """Returns each model with its provider.

    A file without models has one model a provider, named after it. An empty file has the demo guide.
    """
    providers = {provider.name: provider for provider in config.providers}
    if config.models:
        return tuple((model, providers[model.provider]) for model in config.models)
    sections = config.providers or (ProviderConfig(name="demo", kind="demo"),)
    return tuple((ModelConfig(name=section.name, provider=section.name), section) for section in sections)


def build_prices(config: Config) -> PriceTables:
    return PriceTables({model.name: _listing(model, provider) for model, provider in model_sections(config)})


def describe_model(config: Config, prices: PriceTables, name: str) -> ModelCard:
    model, provider = next(pair for pair in model_sections(config) if pair[0].name == name)
    return _described(model, provider, prices)


def make_budgets(config: Config) -> tuple[Budget, ...]:
    return tuple(_budget(section) for section in config.budgets)


def _budget(section: BudgetSection) -> Budget:
    return Budget(
        scope=section.scope,
        period=section.period,
        action=section.action,
        limit_nano_usd=None if section.limit_usd is None else round(section.limit_usd * NANO),
        limit_tokens=section.limit_tokens,
        timezone=section.timezone,
    )


def _listing(model: ModelConfig, provider: ProviderConfig) -> PricedModel:
    return PricedModel(
        kind=provider.kind,
        id=model.id or model.name,
        base_url=provider.base_url,
        input_usd_per_mtok=model.input_usd_per_mtok,
        output_usd_per_mtok=model.output_usd_per_mtok,
        cached_input_usd_per_mtok=model.cached_input_usd_per_mtok,
    )


def _described(model: ModelConfig, provider: ProviderConfig, prices: PriceTables) -> ModelCard:
    return ModelCard(
        name=model.name,
        provider=provider.name,
        kind=provider.kind,
        id=model.id or model.name,
        window_tokens=model.window_tokens or prices.window_tokens(model.name),
        max_output_tokens=model.max_output_tokens,
        input_usd_per_mtok=_rate(prices, model.name, Usage(input_tokens=_PRICED_TOKENS, output_tokens=0)),
        output_usd_per_mtok=_rate(prices, model.name, Usage(input_tokens=0, output_tokens=_PRICED_TOKENS)),
        price_source=prices.source(model.name),
        vision=model.vision,
        tools=model.tools and provider.kind != "local",
    )


def _rate(prices: PriceTables, model: str, usage: Usage) -> float | None:
    cost = prices.cost_nano_usd(model, usage)
    return None if cost is None else cost / _PRICED_TOKENS / 1_000
