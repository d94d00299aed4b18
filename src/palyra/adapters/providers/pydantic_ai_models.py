"""Builds a vendor's model with its key and address.

Does not own: calling it (pydantic_ai_call).
The key goes to the vendor's own class as an argument. It is never put into an environment variable, where every child
process would find it.
"""

import inspect
from functools import partial
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

GATEWAY = "gateway/"
_NAMES = {"api_key": ("api_key", "token"), "base_url": ("base_url", "azure_endpoint", "api_base", "api_host")}


def build_model(model_id: str, base_url: str | None, key: str | None) -> Model:
    """Builds from an id such as `google:gemini-2.5-pro`. Raises UserError, or ImportError that names the package."""
    return infer_model(model_id, partial(_build_provider, base_url, key))


def _build_provider(base_url: str | None, key: str | None, vendor: str) -> Provider[Any]:
    if vendor.startswith(GATEWAY):
        from pydantic_ai.providers.gateway import gateway_provider

        return gateway_provider(vendor.removeprefix(GATEWAY), api_key=key, base_url=base_url)
    try:
        kind = infer_provider_class(vendor)
    except ValueError as cause:
        raise UserError(f"There is no vendor {vendor!r}; an id is `vendor:model`.") from cause
    taken = frozenset(inspect.signature(kind).parameters)
    given = {"api_key": key, "base_url": base_url}
    return kind(**{_name(vendor, setting, taken): value for setting, value in given.items() if value is not None})


def _name(vendor: str, setting: str, taken: frozenset[str]) -> str:
    """Returns the name that this vendor's class has for one of our settings."""
    name = next((name for name in _NAMES[setting] if name in taken), None)
    if name is None:
        raise UserError(f"The vendor {vendor} takes no `{setting}`; remove it from the provider.")
    return name
