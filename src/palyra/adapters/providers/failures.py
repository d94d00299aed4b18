"""Classifies a provider's refusals, and says what a person can do about them.

Does not own: retrying (attempts).
Providers agree on few things, so the words of a body count before its status. A full context and an empty account both
come as 400 somewhere. Messages name the provider and the setting. The key is cut out of every quote.
"""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from palyra.core.errors import Unavailable
from palyra.core.events.model import ModelError
from palyra.ports.provider import Failed

QUOTE_LENGTH_MAX = 300  # Quoted of the provider's own words: a sentence or two.
SCANNED_LENGTH_MAX = 4_000
WAIT_S_TOLD_MIN, WAIT_S_TOLD_MAX = 1.0, 366 * 24 * 3600.0  # Nobody means a longer wait.

_JSON_ANY = msgspec.json.Decoder()

# The first row that fits decides. The rows hold words of codes, types and messages, in lower case.
_WORDS: tuple[tuple[ModelError, re.Pattern[str]], ...] = (
    (
        ModelError.QUOTA,
        re.compile(
            r"insufficient[_ ](?:user_)?(?:quota|balance|credit|fund)|billing_(?:error|hard_limit|not_active)|credit balance"
            r"|(?:exceeded|exhausted) your (?:current|monthly) (?:quota|usage|spend)|out of credits|more credits|payment required"
            r"|spending limit|usage limits? (?:reached|exceeded)|arrearage"
        ),
    ),
    (
        ModelError.CONTEXT_LENGTH,
        re.compile(
            r"context_length|context[_ ]size|context[_ ]window|context length|context limit|maximum context|model_max_prompt"
            r"|prompt is too long|prompt too long|input is too long|input_too_long|too many (?:input )?tokens|too many total text"
            r"|exceeds? (?:the )?max(?:imum)?(?: allowed)? (?:number of |input |prompt )*(?:tokens|length)|request_too_large"
            r"|(?:prompt|input|message)s?[^.]{0,60} (?:exceeds?|longer than) [^.]{0,40}tokens?|input token count"
            r"|reduce the length of (?:the|your) (?:messages|prompt|input)"
        ),
    ),
    (
        ModelError.CONTENT_FILTER,
        re.compile(
            r"content_filter|content_policy|content management policy|content filter|responsibleai|usage policies"
            r"|flagged (?:as|by|for)|requires? moderation|safety system|data_inspection|bio_policy|cyber_policy|sensitive_words"
            r"|misalignment_policy|violates? (?:our|the) [a-z ]*polic|blocked by [a-z ]*(?:filter|safety|policy)"
        ),
    ),
    (
        ModelError.AUTH,
        re.compile(r"(?:invalid|incorrect|wrong)[_ ]?(?:x-)?api[_ -]?key|api[_ ]key not valid|api_key_invalid"),
    ),
    (ModelError.OVERLOADED, re.compile(r"overloaded|server is busy|at capacity|temporarily unavailable|server_error")),
    (ModelError.RATE, re.compile(r"rate[_ -]?limit|too many requests|resource_exhausted|too_many_requests|throttl")),
    (ModelError.AUTH, re.compile(r"authentication|unauthori[sz]ed|permission_(?:error|denied)")),
    (ModelError.TIMEOUT, re.compile(r"timeout_error|request[_ ]timeout|timed out")),
    (
        ModelError.OVERLOADED,
        re.compile(r"api_error|internal[_ ](?:server[_ ])?error|service[_ ]unavailable|engine_error"),
    ),
)
_STATUSES = {
    401: ModelError.AUTH,
    402: ModelError.QUOTA,
    403: ModelError.AUTH,
    408: ModelError.TIMEOUT,
    429: ModelError.RATE,
}
# For these classes the words tell more than the status; for the others the status tells more, if there is one.
_CERTAIN = frozenset({ModelError.QUOTA, ModelError.CONTEXT_LENGTH, ModelError.CONTENT_FILTER})

_ADVICE = {
    ModelError.AUTH: "refused the key. Check `api_key` of the provider (or the variable it is read from), and what it may use",
    ModelError.QUOTA: "says the account has no credit or quota left. Top it up, or use another provider",
    ModelError.RATE: "is limiting the rate of requests. Wait, raise the limit there, or add another model to the route",
    ModelError.OVERLOADED: "is overloaded or has a fault of its own. Try again later, or add another model to the route",
    ModelError.CONTEXT_LENGTH: "says the conversation is too long for the model. Shorten it (palyra sessions compact), "
    "start a new session, or use a model with a larger window",
    ModelError.CONTENT_FILTER: "blocked the request by its content rules. Rephrase it, or use another model",
    ModelError.BAD_REQUEST: "refused the request. Check the model's `id` and `base_url`",
    ModelError.NETWORK: "could not be reached. Check `base_url` and the network",
    ModelError.TIMEOUT: "took too long. Raise the provider's timeouts, or use a faster model",
    ModelError.PROTOCOL: "answered in a form that is not this provider's `kind`. Check `kind` and `base_url`",
    ModelError.NO_MODEL: "has no such model. Check the model's `id`",
}
_NET_CODES = {
    "connect_timed_out": ModelError.TIMEOUT,
    "timed_out": ModelError.TIMEOUT,
    "not_http": ModelError.PROTOCOL,
    "event_too_large": ModelError.PROTOCOL,
    "body_too_large": ModelError.PROTOCOL,
}


