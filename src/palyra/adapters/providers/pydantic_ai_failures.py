"""Classifies the errors of pydantic-ai and of vendors' libraries.

Does not own: retrying (pydantic_ai_vendors).
The words of a refusal are judged by the same rules as those of the wire formats. What pydantic-ai knows about a
vendor's own codes is added to them. Connection errors are not quoted: addresses may hold what nobody should read.
"""

import msgspec
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UserError,
)

from palyra.adapters.providers.failures import ProviderRefusal, failed, read_refusal, refused
from palyra.core.events.model import ModelError
from palyra.ports.provider import Failed

# What a call may raise: pydantic-ai's own errors, a missing vendor package, and answers that do not parse.
FAULTS = (AgentRunError, UserError, ImportError, ValueError, OSError)

# The meaning of each kind of error, in a word that our rules know.
_WORDS: tuple[tuple[type[ModelAPIError], str], ...] = (
    (ModelContextWindowExceededError, "context_length"),
    (ModelQuotaExceededError, "insufficient_quota"),
    (ModelAuthenticationError, "authentication"),
    (ModelRateLimitError, "rate_limit"),
    (ModelUnavailableError, "overloaded"),
    (ModelServerError, "server_error"),
)
_PHASES = {
    "pool": "No connection was free in time.",
    "connect": "No connection could be made.",
    "read": "The connection broke off before the answer was complete.",
}


class VendorFailure(msgspec.Struct, frozen=True):
    """A failed call: what is reported, and the vendor's own words in lower case, by which a field may be left out."""

    failed: Failed
    words: str = ""


def tell(provider: str, error: Exception, key: str | None) -> VendorFailure:
    match error:
        case ContentFilterError():
            return VendorFailure(failed(provider, ModelError.CONTENT_FILTER))
        case ModelTimeoutError():
            return VendorFailure(failed(provider, ModelError.TIMEOUT))
        case ModelConnectionError():
            return VendorFailure(failed(provider, ModelError.NETWORK, _PHASES.get(error.phase or "", "")))
        case ModelAPIError():
            return _refused(provider, error, key)
        case UserError():
            return _unusable(provider, error, key)
        case ImportError():
            what = " ".join(str(error).split())
            return VendorFailure(
                Failed(ModelError.NO_MODEL, f"{provider} needs another package for this vendor. {what}")
            )
        case _:
            return VendorFailure(failed(provider, ModelError.PROTOCOL, "Its answer is empty or does not read."))


def _refused(provider: str, error: ModelAPIError, key: str | None) -> VendorFailure:
    said = read_refusal(_body(error))
    hint = next((word for kind, word in _WORDS if isinstance(error, kind)), "")
    refusal = ProviderRefusal(
        said.message, f"{hint} {error.provider_error_code or ''} {said.words}".lower(), said.status
    )
    status = error.status_code if isinstance(error, ModelHTTPError) and not error.in_stream else None
    told = refused(provider, refusal, status, key)
    return VendorFailure(Failed(told.code, told.message, error.retry_after), refusal.words)


def _body(error: ModelAPIError) -> bytes:
    if error.body is None:
        # The text of an HTTP error only repeats its status and the model.
        return b"" if isinstance(error, ModelHTTPError) else error.message.encode("utf-8", "replace")
    if isinstance(error.body, str):
        return error.body.encode("utf-8", "replace")
    try:
        return msgspec.json.encode(error.body)
    except (TypeError, ValueError):
        return str(error.body).encode("utf-8", "replace")


def _unusable(provider: str, error: UserError, key: str | None) -> VendorFailure:
    """Reports a refusal of the library before any request: no key, no such vendor, or something the model cannot do."""
    words = error.message.lower()
    if key is None and ("api_key" in words or "environment variable" in words or "credential" in words):
        return VendorFailure(failed(provider, ModelError.AUTH, "It has no key. Set `api_key` of the provider."), words)
    return VendorFailure(
        failed(provider, ModelError.BAD_REQUEST, f"The vendor's library said: {error.message[:300]}"), words
    )
