"""The daemon's log: its form, what is kept out of it, and that one event is one line.

Does not own: what is logged.
Invariants: the log holds no key of the daemon, whoever quoted it. It holds no control character of anyone's text. So
nobody can forge a line or control the terminal that shows it. The lines of a traceback are marked as such.
"""

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from palyra.core.redaction import KnownSecrets
from palyra.core.spelling import spell_out

_CONTINUED = "\n    | "  # Before every further line of a traceback.
_KEPT = frozenset({"exception"})
# `palyra serve` tells these in words, and its last line is what to do next.
_ANNOUNCED = frozenset({"grpc_ready", "models_chosen", "ready"})


def configure_log(known: KnownSecrets) -> None:
    """Logs on standard error: lines for a terminal, else JSON. Libraries' log messages join it."""
    is_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            *([_drop_announced] if is_terminal else []),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            lambda _logger, _method, event: cleaned(known, event),
            structlog.dev.ConsoleRenderer() if is_terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _StandardError())),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [_Forwarding()]
    root.setLevel(logging.WARNING)
    logging.getLogger("palyra").setLevel(logging.INFO)


def log_beside_results() -> None:
    """Logs on standard error in a command that drives adapters itself: standard output holds its result alone."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _StandardError())),
    )


def _drop_announced(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leaves out lines that would stand twice on a terminal."""
    if event.get("event") in _ANNOUNCED:
        raise structlog.DropEvent
    return event


def cleaned(known: KnownSecrets, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {spell_out(name): _cleaned_value(known, name, value) for name, value in event.items()}


def _cleaned_value(known: KnownSecrets, name: str, value: object) -> object:
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_cleaned_value(known, "", item) for item in value]
    text = known.mask(value if isinstance(value, str) else str(value))
    return _CONTINUED.join(map(spell_out, text.splitlines())) if name in _KEPT else spell_out(text)


class _Forwarding(logging.Handler):
    """Forwards messages of the standard library's loggers to ours."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger().bind(logger=record.name)
        logger.log(max(record.levelno, logging.INFO), record.getMessage(), exc_info=record.exc_info)


class _StandardError:
    """The process's own standard error. Work goes on even if nobody can read a line any more."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError, AttributeError):
            sys.__stderr__.write(text)  # type: ignore[union-attr]
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            sys.__stderr__.flush()  # type: ignore[union-attr]