class ProviderRefusal(msgspec.Struct, frozen=True):
    """What a provider said when it refused, as far as it was found: for people and for the rules above."""

    message: str
    words: str
    status: int | None = None


def read_refusal(body: bytes) -> ProviderRefusal:
    """Reads the body of an error, or the data of an error event, in whatever form it is."""
    try:
        found = _JSON_ANY.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
        return ProviderRefusal(
            "" if text.startswith("<") else text[:SCANNED_LENGTH_MAX], text[:SCANNED_LENGTH_MAX].lower()
        )
    if isinstance(found, list) and found:
        found = found[0]
    error = found.get("error", found) if isinstance(found, dict) else found
    if not isinstance(error, dict):
        return ProviderRefusal(str(error), str(error)[:SCANNED_LENGTH_MAX].lower())
    texts = (error.get(key) for key in ("message", "detail", "msg"))
    message = next((text for text in texts if isinstance(text, str)), "")
    values = (error.get(key) for key in ("code", "type", "status", "message", "detail", "metadata", "param"))
    words = " ".join(str(value) for value in values if value is not None)[:SCANNED_LENGTH_MAX].lower()
    numbers = (error.get(key) for key in ("status_code", "http_code", "code"))
    status = next((number for number in numbers if isinstance(number, int) and 300 <= number < 600), None)
    return ProviderRefusal(message, words, status)


def classify(refusal: ProviderRefusal, status: int | None) -> ModelError:
    """Returns the class of a refusal; `status` is None for an error inside a stream that began well."""
    status = status if status is not None else refusal.status
    said = next((code for code, pattern in _WORDS if pattern.search(refusal.words)), None)
    if said is not None and (status is None or (said in _CERTAIN and status < 500)):
        return said
    if status is None:
        return ModelError.BAD_REQUEST
    if status == 413:
        return ModelError.RATE if said is ModelError.RATE else ModelError.CONTEXT_LENGTH
    if status >= 500:
        return ModelError.OVERLOADED
    if status == 400 and said is ModelError.AUTH:
        return ModelError.AUTH
    if status < 400:
        return ModelError.PROTOCOL
    return _STATUSES.get(status, ModelError.BAD_REQUEST)


def failed(provider: str, code: ModelError, detail: str = "") -> Failed:
    """Returns the last delta of a failed call: what happened, what to do, and a further sentence if there is one."""
    return Failed(code, f"{provider} {_ADVICE[code]}. {detail}".rstrip())


def refused(provider: str, refusal: ProviderRefusal, status: int | None, key: str | None = None) -> Failed:
    """Quotes the provider's own words, cut to a sentence or two and without the key."""
    code = classify(refusal, status)
    suffix = f" (HTTP {status})" if status is not None else ""
    said = _beginning(" ".join((refusal.message.replace(key, "…") if key else refusal.message).split()))
    # A message about a refused key often shows parts of the key.
    if not said or (code is ModelError.AUTH and status != 403):
        return failed(provider, code, suffix.strip())
    return failed(provider, code, f"It said: {said}{suffix}")


def _beginning(said: str) -> str:
    """Returns a sentence or two, in whole words: later checks would not recognise half a key."""
    return said if len(said) <= QUOTE_LENGTH_MAX else said[: QUOTE_LENGTH_MAX + 1].rpartition(" ")[0]


def postponed(told: Failed, wait_s: float | None) -> Failed:
    """Adds the moment from which the provider may be called again, if it named one."""
    if wait_s is None or not WAIT_S_TOLD_MIN <= wait_s <= WAIT_S_TOLD_MAX:
        return Failed(told.code, told.message, wait_s)
    moment = datetime.fromtimestamp(time.time() + wait_s, UTC)
    message = f"{told.message.removesuffix('.')}. It may be asked again after {moment:%Y-%m-%d %H:%M:%S} UTC."
    return Failed(told.code, message, wait_s)


def broken(provider: str, fault: Unavailable) -> Failed:
    """Returns a failure of the connection, in the client's words, which hold nothing of the request."""
    detail = fault.message[:1].upper() + fault.message[1:]
    return failed(provider, _NET_CODES.get(fault.code, ModelError.NETWORK), f"{detail}.")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Returns how long the provider asks callers to wait: seconds, milliseconds or a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
