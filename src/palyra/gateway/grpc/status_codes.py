"""The gRPC status of every error, and the metadata that tells our own code.

Owns: the mapping, for errors of our tree alone.
Does not own: the HTTP status (gateway.http.responses).
Invariant: the text of an unexpected exception stays in the log, under an error id that the client is given.
"""

import logging
import secrets

import grpc

from palyra.core.errors import Conflict, Corrupt, Invalid, NotFound, PalyraError, Unauthorized, Unavailable

CODE_KEY = "palyra-code"
RETRYABLE_KEY = "palyra-retryable"

_Status = grpc.StatusCode
_BY_CLASS: dict[type[PalyraError], grpc.StatusCode] = {
    Invalid: _Status.INVALID_ARGUMENT,
    Unauthorized: _Status.PERMISSION_DENIED,
    NotFound: _Status.NOT_FOUND,
    Conflict: _Status.FAILED_PRECONDITION,
    Unavailable: _Status.UNAVAILABLE,
    Corrupt: _Status.DATA_LOSS,
}
# Codes whose status is finer than their class's.
_BY_CODE: dict[str, grpc.StatusCode] = {
    "token_missing": _Status.UNAUTHENTICATED,
    "token_invalid": _Status.UNAUTHENTICATED,
    "session_invalid": _Status.UNAUTHENTICATED,
    "method_unknown": _Status.UNIMPLEMENTED,
    "rate_limited": _Status.RESOURCE_EXHAUSTED,
    "too_many_failures": _Status.RESOURCE_EXHAUSTED,
    "too_many_streams": _Status.RESOURCE_EXHAUSTED,
    "timeout": _Status.DEADLINE_EXCEEDED,
}

_log = logging.getLogger("palyra.gateway")


class UnexpectedError(PalyraError):
    """A fault of ours. Its message names an id in the log, and nothing else."""


def status_of(error: PalyraError) -> grpc.StatusCode:
    by_code = _BY_CODE.get(error.code)
    if by_code is not None:
        return by_code
    if isinstance(error, Conflict) and error.is_retryable:
        return _Status.ABORTED
    return next((status for kind, status in _BY_CLASS.items() if isinstance(error, kind)), _Status.INTERNAL)


def metadata_of(error: PalyraError) -> tuple[tuple[str, str], ...]:
    return (CODE_KEY, error.code), (RETRYABLE_KEY, "true" if error.is_retryable else "false")


def hide(cause: BaseException) -> PalyraError:
    """Returns the error to answer with. The details of an unexpected one go to the log."""
    if isinstance(cause, PalyraError):
        return cause
    error_id = secrets.token_hex(8)
    _log.error("internal error %s", error_id, exc_info=cause)
    return UnexpectedError("internal", f"internal error {error_id}; its cause is in the daemon's log under this id")
