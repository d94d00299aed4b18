"""What Slack's answers mean: which token it refuses, what may be sent again, and what is no answer of Slack's.

Does not own: asking (slack).
"""

from collections.abc import Awaitable
from typing import Any

from palyra.core.errors import Unavailable
from palyra.ports.channels import SendFailed

_LATER = frozenset({"ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"})


async def tried(call: Awaitable[Any], token: str) -> Any:
    from aiohttp import ClientError
    from slack_sdk.errors import SlackApiError

    try:
        return await call
    except (ClientError, TimeoutError) as error:
        raise Unavailable("connect_failed", "Slack cannot be reached") from error
    except SlackApiError as error:
        code = _code(error.response)
        if not code or code in _LATER:
            raise Unavailable("connect_failed", f"Slack does not answer as it should: {code or 'no JSON'}") from error
        raise Unavailable("token_refused", f"Slack refused the {token}: {code}") from error
    except AttributeError as error:  # The library takes a plain text for an answer, and fails on it.
        message = "a plain text answers instead of Slack; look at the channel's api_url"
        raise Unavailable("connect_failed", message) from error


def _code(response: Any) -> str:
    """Returns the error that Slack names; none if what answered was not Slack."""
    told = getattr(response, "data", response)
    return str(told.get("error", "")) if isinstance(told, dict) else ""


def refused(error: Any) -> SendFailed:
    response = error.response
    code, status = _code(response), getattr(response, "status_code", 0) or getattr(response, "status", 0)
    headers = {str(name).lower(): value for name, value in (getattr(response, "headers", None) or {}).items()}
    retry_after = str(headers.get("retry-after", ""))
    is_later = code in _LATER or status == 429 or status >= 500
    return SendFailed(
        f"Slack answered {code or status}",
        retry_after_s=float(retry_after) if retry_after.isdecimal() else None,
        is_final=not is_later,
        is_unknown=status >= 500,
    )
