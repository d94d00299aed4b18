"""The one error tree: what can go wrong, whose fault it is, and whether a retry helps.

Does not own: HTTP or gRPC codes (gateway).
Invariant: a message names what happened, to which id, and what to do next. It never holds a secret or a user's text.
"""

from enum import Enum
from typing import ClassVar


class Fault(Enum):
    CALLER = "caller"
    OPERATOR = "operator"
    SYSTEM = "system"


class PalyraError(Exception):
    """The call could not be answered. Expected outcomes (denied, cancelled) are values, never this."""

    fault: ClassVar[Fault] = Fault.SYSTEM
    is_usually_retryable: ClassVar[bool] = False

    def __init__(self, code: str, message: str, *, is_retryable: bool | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_retryable = self.is_usually_retryable if is_retryable is None else is_retryable

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Invalid(PalyraError):
    """The request itself is wrong; the same request will fail again."""

    fault = Fault.CALLER


class Unauthorized(PalyraError):
    """The principal may not do this."""

    fault = Fault.CALLER


class NotFound(PalyraError):
    """No such thing, or none this principal may see."""

    fault = Fault.CALLER


class Conflict(PalyraError):
    """The state changed in the meantime: read it again, then decide again."""

    fault = Fault.CALLER
    is_usually_retryable = True


class Unavailable(PalyraError):
    """Something the daemon relies on cannot answer now: disk full, lock held, provider down."""

    fault = Fault.OPERATOR
    is_usually_retryable = True


class Corrupt(PalyraError):
    """Stored bytes are not what was written. The read is never retried, and nothing is repaired in silence."""

    fault = Fault.SYSTEM
