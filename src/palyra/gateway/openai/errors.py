"""Errors in the shape of OpenAI's API.

Owns: the shape, and its words for our errors. Does not own: the HTTP status of an error (gateway.http.responses).
"""

import msgspec

from palyra.core.errors import Conflict, Invalid, PalyraError, Unavailable
from palyra.core.events.run import EndReason
from palyra.engine.api.requests import RunError

PATH_PREFIX = "/v1/"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
_BUDGET = "insufficient_quota"


class OpenaiError(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenaiErrorAnswer(msgspec.Struct, frozen=True):
    error: OpenaiError


class UnsupportedParameter(Invalid):
    """A member that this server cannot do what it means, and must not ignore."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__("unsupported_parameter", message)
        self.param = param


def is_openai_path(path: str) -> bool:
    return path.startswith(PATH_PREFIX)


def shape_error(error: PalyraError, status: int) -> OpenaiErrorAnswer:
    param = error.param if isinstance(error, UnsupportedParameter) else None
    code = "invalid_api_key" if status == 401 else error.code
    kind = _TYPES.get(status, "server_error")
    return OpenaiErrorAnswer(OpenaiError(message=error.message, type=kind, param=param, code=code))


def failure_of(error: RunError) -> PalyraError:
    """Returns the error with which a failed run answers. None is worth a retry: that would do the work again."""
    message = error.message or f"the run ended with {error.code}"
    match error.code:
        case EndReason.BUDGET.value:
            return Unavailable(_BUDGET, message, is_retryable=False)
        case EndReason.CONTEXT_EXHAUSTED.value:
            return Invalid("context_length_exceeded", message)
        case EndReason.CANCELLED.value | EndReason.WALL_CLOCK.value:
            return Conflict(error.code, message, is_retryable=False)
        case _:
            return Unavailable(error.code, message, is_retryable=False)
