"""Answers: their JSON bodies, their headers, and the HTTP status of every error.

Owns: the form of all answers that are not streams.
Does not own: event streams (sse).
Invariant: the text of an unexpected exception stays in the log, under an error id that the client is given.
"""

import logging
from collections.abc import Callable

import msgspec
from starlette.responses import Response

from palyra.core.errors import Conflict, Corrupt, Invalid, NotFound, PalyraError, Unauthorized, Unavailable

BASE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
JSON_TYPE = "application/json"

_STATUS_BY_CLASS: dict[type[PalyraError], int] = {
    Invalid: 400,
    Unauthorized: 403,
    NotFound: 404,
    Conflict: 409,
    Unavailable: 503,
    Corrupt: 500,
}
# Codes of the gateway itself whose status is finer than their class's.
_STATUS_BY_CODE: dict[str, int] = {
    "token_missing": 401,
    "token_invalid": 401,
    "token_in_query": 401,
    "session_invalid": 401,
    "login_invalid": 401,
    "signature_invalid": 401,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "rate_limited": 429,
    "too_many_failures": 429,
    "too_many_streams": 429,
    "insufficient_quota": 429,
    "provider_error": 502,
}
_RETRY_AFTER_S = {
    "rate_limited": "1",
    "too_many_failures": "2",
    "too_many_streams": "5",
    "draining": "5",
    "uploads_busy": "1",
}

ErrorShape = Callable[[PalyraError, int], msgspec.Struct]

_log = logging.getLogger("palyra.gateway")
_encoder = msgspec.json.Encoder()


class ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str
    retryable: bool


class ErrorAnswer(msgspec.Struct, frozen=True):
    error: ErrorBody


def answer_json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    merged = BASE_HEADERS if headers is None else {**BASE_HEADERS, **headers}
    return Response(_encoder.encode(value), status, merged, JSON_TYPE)


def answer_nothing() -> Response:
    return Response(None, 204, BASE_HEADERS)


def answer_error(
    error: PalyraError, headers: dict[str, str] | None = None, shape: ErrorShape | None = None
) -> Response:
    """`shape` is that of an API that is not ours."""
    status = status_of(error)
    extra = dict(headers or {})
    if status == 401:
        extra["www-authenticate"] = "Bearer"
    if error.code in _RETRY_AFTER_S:
        extra["retry-after"] = _RETRY_AFTER_S[error.code]
    return answer_json((shape or _our_shape)(error, status), status, extra)


def _our_shape(error: PalyraError, _: int) -> msgspec.Struct:
    return ErrorAnswer(ErrorBody(error.code, error.message, error.is_retryable))


def answer_unexpected(cause: Exception, request_id: str, shape: ErrorShape | None = None) -> Response:
    """A fault of ours: the details are in the log, under the id of the request, which the client can name."""
    _log.error("internal error %s", request_id, exc_info=cause)
    message = f"internal error {request_id}; its cause is in the daemon's log under this id"
    return answer_json((shape or _our_shape)(PalyraError("internal", message), 500), 500)


def status_of(error: PalyraError) -> int:
    by_code = _STATUS_BY_CODE.get(error.code)
    if by_code is not None:
        return by_code
    return next((status for kind, status in _STATUS_BY_CLASS.items() if isinstance(error, kind)), 500)
